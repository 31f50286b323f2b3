"""A run on disk: ``<save_dir>/<dataset>/<labels>lpc/<method>/<target>/seed<k>/``.

config.yaml         the resolved settings
environment.json    versions, device, git revision
split.json          which images were labelled
metrics.jsonl       one line an evaluation
result.json         the outcome; its presence means that the run is finished
log.txt             everything that was said
checkpoint_*.pt     where to go on from
lock.json           the process that trains it, while it does
job.json, state.json, console.txt     a sweep's: what it asked for, how that went, what the process said
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from semilearn_ext import files
from semilearn_ext.errors import UserError
from semilearn_ext.runs import lock
from semilearn_ext.settings import Settings, config_hash, dump, read_resolved

CONFIG_FILE = "config.yaml"
JOB_FILE, STATE_FILE, CONSOLE_FILE = "job.json", "state.json", "console.txt"
AROUND_A_RUN = {lock.NAME, JOB_FILE, STATE_FILE, CONSOLE_FILE}
"""What may lie in a run's folder before the run itself has written anything, and stays when it starts over."""


def run_path(settings: Settings) -> Path:
    return (
        Path(settings.save_dir).expanduser()
        / settings.dataset
        / f"{settings.labels_per_class}lpc"
        / settings.method
        / settings.target_domain
        / f"seed{settings.seed}"
    )


@dataclass(frozen=True)
class RunFolder:
    """Reads and writes one run's files. Every file is written whole or not at all."""

    path: Path

    @property
    def config_file(self) -> Path:
        return self.path / CONFIG_FILE

    @property
    def metrics_file(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def result_file(self) -> Path:
        return self.path / "result.json"

    def check(self, settings: Settings) -> None:
        """Refuse a folder that is being trained by somebody else, or that holds anything but this very experiment and
        may not be overwritten."""
        holder = lock.holder_of(self.path)
        if holder is not None and not holder.is_this_process:
            raise lock.Held(self.path, holder)
        if not settings.overwrite:
            self.check_content(settings)

    def check_content(self, settings: Settings) -> None:
        """Refuse a folder that holds anything but this very experiment."""
        reason = self._foreign(settings) if self._content() else ""
        if reason:
            raise UserError(f"{self.path}: {reason}; choose another --save_dir, or --overwrite to throw it away")

    def claim(self, settings: Settings) -> None:
        """Make the folder this run's own: new, the same experiment's, or emptied when ``overwrite`` says so."""
        self.check(settings)
        if settings.overwrite:
            for path in self._content():
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        files.remove_leftovers(self.path)
        files.write_text(self.config_file, dump(settings))

    def _content(self) -> list[Path]:
        """What lies here but for what sweeps, locks and killed processes leave around a run."""
        if not self.path.exists():
            return []
        return [path for path in self.path.iterdir() if path.name not in AROUND_A_RUN and path.suffix != ".tmp"]

    def _foreign(self, settings: Settings) -> str:
        """Why what lies here is not of the same experiment, or an empty string."""
        if not self.config_file.exists():
            return "holds files that are not a run's"
        try:
            there = config_hash(read_resolved(self.config_file))
        except UserError as error:
            return f"holds a config that cannot be read ({error})"
        ours = config_hash(settings)
        return "" if there == ours else f"holds a run with another config ({there}, this one is {ours})"

    @property
    def is_finished(self) -> bool:
        return self.result_file.exists()

    def read_result(self) -> dict[str, Any]:
        try:
            result = json.loads(self.result_file.read_text())
        except (OSError, ValueError) as error:
            raise UserError(f"{self.result_file}: cannot be read: {error}") from None
        if not isinstance(result, dict):
            raise UserError(f"{self.result_file}: is not a run's result")
        return result

    def read_metrics(self) -> list[dict[str, Any]]:
        """All whole lines of ``metrics.jsonl``; a line cut short by a kill is left out."""
        if not self.metrics_file.exists():
            return []
        records = []
        for line in self.metrics_file.read_text().splitlines():
            try:
                records.append(json.loads(line))
            except ValueError:
                break
        return records

    def append_metrics(self, record: dict[str, Any]) -> None:
        with self.metrics_file.open("a") as file:
            file.write(json.dumps(record) + "\n")

    def rewind_metrics(self, iteration: int) -> None:
        """Forget evaluations after ``iteration``: they will be made again."""
        kept = [record for record in self.read_metrics() if record["iteration"] <= iteration]
        files.write_text(self.metrics_file, "".join(json.dumps(record) + "\n" for record in kept))

    def write_json(self, name: str, value: Any) -> None:
        files.write_json(self.path / name, value)
