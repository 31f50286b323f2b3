"""Two processes with half a batch each move the weights as one process with the whole batch does."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import torch

from semilearn_ext.distributed import ProcessGroup
from semilearn_ext.engine.checkpoint import checkpoint_files, load
from semilearn_ext.settings import Settings
from tests.engine import shared_step

Tiny = Callable[..., Settings]
Script = Callable[..., subprocess.CompletedProcess[str]]

TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", "--standalone")
CASES = {
    ("fixmatch", "cnn"): 0.11,
    ("fixmatch", "resnet18"): 0.11,
    # UPCSC contrasts the images of all processes with each other.
    ("fixmatch_upcsc", "cnn"): 0.2,
}


def test_averaged_gradient_is_that_of_the_joint_batch(tiny: Tiny, tmp_path: Path) -> None:
    cases = [
        tiny(algorithm=algorithm, net=net, batch_size=12, p_cutoff=threshold)
        for (algorithm, net), threshold in CASES.items()
    ]
    for case, settings, (one, two) in zip(CASES, cases, shared_step.run(cases, tmp_path), strict=True):
        assert not torch.equal(one["batch"]["x_lb"], two["batch"]["x_lb"])
        joint = shared_step.step(settings, ProcessGroup(), shared_step.joined([one, two]))
        assert joint["unsup_loss"] > 0
        for name, expected in joint["gradient"].items():
            assert expected.abs().max() > 0, (case, name)
            scale = expected.abs().max()
            torch.testing.assert_close(
                one["gradient"][name] / scale, expected / scale, rtol=0, atol=1e-9, msg=f"{case}: {name}"
            )
            assert torch.equal(one["gradient"][name], two["gradient"][name]), (case, name)


def test_torchrun_trains_and_leaves_one_record(train_script: Script, tmp_path: Path) -> None:
    arguments = ("--target_domain", "pen", "--batch_size", "12", "--num_train_iter", "4", "--num_eval_iter", "2")
    done = train_script(*arguments, prefix=TORCHRUN)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("FixMatch on digits_mini") == 1
    folder = tmp_path / "runs" / "digits_mini" / "10lpc" / "fixmatch" / "pen" / "seed1"
    assert len((folder / "metrics.jsonl").read_text().splitlines()) == 2
    state = load(checkpoint_files(folder)[-1])
    assert len(state["processes"]) == 2
    assert state["iteration"] == 4
