"""The plan of a run: parameters, learning rates and whether the run is finished."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from semilearn_ext import training
from semilearn_ext.errors import UserError
from semilearn_ext.nets import resnet
from semilearn_ext.plan import describe_plan
from semilearn_ext.runs.folder import run_path
from semilearn_ext.settings import Settings


@pytest.mark.parametrize(
    ("algorithm", "expected"),
    [
        ("fixmatch_upcsc", f"plugin         {2 * 256 * 256 + 256:,} parameters, learning rate 0.0005"),
        ("stylematch", f"classifier     {2 * 10 * 256:,} parameters, learning rate 0.05"),
        ("fixmatch", f"classifier     {10 * 256 + 10:,} parameters, learning rate 0.05"),
    ],
)
def test_the_plan_counts_trained_parameters(
    algorithm: str, expected: str, tiny: Callable[..., Settings], capsys: pytest.CaptureFixture[str]
) -> None:
    plan = describe_plan(tiny(algorithm=algorithm))
    assert expected in plan
    assert "hard_label true, T 0.5" in plan
    assert capsys.readouterr().out == ""


def test_only_the_same_experiment_is_finished(tiny: Callable[..., Settings]) -> None:
    settings = tiny(num_train_iter=2, algorithm="supervised")
    assert "; will be trained: " in describe_plan(settings)
    training.run(settings)
    assert "; already finished: " in describe_plan(settings)
    other = describe_plan(tiny(num_train_iter=2, algorithm="supervised", lr=0.1))
    assert "; already finished" not in other
    assert "; cannot be run, because the folder contains a run with a different config" in other
    assert "lr (0.05 and 0.1)" in other
    assert "; will be trained: " in describe_plan(
        tiny(num_train_iter=2, algorithm="supervised", lr=0.1, overwrite=True)
    )
    (run_path(settings) / "result.json").unlink()
    assert "; will be resumed: " in describe_plan(settings)


def test_no_weights_are_downloaded_for_a_plan(
    tiny: Callable[..., Settings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resnet, "imagenet_weights", lambda path: pytest.fail("asked for weights"))
    plan = describe_plan(tiny(net="resnet18", pretrained=True))
    assert "network     resnet18, pretrained" in plan
    assert "backbone       11,176,512 parameters" in plan


def test_a_warm_up_that_takes_the_whole_run_is_refused(tiny: Callable[..., Settings]) -> None:
    assert "learning rate" in describe_plan(tiny(num_train_iter=4, num_warmup_iter=3))
    with pytest.raises(UserError, match=r"num_warmup_iter: the warm-up of 4 steps takes the whole run of 4; use a"):
        describe_plan(tiny(num_train_iter=4, num_warmup_iter=4))


def test_a_folder_that_cannot_be_created_is_part_of_the_plan(tiny: Callable[..., Settings], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    plan = describe_plan(tiny(save_dir=str(tmp_path / "file" / "runs")))
    assert "cannot be run, because" in plan
    assert "file: is a file, and runs need a folder" in plan
