"""A run on disk: ``<save_dir>/<dataset>/<labels>lpc/<method>/<target>/seed<k>/``.

config.yaml         the resolved settings
identity.json       digests of the images and files that these settings name
environment.json    versions, device, precision, git revision
extensions/         copies of the files that were passed with --extend
split.json          which images are labelled, unlabelled and held out
metrics.jsonl       one line per evaluation
details.json        confusion counts, calibration and pseudo labels at the last evaluation
result.json         the result; the run is finished once this file exists
log.txt             the log
checkpoint_*.pt     checkpoints to resume from
lock.json           the process that is currently training the run
job.json, state.json, console.txt     written by a sweep: the plan, its progress, and the output of its process
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from semilearn_ext import documents, files
from semilearn_ext.errors import UserError
from semilearn_ext.runs.details_file import check_details
from semilearn_ext.runs.file_names import (
    CHECKPOINT_PATTERN,
    CONFIG_FILE,
    CONSOLE_FILE,
    DETAILS_FILE,
    ENVIRONMENT_FILE,
    EXTENSIONS_FOLDER,
    IDENTITY_FILE,
    JOB_FILE,
    LOG_FILE,
    METRICS_FILE,
    RESULT_FILE,
    SPLIT_FILE,
    STATE_FILE,
)
from semilearn_ext.runs.record_file import (
    OWN_CHECKSUM,
    changed,
    own_checksum,
    parse_object,
    read_bytes,
    read_json,
    sha256,
    with_own_checksum,
)
from semilearn_ext.runs.result import FORMAT
from semilearn_ext.settings import Settings
from semilearn_ext.settings.load import Raw, read_record, resolve

_BEFORE_TRAINING = (CONFIG_FILE, IDENTITY_FILE, ENVIRONMENT_FILE, SPLIT_FILE)


class RunName(NamedTuple):
    """The name of a run. In its path, every field is a folder."""

    dataset: str
    labels: int
    method: str
    target: str
    seed: int

    @property
    def path(self) -> Path:
        return Path(self.dataset, f"{self.labels}lpc", self.method, self.target, f"seed{self.seed}")

    @classmethod
    def from_path(cls, path: Path) -> RunName | None:
        """The name of the run in ``path``, or None if the path does not have this form."""
        parts = Path(os.path.abspath(path)).parts[-5:]
        if len(parts) < 5:
            return None
        dataset, labels, method, target, seed = parts
        count, number = re.fullmatch(r"(\d+)lpc", labels), re.fullmatch(r"seed(\d+)", seed)
        return cls(dataset, int(count[1]), method, target, int(number[1])) if count and number else None


def run_path(settings: Settings) -> Path:
    name = RunName(settings.dataset, settings.labels_per_class, settings.method, settings.target_domain, settings.seed)
    return Path(settings.save_dir).expanduser() / name.path


class OtherFormat(UserError):
    """A result of another format version, or of another program."""


@dataclass(frozen=True)
class RunFolder:
    """Reads and writes the files of one run, and owns their names.

    A file is written completely or not at all.
    """

    path: Path

    @property
    def config_file(self) -> Path:
        return self.path / CONFIG_FILE

    @property
    def identity_file(self) -> Path:
        return self.path / IDENTITY_FILE

    @property
    def environment_file(self) -> Path:
        return self.path / ENVIRONMENT_FILE

    @property
    def split_file(self) -> Path:
        return self.path / SPLIT_FILE

    @property
    def metrics_file(self) -> Path:
        return self.path / METRICS_FILE

    @property
    def details_file(self) -> Path:
        return self.path / DETAILS_FILE

    @property
    def result_file(self) -> Path:
        return self.path / RESULT_FILE

    @property
    def log_file(self) -> Path:
        return self.path / LOG_FILE

    @property
    def job_file(self) -> Path:
        return self.path / JOB_FILE

    @property
    def state_file(self) -> Path:
        return self.path / STATE_FILE

    @property
    def console_file(self) -> Path:
        return self.path / CONSOLE_FILE

    @property
    def extensions_folder(self) -> Path:
        return self.path / EXTENSIONS_FOLDER

    def checkpoint_file(self, iteration: int) -> Path:
        return self.path / CHECKPOINT_PATTERN.replace("*", f"{iteration:08d}")

    def checkpoint_files(self) -> list[Path]:
        """All checkpoints, oldest first; their names contain the zero-padded iteration."""
        return sorted(self.path.glob(CHECKPOINT_PATTERN))

    def read_identity(self) -> dict[str, Any]:
        """Digests of the images and files that the run uses; empty before the run has started."""
        return read_json(self.identity_file) if self.identity_file.exists() else {}

    def extension_copies(self) -> tuple[str, ...]:
        """Paths of the copies of the files that were passed with ``--extend``."""
        return tuple(str(path) for path in sorted(self.extensions_folder.glob("*")))

    def read_config(self) -> dict[str, Any]:
        """The settings as they were written, without resolving them."""
        return {name: entry.value for name, entry in read_record(self.config_file).items()}

    def read_settings(self) -> Settings:
        """The settings of the run.

        Its extensions are loaded from the copies. That requires ``--trust``, unless the user has passed files with the
        same content.
        """
        raw = read_record(self.config_file)
        if "extend" in raw and raw["extend"].value:
            copies = self.extension_copies()
            if not copies:
                raise UserError(f"{self.config_file}: extend: the copies in {EXTENSIONS_FOLDER} are missing")
            raw["extend"] = Raw(list(copies), str(self.config_file))
        return resolve(raw)

    @property
    def is_finished(self) -> bool:
        return self.result_file.exists()

    def read_result(self) -> dict[str, Any]:
        """The content of ``result.json``. Raises a UserError if a single byte of the file has changed."""
        content = read_bytes(self.result_file)
        result = parse_object(content, self.result_file)
        if result.get("format") != FORMAT:
            raise OtherFormat(
                f"{self.result_file}: not a result of format {FORMAT}; train the run again with --overwrite"
            )
        # Both fields are always written together, so damage to the name of one of them is detected as well.
        if {OWN_CHECKSUM, "files_sha256"} & result.keys():
            own = str(result.pop(OWN_CHECKSUM, ""))
            if own != own_checksum(content, own):
                raise changed(self.result_file)
        return result

    def write_result(self, result: dict[str, Any]) -> None:
        """Write ``result``. If it contains the checksums of the other files, add a checksum of this file."""
        files.write_json(self.result_file, with_own_checksum(result) if "files_sha256" in result else result)

    def file_hashes(self) -> dict[str, str]:
        """SHA-256 of every file that is written before training and not changed afterwards, for ``result.json``."""
        copies = [f"{EXTENSIONS_FOLDER}/{Path(copy).name}" for copy in self.extension_copies()]
        names = [name for name in (*_BEFORE_TRAINING, *copies) if os.path.lexists(self.path / name)]
        return {name: sha256(self.path / name) for name in names}

    def read_checked_result(self) -> dict[str, Any]:
        """The result. Raises a UserError if a file that it has a checksum of has changed."""
        result = self.read_result()
        recorded = result.get("files_sha256")
        if recorded is not None and recorded != (hashes := self.file_hashes()):
            names = [*_BEFORE_TRAINING, *sorted(hashes)]
            known = recorded if isinstance(recorded, dict) else {}
            raise changed(self.path / next((n for n in names if known.get(n) != hashes.get(n)), EXTENSIONS_FOLDER))
        return result

    def check_evaluations(self, result: Mapping[str, Any]) -> None:
        """Raise a UserError if the evaluations or their details do not match the checksums in the result."""
        for file, name in ((self.metrics_file, "metrics_sha256"), (self.details_file, "details_sha256")):
            if result.get(name) and (not file.is_file() or sha256(file) != result[name]):
                raise _mismatch(file)

    def read_details(self) -> dict[str, Any]:
        """The content of ``details.json``. Raises a UserError if it does not match the checksum in the result."""
        if not self.details_file.is_file():
            raise UserError(f"{self.path}: the run did not record {DETAILS_FILE}; train it again with --overwrite")
        content = read_bytes(self.details_file)
        if hashlib.sha256(content).hexdigest() != self.read_result().get("details_sha256"):
            raise _mismatch(self.details_file)
        details = parse_object(content, self.details_file)
        try:
            check_details(details, str(self.details_file))
        except ValueError as error:
            raise UserError(f"{error}; train the run again with --overwrite") from None
        return details

    def write_details(self, details: dict[str, Any]) -> None:
        files.write_text(self.details_file, json.dumps(details, separators=(",", ":")) + "\n")

    def details_hash(self) -> str:
        """SHA-256 of ``details.json``, for ``result.json``."""
        return sha256(self.details_file)

    def read_split(self) -> dict[str, Any]:
        return read_json(self.split_file)

    def write_split(self, split: dict[str, Any]) -> None:
        files.write_json(self.split_file, split)

    def read_environment(self) -> dict[str, Any]:
        return read_json(self.environment_file)

    def write_environment(self, environment: dict[str, Any]) -> None:
        files.write_json(self.environment_file, environment)

    def read_metrics(self) -> list[dict[str, Any]]:
        """The evaluations in ``metrics.jsonl``; an incompletely written last line is left out.

        The file of a finished run must match the checksum in its result.
        """
        recorded = self.read_result().get("metrics_sha256") if self.is_finished else None
        exists = self.metrics_file.is_file() if recorded else os.path.lexists(self.metrics_file)
        content = read_bytes(self.metrics_file) if exists else b""
        if recorded and hashlib.sha256(content).hexdigest() != recorded:
            raise _mismatch(self.metrics_file)
        records, where = [], str(self.metrics_file)
        for line in content.decode("utf-8", "replace").splitlines():
            try:
                record = documents.parse_json(line, where)
            except UserError:
                break
            if not isinstance(record, dict):
                break
            records.append(record)
        return records

    def append_metrics(self, record: dict[str, Any]) -> None:
        with files.open_to_append(self.metrics_file) as file:
            file.write(f"{json.dumps(record)}\n".encode())
            file.flush()
            os.fsync(file.fileno())

    def write_metrics(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Replace ``metrics.jsonl`` by these evaluations."""
        files.write_text(self.metrics_file, "".join(json.dumps(record) + "\n" for record in records))

    def metrics_hash(self) -> str:
        """SHA-256 of ``metrics.jsonl``, for ``result.json``."""
        return sha256(self.metrics_file)


def _mismatch(file: Path) -> UserError:
    return UserError(f"{file}: does not match the result of the run; train the run again with --overwrite")
