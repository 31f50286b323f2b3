"""A run killed at any moment resumes bit for bit, damage is detected, and a full disk loses no checkpoint."""

from __future__ import annotations

import hashlib
import io
import json
import os
import random
import resource
import signal
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from semilearn_ext import training
from semilearn_ext.engine import checkpoint
from semilearn_ext.engine.context import make_context
from semilearn_ext.errors import UserError
from semilearn_ext.runs.folder import RunFolder, run_path
from semilearn_ext.runs.ownership import claim
from semilearn_ext.settings import Settings
from tests.forked import PATIENCE, Forked

Tiny = Callable[..., Settings]
Train = Callable[..., Forked]


def weights_hash(folder: Path) -> str:
    state = checkpoint.load(checkpoint.checkpoint_files(folder)[-1])
    buffer = io.BytesIO()
    for name, value in sorted(state["model"].items()):
        buffer.write(name.encode() + value.numpy().tobytes())
    for group in ("hooks", "algorithm"):
        torch.save(json.dumps(_plain(state["processes"][0][group]), sort_keys=True), buffer)
    return hashlib.sha256(buffer.getvalue()).hexdigest()


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {name: _plain(entry) for name, entry in value.items()}
    return value.tolist() if isinstance(value, torch.Tensor) else value


def metrics_without_time(folder: Path) -> list[dict[str, object]]:
    records = RunFolder(folder).read_metrics()
    return [{name: value for name, value in record.items() if name != "seconds"} for record in records]


def steps_done(folder: Path) -> int:
    files = checkpoint.checkpoint_files(folder)
    return int(files[-1].stem.split("_")[1]) if files else 0


def test_a_killed_run_resumes_bit_for_bit(train: Train, tmp_path: Path) -> None:
    common = (
        *("--algorithm", "freematch", "--target_domain", "street", "--flip", "false", "--lr", "0.03"),
        *("--batch_size", "12", "--num_train_iter", "60", "--num_eval_iter", "20", "--checkpoint_every", "5"),
    )
    run = Path("digits_mini", "10lpc", "freematch", "street", "seed1")
    uninterrupted, interrupted = tmp_path / "uninterrupted", tmp_path / "interrupted"
    assert train(*common, "--save_dir", str(uninterrupted)).wait() == 0

    command = (*common, "--save_dir", str(interrupted))
    for steps in (5, 20, 35):
        process = train(*command)
        deadline = time.monotonic() + PATIENCE
        while steps_done(interrupted / run) < steps and process.poll() is None:
            assert time.monotonic() < deadline, process.output()
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert not (interrupted / run / "result.json").exists(), "the run was killed too late"
    assert train(*command).wait() == 0

    assert weights_hash(interrupted / run) == weights_hash(uninterrupted / run)
    assert metrics_without_time(interrupted / run) == metrics_without_time(uninterrupted / run)
    assert not list((interrupted / run).glob(".*.tmp"))


def test_ctrl_c_saves_and_says_how_to_resume(train: Train, tmp_path: Path) -> None:
    arguments = ("--target_domain", "pen", "--batch_size", "12", "--num_train_iter", "5000", "--checkpoint_every", "20")
    folder = tmp_path / "runs" / "digits_mini" / "10lpc" / "fixmatch" / "pen" / "seed1"
    process = train(*arguments)
    while steps_done(folder) < 20 and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate()
    assert process.returncode == 130
    saved = steps_done(folder)
    assert f"stopped after iteration {saved} of 5000" in errors
    assert "re-run the same command to resume" in errors
    assert "Traceback" not in errors


