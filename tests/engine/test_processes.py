"""Two processes with half a batch each update the weights as one process with the joint batch."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from semilearn_ext import distributed
from semilearn_ext.distributed import ProcessGroup
from semilearn_ext.engine import sync_batchnorm
from semilearn_ext.engine.checkpoint import checkpoint_files, load
from semilearn_ext.errors import UserError
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


def test_the_averaged_gradient_equals_that_of_the_joint_batch(tiny: Tiny, tmp_path: Path) -> None:
    cases = [
        tiny(algorithm=algorithm, net=net, batch_size=12, p_cutoff=threshold)
        for (algorithm, net), threshold in CASES.items()
    ]
    for case, settings, (first, second) in zip(CASES, cases, shared_step.run(cases, tmp_path), strict=True):
        assert not torch.equal(first["batch"]["x_lb"], second["batch"]["x_lb"])
        joint = shared_step.step(settings, ProcessGroup(), shared_step.joined([first, second]))
        assert joint["unsup_loss"] > 0
        for name, expected in joint["gradient"].items():
            assert expected.abs().max() > 0, (case, name)
            scale = expected.abs().max()
            torch.testing.assert_close(
                first["gradient"][name] / scale, expected / scale, rtol=0, atol=1e-9, msg=f"{case}: {name}"
            )
            assert torch.equal(first["gradient"][name], second["gradient"][name]), (case, name)


def test_averaged_gradients_have_the_memory_format_of_the_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the optimizer would update one tensor after the other."""
    monkeypatch.setattr(dist, "all_reduce", lambda tensor: tensor.mul_(2))
    first, unused = torch.nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last), torch.nn.Linear(2, 2)
    first(torch.ones(2, 3, 5, 5)).square().sum().backward()
    parameters = [*first.parameters(), *unused.parameters()]
    before = [p.grad.clone() for p in first.parameters() if p.grad is not None]
    ProcessGroup(world_size=2).average_gradients(parameters)
    for parameter, expected in zip(parameters, [*before, torch.zeros(2, 2), torch.zeros(2)], strict=True):
        assert parameter.grad is not None
        assert parameter.grad.stride() == parameter.stride()
        assert torch.equal(parameter.grad, expected)


def test_batch_norm_of_several_processes_computes_its_statistics_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """bfloat16 holds neither the number of pixels nor the difference of two large sums."""
    monkeypatch.setattr(sync_batchnorm, "all_reduce", torch.clone)
    images = torch.randn(4, 3, 20, 20, generator=torch.Generator().manual_seed(0)) + 10
    expected, synced = torch.nn.BatchNorm2d(3), sync_batchnorm.PortableSyncBatchNorm(3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        outputs = [norm(images.bfloat16()) for norm in (expected, synced)]
    assert outputs[1].dtype == outputs[0].dtype == torch.bfloat16
    torch.testing.assert_close(outputs[1], outputs[0], rtol=0.02, atol=0.02)
    torch.testing.assert_close(synced.running_var, expected.running_var, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("variables", [{"RANK": "x"}, {"RANK": "2"}, {"RANK": "0", "MASTER_ADDR": ""}])
def test_incomplete_variables_of_torchrun_are_refused(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    complete = {"WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}
    for name, value in {**complete, **variables}.items():
        if value:
            monkeypatch.setenv(name, value)
        else:
            monkeypatch.delenv(name, raising=False)
    with pytest.raises(UserError, match="not the environment variables of torchrun; unset RANK, or start with"):
        distributed.from_environment()


@pytest.mark.parametrize(("kind", "backend"), [("cuda", "nccl"), ("cpu", "gloo")])
def test_a_process_tells_nccl_its_gpu(kind: str, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Barriers would otherwise guess it, with a warning from every process."""
    calls = []
    monkeypatch.setattr(dist, "init_process_group", lambda name, **options: calls.append((name, options["device_id"])))
    device = torch.device(kind, 1)
    distributed.init(ProcessGroup(rank=1, world_size=2, local_rank=1), device)
    assert calls == [(backend, device if kind == "cuda" else None)]


def test_torchrun_trains_and_leaves_one_record(train_script: Script, tmp_path: Path) -> None:
    arguments = ("--target_domain", "pen", "--batch_size", "12", "--num_train_iter", "4", "--num_eval_iter", "2")
    process = train_script(*arguments, prefix=TORCHRUN)
    assert process.returncode == 0, process.stderr[-3000:]
    assert process.stdout.count("FixMatch on digits_mini") == 1
    folder = tmp_path / "runs" / "digits_mini" / "10lpc" / "fixmatch" / "pen" / "seed1"
    assert len((folder / "metrics.jsonl").read_text().splitlines()) == 2
    state = load(checkpoint_files(folder)[-1])
    assert len(state["processes"]) == 2
    assert state["iteration"] == 4
