"""The folder of a run is never overwritten by another experiment, and its files are complete or do not exist."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from semilearn_ext import registry, training
from semilearn_ext.errors import UserError
from semilearn_ext.runs.find import find_runs
from semilearn_ext.runs.folder import RunFolder, RunName, run_path
from semilearn_ext.runs.ownership import claim
from semilearn_ext.runs.result import accuracies, summarise
from semilearn_ext.settings import Settings, config_hash, extensions

Tiny = Callable[..., Settings]


def test_the_path_identifies_the_run(tiny: Tiny) -> None:
    path = run_path(tiny(algorithm="freematch", target_domain="street", seed=3))
    assert path.parts[-5:] == ("digits_mini", "5lpc", "freematch", "street", "seed3")


def test_a_variant_has_its_own_folder_and_name(tiny: Tiny) -> None:
    settings = tiny(p_cutoff=0.5, variant="low")
    assert run_path(settings).parts[-3] == "fixmatch--low"
    result = summarise(settings, records((0.5, 0.4)), "reduced")
    assert (result["base"], result["plugins"], result["variant"]) == ("fixmatch", [], "low")
    assert result["title"] == "FixMatch (low)"


def test_the_same_experiment_can_continue(tiny: Tiny) -> None:
    folder = RunFolder(run_path(tiny()))
    claim(folder, tiny())
    folder.append_metrics({"iteration": 1})
    claim(folder, tiny(num_workers=3))
    assert folder.read_metrics() == [{"iteration": 1}]


def test_another_experiment_is_refused_and_no_file_is_lost(tiny: Tiny) -> None:
    folder = RunFolder(run_path(tiny()))
    claim(folder, tiny())
    folder.append_metrics({"iteration": 1})
    with pytest.raises(UserError, match=rf"different config .*{config_hash(tiny())}.*lr \(0.05 and 0.5\).*--overwrite"):
        claim(folder, tiny(lr=0.5))
    assert folder.read_metrics() == [{"iteration": 1}]


def test_a_run_that_ended_before_its_first_step_leaves_no_claim(tiny: Tiny) -> None:
    folder = RunFolder(run_path(tiny()))
    claim(folder, tiny())
    folder.write_metrics([])
    folder.log_file.write_text("out of memory")
    claim(folder, tiny(lr=0.5))
    assert "lr: 0.5" in folder.config_file.read_text()
    assert not folder.log_file.exists()
    folder.checkpoint_file(1).write_text("")
    with pytest.raises(UserError, match="different config"):
        claim(folder, tiny(lr=0.7))


def test_a_run_that_was_killed_while_claiming_its_folder_can_start(tiny: Tiny) -> None:
    folder = RunFolder(run_path(tiny()))
    claim(folder, tiny())
    folder.config_file.unlink()
    claim(folder, tiny())
    assert folder.config_file.exists()


def test_overwrite_starts_over(tiny: Tiny) -> None:
    folder = RunFolder(run_path(tiny()))
    claim(folder, tiny())
    folder.append_metrics({"iteration": 1})
    claim(folder, tiny(lr=0.5, overwrite=True))
    assert folder.read_metrics() == []


def test_a_folder_with_other_files_is_refused(tiny: Tiny) -> None:
    folder = RunFolder(run_path(tiny()))
    folder.path.mkdir(parents=True)
    (folder.path / "thesis.tex").write_text("dear")
    with pytest.raises(UserError, match="files that do not belong to a run"):
        claim(folder, tiny())
    assert (folder.path / "thesis.tex").read_text() == "dear"


def test_files_of_sweeps_and_locks_are_ignored_and_kept(tiny: Tiny) -> None:
    folder = RunFolder(run_path(tiny()))
    folder.path.mkdir(parents=True)
    for name in ("job.json", "state.json", "console.txt", "lock.json", ".config.yaml.123.tmp"):
        (folder.path / name).write_text("{}")
        os.utime(folder.path / name, (0, 0))
    claim(folder, tiny())
    (folder.path / "tensorboard").mkdir()
    claim(folder, tiny(lr=0.5, overwrite=True))
    remaining = {path.name for path in folder.path.iterdir()}
    assert remaining == {"job.json", "state.json", "console.txt", "lock.json", "config.yaml", "identity.json"}


def test_a_run_that_another_process_trains_is_never_overwritten(tiny: Tiny) -> None:
    folder = RunFolder(run_path(tiny()))
    claim(folder, tiny())
    folder.append_metrics({"iteration": 1})
    code = "import sys; from pathlib import Path; from semilearn_ext.runs.lock import lock\n"
    code += "with lock(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", code, str(folder.path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        for settings in (tiny(), tiny(overwrite=True)):
            with pytest.raises(UserError, match=f"is being trained by process {other.pid} on "):
                training.run(settings)
        assert folder.read_metrics() == [{"iteration": 1}]
        other.communicate("")
    assert not (folder.path / "lock.json").exists()


def test_an_incomplete_line_is_ignored(tiny: Tiny) -> None:
    folder = RunFolder(run_path(tiny()))
    claim(folder, tiny())
    folder.write_metrics([{"iteration": 2}, {"iteration": 4}])
    with folder.metrics_file.open("a") as file:
        file.write('{"iteration": 6, "tar')
    assert [record["iteration"] for record in folder.read_metrics()] == [2, 4]


def records(*pairs: tuple[float, float]) -> list[dict[str, float]]:
    return [
        {"iteration": k + 1, "source_val/top1": source, "target/top1": target, "seconds": 1.0}
        for k, (source, target) in enumerate(pairs)
    ]


def test_accuracies_of_the_three_protocols() -> None:
    metrics = records((0.5, 0.90), (0.8, 0.60), (0.8, 0.65), (0.7, 0.70))
    assert accuracies(metrics) == {"last": 0.70, "source_val": 0.65, "oracle": 0.90}


def test_averaged_weights_are_further_protocols() -> None:
    metrics = records((0.5, 0.90), (0.8, 0.60))
    metrics[0]["target/top1.ema"] = 0.99  # only the last evaluation counts
    metrics[1] |= {"target/top1.ema": 0.75, "target/top1.swa": 0.5, "source_val/top1.ema": 0.25}
    assert accuracies(metrics) == {"last": 0.60, "source_val": 0.60, "oracle": 0.90, "ema": 0.75, "swa": 0.5}


def test_the_fields_of_a_result(tiny: Tiny) -> None:
    result = summarise(tiny(seed=3, algorithm="fixmatch_upcsc"), records((0.5, 0.4)), "reduced")
    assert list(result) == [
        *("format", "dataset", "dataset_name", "images_sha256", "labels_per_class", "base", "plugins", "variant"),
        *("step", "title", "options"),
        *("target_domain", "seed", "iterations", "top1", "metrics", "seconds", "config_hash", "version", "scale"),
    ]
    assert (result["format"], result["seed"], result["iterations"], result["scale"]) == (2, 3, 1, "reduced")
    assert result["options"]["upc_weight"] == 1.0
    assert (result["base"], result["plugins"], result["title"]) == ("fixmatch", ["upcsc"], "FixMatch + UPCSC")


def test_every_number_of_the_last_evaluation_is_in_the_result(tiny: Tiny) -> None:
    last = {**records((0.5, 0.4))[0], "train/upc": 3.5, "unlabeled/keep_rate": None, "note": "text"}
    result = summarise(tiny(), [last], "reduced")
    assert result["metrics"] == {
        "iteration": 1,
        "source_val/top1": 0.5,
        "target/top1": 0.4,
        "seconds": 1.0,
        "train/upc": 3.5,
    }


def test_a_result_of_another_format_is_refused(tiny: Tiny) -> None:
    folder = RunFolder(run_path(tiny()))
    folder.write_result({**summarise(tiny(), records((0.5, 0.4)), "reduced"), "format": 1})
    with pytest.raises(
        UserError, match=r"result\.json: not a result of format 2; train the run again with --overwrite"
    ):
        folder.read_result()


def test_the_name_of_a_run_is_read_from_its_path() -> None:
    name = RunName("pacs", 10, "fixmatch_upcsc--top1_proxy", "photo", 3)
    assert RunName.from_path(Path("somewhere") / name.path) == name
    for other in ("pacs/10/fixmatch/photo/seed3", "pacs/10lpc/fixmatch/photo/3", "10lpc/seed3"):
        assert RunName.from_path(Path("/") / other) is None


def test_all_runs_are_found_each_once_and_links_are_followed(tmp_path: Path) -> None:
    for path, name in (("b/two", "job.json"), ("a/one", "config.yaml"), ("c/three", "result.json"), ("d", "other")):
        (tmp_path / "runs" / path).mkdir(parents=True)
        (tmp_path / "runs" / path / name).touch()
    (tmp_path / "runs" / "a" / "one" / "tensorboard").mkdir()
    (tmp_path / "runs" / "a" / "one" / "tensorboard" / "config.yaml").touch()
    (tmp_path / "link").symlink_to(tmp_path / "runs")
    (tmp_path / "runs" / "d" / "circle").symlink_to(tmp_path)
    folders = find_runs([tmp_path / "runs", tmp_path / "link", tmp_path / "runs" / "a" / "one"])
    assert [folder.path.name for folder in folders] == ["one", "two", "three"]
    with pytest.raises(UserError, match="nowhere: no such folder"):
        list(find_runs([tmp_path / "nowhere"]))


def test_a_run_is_found_in_its_own_place_and_not_by_a_link_that_comes_first(tmp_path: Path) -> None:
    (tmp_path / "seed1").mkdir()
    (tmp_path / "seed1" / "result.json").touch()
    (tmp_path / "seed0").symlink_to("seed1")
    assert [folder.path.name for folder in find_runs([tmp_path])] == ["seed1"]


def test_links_out_of_the_given_folders_are_named_and_not_followed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in ("runs/a", "runs2/private"):
        (tmp_path / path).mkdir(parents=True)
        (tmp_path / path / "result.json").touch()
    (tmp_path / "runs" / "link").symlink_to(tmp_path / "runs2")
    assert [folder.path.name for folder in find_runs([tmp_path / "runs"])] == ["a"]
    errors = capsys.readouterr().err
    assert (
        f"{tmp_path / 'runs' / 'link'}: not followed, because it links to a folder outside {tmp_path / 'runs'}"
        in errors
    )
    assert len(errors.splitlines()) == 1
    folders = find_runs([tmp_path / "runs", tmp_path / "runs2"])
    assert [folder.path.name for folder in folders] == ["a", "private"]
    assert capsys.readouterr().err == ""


@pytest.fixture
def extension(tmp_path: Path) -> Iterator[Path]:
    """A file for --extend with a dataset called ``lunar``."""
    path = tmp_path / "mine.py"
    write_extension(path, "lunar")
    yield path
    for file in (path, path.with_name("moved.py"), *(tmp_path / "runs").rglob("extensions/*")):
        registry.remove(str(file.resolve()))


def write_extension(path: Path, name: str) -> None:
    path.write_text(
        "from semilearn_ext.extend import DatasetSpec, register\n"
        f"@register(DatasetSpec(name={name!r}, title='Moon', about='test', domains=('near', 'far')))\n"
        "def load(spec, settings): ...\n"
    )


def test_an_edited_extension_is_another_experiment(tiny: Tiny, extension: Path) -> None:
    folder = RunFolder(run_path(tiny(extend=str(extension))))
    claim(folder, tiny(extend=str(extension)))
    registry.remove(str(extension.resolve()))
    extension = extension.rename(extension.with_name("moved.py"))
    claim(folder, tiny(extend=str(extension)))
    claim(folder, tiny(extend=str(extension)))
    folder.append_metrics({"iteration": 1})
    extension.write_text(extension.read_text() + "# edited\n")
    with pytest.raises(
        UserError, match=r"contains a run with a different config .*; they differ in the content of the extensions; "
    ):
        claim(folder, tiny(extend=str(extension)))


def test_a_run_is_read_with_the_extension_it_was_trained_with(tiny: Tiny, extension: Path) -> None:
    folder = RunFolder(run_path(tiny(extend=str(extension))))
    claim(folder, tiny(extend=str(extension)))
    copy = folder.path / "extensions" / "extension_00.py"
    assert folder.read_settings().extend == (str(copy),)
    assert registry.DATASETS.origins["lunar"] == str(extension.resolve())
    registry.remove(str(extension.resolve()))
    extensions._loaded.clear()
    with pytest.raises(
        UserError, match=r"config\.yaml: extend: refers to the Python file .*extension_00\.py, .*--trust"
    ):
        folder.read_settings()
    extensions.trust_files()
    assert folder.read_settings().extend == (str(copy),)
    assert registry.DATASETS.get("lunar", "test").title == "Moon"
    assert registry.DATASETS.origins["lunar"] == str(copy.resolve())