def test_repeated_sigterm_is_ignored_and_a_second_ctrl_c_ends_at_once(tiny: Tiny) -> None:
    algorithm = training.build(make_context(tiny()))
    with algorithm.listening():
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGTERM)
        assert algorithm.stop_requested()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_a_finished_run_is_skipped(tiny: Tiny) -> None:
    first = training.run(tiny())
    stamp = os.stat(run_path(tiny()) / "metrics.jsonl").st_mtime_ns
    second = training.run(tiny())
    assert (first.was_finished, second.was_finished) == (False, True)
    assert second.result == first.result
    assert os.stat(run_path(tiny()) / "metrics.jsonl").st_mtime_ns == stamp


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty"])
def test_a_damaged_checkpoint_is_reported_and_the_previous_one_used(
    tinier: Tiny, stop_after: Callable[[Settings, int], None], damage: str
) -> None:
    settings = tinier(num_train_iter=8)
    folder = run_path(settings)
    stop_after(settings, 6)
    newest = folder / "checkpoint_00000006.pt"
    content = bytearray(newest.read_bytes())
    if damage == "flipped":
        content[len(content) // 2] ^= 0xFF
    newest.write_bytes({"truncated": content[:-500], "flipped": content, "empty": b""}[damage])
    with pytest.warns(UserWarning, match=r"00000006.pt: damaged checkpoint .* using the previous one"):
        outcome = training.run(settings)
    assert outcome.result["iterations"] == 8
    assert "resuming after iteration 4" in (folder / "log.txt").read_text()


def test_a_full_disk_keeps_the_old_checkpoint(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, {"iteration": 1, "model": {"w": torch.zeros(4)}})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
    try:
        with pytest.raises(UserError, match=r"cannot be written .*earlier checkpoints are kept"):
            checkpoint.save(tmp_path, {"iteration": 2, "model": {"w": torch.zeros(100_000)}})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint_00000001.pt"]
    assert checkpoint.load(tmp_path / "checkpoint_00000001.pt")["iteration"] == 1


def test_the_last_two_checkpoints_are_kept(tmp_path: Path) -> None:
    for iteration in (1, 2, 10):
        checkpoint.save(tmp_path, {"iteration": iteration})
    assert [path.name for path in checkpoint.checkpoint_files(tmp_path)] == [
        "checkpoint_00000002.pt",
        "checkpoint_00000010.pt",
    ]


def test_code_in_a_checkpoint_is_not_run(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.system, (f"touch {tmp_path / 'created'}",)

    torch.save({"iteration": 1, "trap": Trap()}, tmp_path / "checkpoint_00000001.pt")
    with pytest.raises(UserError, match="damaged checkpoint"):
        checkpoint.load(tmp_path / "checkpoint_00000001.pt")
    assert not (tmp_path / "created").exists()


def test_random_states_are_restored() -> None:
    device = torch.device("cpu")
    state = checkpoint.random_state(device)
    drawn = (random.random(), random.gauss(0, 1), np.random.rand(), np.random.randn(), torch.rand(1).item())
    checkpoint.restore_random_state(state, device)
    assert drawn == (random.random(), random.gauss(0, 1), np.random.rand(), np.random.randn(), torch.rand(1).item())


@pytest.mark.parametrize("term", ["sup_loss", "unsup_loss"])
def test_a_loss_that_is_not_finite_stops_the_run_and_keeps_good_checkpoints(tiny: Tiny, term: str) -> None:
    settings = tiny(num_train_iter=20, checkpoint_every=2)
    folder = RunFolder(run_path(settings))
    claim(folder, settings)
    algorithm = training.build(make_context(settings, folder=folder))
    original = algorithm.train_step

    def step_with_nan(x_lb, y_lb, x_ulb_w, x_ulb_s):  # type: ignore[no-untyped-def]
        out, log = original(x_lb=x_lb, y_lb=y_lb, x_ulb_w=x_ulb_w, x_ulb_s=x_ulb_s)
        if algorithm.it == 5:
            log[f"train/{term}"] = float("nan")
        return out, log

    algorithm.train_step = step_with_nan
    with algorithm.checkpoints, pytest.raises(UserError, match=f"train/{term} is nan at iteration 6"):
        algorithm.train()
    assert checkpoint.load_newest(folder.path, pytest.fail)["iteration"] == 4  # type: ignore[index]


def test_hook_state_and_averaged_weights_are_in_the_checkpoint(tiny: Tiny) -> None:
    settings = tiny(algorithm="freematch", eval_with_ema=True, ema_p=0.5)
    training.run(settings)
    state = checkpoint.load(checkpoint.checkpoint_files(run_path(settings))[-1])
    thresholds = state["processes"][0]["hooks"]["MaskingHook"]
    assert thresholds["time_p"] != pytest.approx(0.1)
    assert not torch.equal(thresholds["p_model"], torch.full((10,), 0.1))
    name = "classifier.weight"
    assert not torch.equal(state["ema"][name], state["model"][name])


@pytest.mark.parametrize(
    "change",
    [
        lambda state: state["model"].update({"classifier.weight": torch.zeros(3, 3)}),
        lambda state: state["model"].clear(),
        lambda state: state.update(model=[1, 2]),
        lambda state: state.update(optimizer=None),
        lambda state: state["optimizer"]["state"][0].update(momentum_buffer=torch.zeros(7)),
        lambda state: state["optimizer"]["state"][0].update(momentum_buffer={}),
        lambda state: state["optimizer"]["state"][0].clear(),
        lambda state: state["optimizer"]["param_groups"][0].update(momentum=[None]),
        lambda state: state["scheduler"].update(last_epoch={"a": 1}),
        lambda state: state["averages"]["swa"].update(updates="x"),
        lambda state: state["averages"]["ema"]["tensors"].pop(),
        lambda state: state["metrics"].__setitem__(0, "x"),
        lambda state: state["metrics"][0].update({"target/top1": None}),
        lambda state: state.update(details={"classes": ["a"], "images": {"target": {"confusion": "x"}}}),
        lambda state: state["processes"][0]["random"]["numpy"].update(has_gauss=10**18),
        lambda state: state["processes"][0]["algorithm"].update(p_cutoff=torch.zeros(3)),
        lambda state: state["processes"][0].update(hooks={"MaskingHook": {"after_train_step": 3}}),
        lambda state: state["processes"][0].update(random="dice"),
        lambda state: state.update(processes="many"),
        lambda state: state["processes"].clear(),
        lambda state: state.pop("scheduler"),
        lambda state: state.update(best=7),
    ],
)
def test_an_incompatible_checkpoint_is_set_aside_and_the_previous_one_used(
    tinier: Tiny, stop_after: Callable[[Settings, int], None], change: Callable[[dict[str, Any]], object]
) -> None:
    settings = tinier(num_train_iter=7, num_eval_iter=2, average="both")
    folder = run_path(settings)
    stop_after(settings, 6)
    state = checkpoint.load(folder / "checkpoint_00000006.pt")
    change(state)
    torch.save(state, folder / "checkpoint_00000006.pt")
    with pytest.warns(UserWarning, match=r"00000006.pt: .* using the previous one"):
        training.run(settings)
    assert "resuming after iteration 4" in (folder / "log.txt").read_text()
    assert (folder / "checkpoint_00000006.damaged").exists()


def test_a_compressed_checkpoint_is_not_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint_00000004.pt"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", bytes(10_000_000))
    with pytest.raises(checkpoint.Damaged, match="its members are compressed or overlap"):
        checkpoint.load(path)
