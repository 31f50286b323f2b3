"""The documentation is correct: its tables, commands, links, examples, and the files and tests that it names."""

from __future__ import annotations

import ast
import contextlib
import glob
import importlib
import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from semilearn_ext import listing, registry
from semilearn_ext.__main__ import main, parser
from semilearn_ext.commands import sweep as sweep_command
from semilearn_ext.commands import train as train_command
from semilearn_ext.errors import UserError
from semilearn_ext.report.collect import collect
from semilearn_ext.runs.sweep import experiments
from semilearn_ext.settings import Settings
from tests.report.write_run import domains, write_run

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "results" / "README.md", *sorted(ROOT.glob("docs/*.md"))]
IDS = [path.relative_to(ROOT).as_posix() for path in PAGES]
EXTENDING = (ROOT / "docs" / "extending.md").read_text()
RELEASED = (ROOT / "docs" / "released_code.md").read_text()

every_page = pytest.mark.parametrize("page", PAGES, ids=IDS)


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def without_blocks(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)


def inline_code(text: str) -> list[str]:
    return [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", without_blocks(text))]


# --- tables -----------------------------------------------------------------------------------------------------


@every_page
def test_generated_tables_are_current(page: Path) -> None:
    """If not: ssdg list --markdown README.md docs/methods.md docs/data.md"""
    text = page.read_text()
    assert listing.update(text, page.name) == text


def test_every_table_is_on_a_page() -> None:
    text = "".join(page.read_text() for page in PAGES)
    assert set(re.findall(r"<!-- list: (\w+) -->\n\|", text)) == set(listing.TABLES)


def test_the_readme_names_every_base_algorithm() -> None:
    names = (ROOT / "README.md").read_text().split("<!-- list: names -->")[1].split("<!-- end of list -->")[0]
    assert max(len(line) for line in names.splitlines()) <= 120
    available = {spec.name for spec in registry.ALGORITHMS if not spec.unavailable}
    assert set(re.findall(r"`(\w+)`", names)) == available


def test_tables_show_the_content_of_the_specs(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- list: plugins -->\nold\n<!-- end of list -->\nafter\n")
    main(["list", "--markdown", str(page)])
    lines = page.read_text().splitlines()
    assert lines[0] == "before"
    assert lines[-1] == "after"
    assert "old" not in lines
    assert len([line for line in lines if line.startswith("| `<base>_")]) == len(registry.PLUGINS.names())
    upcsc = registry.PLUGINS.get("upcsc", "test")
    assert f"| `<base>_upcsc` | [{upcsc.title}]({upcsc.paper}) | {upcsc.about} |" in lines
    page.write_text("<!-- list: plugin -->\n<!-- end of list -->\n")
    with pytest.raises(UserError, match="unknown list 'plugin'; did you mean 'plugins'"):
        main(["list", "--markdown", str(page)])
    with pytest.raises(UserError, match="no such file"):
        main(["list", "--markdown", str(tmp_path / "nowhere.md")])


# --- links and names --------------------------------------------------------------------------------------------


def anchors(page: Path) -> set[str]:
    """The anchors that headings get: lower case, spaces to hyphens, punctuation dropped."""
    headings = re.findall(r"^#+ (.+)$", without_blocks(page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@every_page
def test_links_have_existing_targets(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", without_blocks(page.read_text())):
        if re.match(r"[a-z]+:", target):
            assert target.startswith("https://"), target
            continue
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), target


FOLDERS = ("semilearn_ext/", "tests/", "config/", "docs/", "results/")


@every_page
def test_named_files_exist(page: Path) -> None:
    for code in inline_code(page.read_text()):
        if code.startswith(FOLDERS) and not set(code) & set("<>{} "):
            assert glob.glob(str(ROOT / code.partition("::")[0])), code


def named_tests() -> list[str]:
    return sorted({code for code in inline_code(RELEASED) if "::" in code})


def test_the_page_on_the_released_code_names_tests() -> None:
    rows = [line for line in RELEASED.split("## Deviations")[0].splitlines() if line.startswith("| ")]
    facts = [row for row in rows if not row.startswith(("| ---", "| The released code | Here"))]
    assert len(facts) > 25
    assert all("::test_" in row.split(" | ")[-1] for row in facts)


@pytest.mark.parametrize("name", named_tests())
def test_named_tests_exist(name: str) -> None:
    path, _, function = name.partition("::")
    tree = ast.parse((ROOT / "tests" / path).read_text())
    assert function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


# --- commands ---------------------------------------------------------------------------------------------------


class Command(NamedTuple):
    page: str
    text: str

    @property
    def words(self) -> list[str]:
        """The words after ``ssdg``, with file patterns expanded as by a shell in the repository."""
        expanded: list[str] = []
        for word in shlex.split(self.text)[1:]:
            matches = sorted(glob.glob(str(ROOT / word))) if "*" in word else []
            expanded += matches or [word]
        return expanded


def lines_of(block: str) -> list[str]:
    """The commands of a block: continued lines joined, comments and variables dropped."""
    joined = re.sub(r"\\\n\s*", "", block)
    lines = [re.sub(r"\s+# .*$", "", line).strip() for line in joined.splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


def commands() -> Iterator[Command]:
    for page, name in zip(PAGES, IDS, strict=True):
        text = page.read_text()
        lines = [line for block in blocks(text, "sh") for line in lines_of(block)]
        lines += [_called(code) for code in inline_code(text) if re.match(r"(ssdg|python train\.py) \S", code)]
        for line in lines:
            command = re.sub(r"^.*\.venv/bin/ssdg ", "ssdg ", line)
            command = re.sub(r"^(python train\.py|torchrun .*? -m semilearn_ext train) ", "ssdg train ", command)
            if command.startswith("ssdg "):
                yield Command(name, command)


def _called(code: str) -> str:
    """A command in running text; ``--help`` is added if it has no arguments."""
    return f"{code} --help" if re.fullmatch(r"ssdg( [a-z]+){1,2}", code) else code


COMMANDS = sorted(set(commands()))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that the commands of the docs name: extensions, runs, images. Tests only read it."""
    root = tmp_path_factory.mktemp("docs")
    for name, code in examples().items():
        (root / name).write_text(code)
    for seed in range(1, 6):
        for target in domains("digits_mini"):
            for plugins, accuracy in (((), 70), (("upcsc",), 72)):
                fields = {"target_domain": target, "seed": seed, "labels_per_class": 2}
                more = {"unlabeled/keep_rate": 0.5, "train/name": 0.1, "train/total_loss": 0.2}
                write_run(root / "runs", accuracy + seed, plugins=plugins, **fields, config=fields, more=more)
    for domain in ("day", "night", "dusk"):
        (root / "my_images" / domain / "cat").mkdir(parents=True)
    return root


@pytest.fixture
def in_folder(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the folder, which is the working directory of the test."""
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_there_are_commands_of_every_kind() -> None:
    assert {command.words[0] for command in COMMANDS} >= {
        *("train", "sweep", "tables", "analyse", "predict", "data", "list", "bench")
    }
    assert len(COMMANDS) > 50


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: f"{command.page}: {command.text}"[:90])
def test_commands_are_valid(command: Command, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unknown flags, values and names are errors; the settings of trainings and sweeps are resolved completely."""
    monkeypatch.chdir(folder)
    if {"--help", "-h"} & set(command.words):
        with pytest.raises(SystemExit) as stop:
            parser().parse_args(command.words)
        assert stop.value.code == 0
        return
    arguments = parser().parse_args(command.words)
    if command.words[0] == "train":
        assert isinstance(train_command.settings_of(arguments), Settings)
        if arguments.with_base == "true":
            assert train_command.base_settings(arguments).plugins == ()
    elif command.words[0] == "sweep" and arguments.action == "run":
        assert experiments(sweep_command.grid(arguments))


RUN = (
    "list",
    "tables",
    "records runs",
    "sweep status",
    "analyse curves",
    "analyse gains",
    "claims",
    "reproduce pacs --dry_run",
    "data show digits_mini",
    "data prepare digits_dg",
)


def is_cheap(command: Command) -> bool:
    text = " ".join(command.words)
    if "--help" in text or "--style" in text or "--check" in text or "--released" in text:
        return False
    planned = command.words[0] in ("train", "sweep") and "--dry_run" in text and "pacs" not in text
    return planned or text.startswith(RUN)


@pytest.mark.parametrize("command", filter(is_cheap, COMMANDS), ids=lambda command: command.text[:90])
def test_cheap_commands_run(
    command: Command, in_folder: Path, cache_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pages = [word for word in command.words if word.endswith(".md") and (ROOT / word).is_file()]
    for page in pages:
        (in_folder / page).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / page, in_folder / page)
    if command.words[0] == "tables" and pages:  # their tables name the committed records
        shutil.copytree(ROOT / "results", in_folder / "results", dirs_exist_ok=True)
    for record in {word for word in command.words if word.endswith("/records")}:
        if (ROOT / record).is_dir() and command.words[0] != "records":
            shutil.copytree(ROOT / record, in_folder / record, dirs_exist_ok=True)
        else:
            collect([in_folder / "runs"], in_folder / record)
    if command.words[0] == "sweep" and "--dry_run" in command.words:
        shutil.rmtree(in_folder / "runs")
    cached = command.words[0] == "train" or command.words[:2] == ["data", "show"]
    main([*command.words, *(["--cache_dir", str(cache_dir)] if cached else [])])
    assert capsys.readouterr().out


# --- examples ---------------------------------------------------------------------------------------------------


def marked(name: str) -> str:
    """The Python block behind ``<!-- name -->`` in docs/extending.md."""
    return blocks(EXTENDING.split(f"<!-- {name} -->")[1], "python")[0]


def examples() -> dict[str, str]:
    """The extension files of docs/extending.md."""
    return {
        "entropy.py": marked("plugin"),
        "rampmatch.py": marked("algorithm"),
        "vlcs.py": marked("tree"),
        "stripes.py": marked("dataset"),
        "mlp.py": marked("network"),
    }


@every_page
def test_python_blocks_import_existing_names(page: Path) -> None:
    for block in blocks(page.read_text(), "python"):
        # Only these lines: an excerpt may leave something out with "...".
        imports = re.findall(r"^(?:from \S+ )?import .+$", block, re.MULTILINE)
        for node in ast.parse("\n".join(imports)).body:
            if isinstance(node, ast.ImportFrom) and node.module:
                module = importlib.import_module(node.module)
                for alias in node.names:
                    if not hasattr(module, alias.name):
                        importlib.import_module(f"{node.module}.{alias.name}")
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    importlib.import_module(alias.name)


@pytest.mark.parametrize("name", ["methods.md", "design.md"])
def test_self_contained_examples_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for block in blocks((ROOT / "docs" / name).read_text(), "python"):
        exec(compile(block, name, "exec"), {"__name__": "example"})


def run_of(settings: Settings) -> dict[str, Any]:
    from semilearn_ext import training

    return training.run(settings).result


@pytest.mark.parametrize(
    ("file", "values", "title"),
    [
        ("entropy.py", {"algorithm": "fixmatch_entropy", "entropy_weight": 0.3}, "FixMatch + Entropy"),
        ("entropy.py", {"algorithm": "freematch_upcsc_entropy"}, "FreeMatch + UPCSC + Entropy"),
        ("rampmatch.py", {"algorithm": "rampmatch", "ramp_steps": 10}, "RampMatch"),
        ("rampmatch.py", {"algorithm": "rampmatch_upcsc"}, "RampMatch + UPCSC"),
        ("stripes.py", {"dataset": "stripes", "target_domain": "red", "batch_size": 4}, "FixMatch"),
        ("mlp.py", {"net": "mlp", "algorithm": "fixmatch_upcsc"}, "FixMatch + UPCSC"),
    ],
)
def test_extensions_train(
    file: str, values: dict[str, Any], title: str, in_folder: Path, tiny: Callable[..., Settings]
) -> None:
    """One extension of each kind."""
    settings = tiny(extend=str(in_folder / file), num_train_iter=2, num_eval_iter=2, **values)
    result = run_of(settings)
    assert result["title"] == title
    assert result["iterations"] == 2
    for option in ("entropy_weight", "ramp_steps"):
        assert option not in values or result["options"][option] == values[option]
    if "entropy_weight" in values:
        assert result["metrics"]["train/entropy_weight"] == values["entropy_weight"]


def test_the_ramp_is_linear(in_folder: Path, tiny: Callable[..., Settings]) -> None:
    from semilearn_ext import training
    from semilearn_ext.engine.context import make_context

    values = {"algorithm": "rampmatch", "ramp_steps": 10, "p_cutoff": 0.0, "num_train_iter": 1}
    algorithm = training.build(make_context(tiny(extend=str(in_folder / "rampmatch.py"), **values)))
    algorithm.train()
    logged = algorithm.metrics[-1]
    expected = logged["train/sup_loss"] + 0.1 * logged["train/unsup_loss"]
    assert logged["train/unsup_loss"] > 0
    assert logged["train/total_loss"] == pytest.approx(expected, rel=1e-5)


def test_extensions_are_listed(in_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = {"entropy", "rampmatch", "vlcs", "stripes", "mlp"}
    main(["list"])
    assert not names & {line.split()[0] for line in capsys.readouterr().out.splitlines() if line}
    main(["list", "--extend", ",".join(examples())])
    assert names <= {line.split()[0] for line in capsys.readouterr().out.splitlines() if line}


def test_the_spec_of_a_packaged_plugin_equals_that_of_the_extension(in_folder: Path) -> None:
    """The two specs of the entropy plug-in in docs/extending.md differ only in the implementation."""
    shipped: dict[str, Any] = {}
    exec(blocks(EXTENDING.split("## Making it part")[1], "python")[0], shipped)
    with contextlib.redirect_stdout(None):
        main(["list", "--extend", "entropy.py"])
    extension = registry.PLUGINS.get("entropy", "test")
    for field in ("name", "title", "about", "options"):
        assert getattr(shipped["ENTROPY"], field) == getattr(extension, field)
