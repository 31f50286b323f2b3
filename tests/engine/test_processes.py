"""Two processes with half a batch each move the weights as one process with the whole batch does."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from semilearn_ext.engine.checkpoint import checkpoint_files, load
from semilearn_ext.settings import Settings, dump

Tiny = Callable[..., Settings]
Train = Callable[..., subprocess.Popen[str]]

TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", "--standalone")
WORKER = Path(__file__).with_name("two_process_worker.py")


def torchrun(*arguments: str) -> None:
    done = subprocess.run([*TORCHRUN, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize(
    ("algorithm", "net"), [("fixmatch", "cnn"), ("fixmatch", "resnet18"), ("fixmatch_upcsc", "cnn")]
)
def test_averaged_gradient_is_that_of_the_joint_batch(algorithm: str, net: str, tiny: Tiny, tmp_path: Path) -> None:
    """The worker writes every process's batch and gradient; the joint batch is put together here.

    UPCSC contrasts the images of all processes with each other.
    """
    config = tmp_path / "config.yaml"
    threshold = {"p_cutoff": 0.11 if algorithm == "fixmatch" else 0.2}
    config.write_text(dump(tiny(algorithm=algorithm, net=net, batch_size=12, **threshold)))
    torchrun(str(WORKER), str(config), str(tmp_path))
    one, two = (torch.load(tmp_path / f"rank{rank}.pt", weights_only=True) for rank in range(2))
    assert not torch.equal(one["batch"]["x_lb"], two["batch"]["x_lb"])
    subprocess.run([sys.executable, str(WORKER), str(config), str(tmp_path), "joint"], check=True)
    joint = torch.load(tmp_path / "joint.pt", weights_only=True)
    assert joint["unsup_loss"] > 0
    for name, expected in joint["gradient"].items():
        assert expected.abs().max() > 0, name
        scale = expected.abs().max()
        torch.testing.assert_close(one["gradient"][name] / scale, expected / scale, rtol=0, atol=1e-9, msg=name)
        assert torch.equal(one["gradient"][name], two["gradient"][name])


def test_torchrun_trains_and_leaves_one_record(train: Train, tmp_path: Path) -> None:
    arguments = ("--target_domain", "pen", "--batch_size", "12", "--num_train_iter", "4", "--num_eval_iter", "2")
    process = train(*arguments, prefix=TORCHRUN)
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors[-3000:]
    assert output.count("FixMatch on digits_mini") == 1
    folder = tmp_path / "runs" / "digits_mini" / "10lpc" / "fixmatch" / "pen" / "seed1"
    assert len((folder / "metrics.jsonl").read_text().splitlines()) == 2
    state = load(checkpoint_files(folder)[-1])
    assert len(state["random"]) == 2
    assert state["iteration"] == 4
