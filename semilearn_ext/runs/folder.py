"""A run on disk: ``<save_dir>/<dataset>/<labels>lpc/<method>/<target>/seed<k>/``.

config.yaml         the resolved settings
identity.json       digests of the images and files that these settings name
environment.json    versions, device, precision, git revision
extensions/         copies of the files that were passed with --extend
split.json          which images are labelled, unlabelled and held out
metrics.jsonl       one line per evaluation
details.json        confusion counts, calibration and pseudo labels at the last evaluation
result.json         the outcome; the run is finished when this file exists
log.txt             the log
checkpoint_*.pt     checkpoints to resume from
lock.json           the process that is training the run, while it does
job.json, state.json, console.txt     written by a sweep: what to run, its progress, the output of its process
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from semilearn_ext import documents, files
from semilearn_ext.errors import UserError, printable
from semilearn_ext.runs import lock
from semilearn_ext.runs.file_names import (
    CHECKPOINT_PATTERN,
    CONFIG_FILE,
    CONSOLE_FILE,
    DETAILS_FILE,
    ENVIRONMENT_FILE,
    EXTENSIONS_FOLDER,
    IDENTITY_FILE,
    JOB_FILE,
    LOCK_FILE,
    LOG_FILE,
    METRICS_FILE,
    RESULT_FILE,
    SPLIT_FILE,
    STATE_FILE,
    TENSORBOARD_FOLDER,
)
from semilearn_ext.runs.result import FORMAT
from semilearn_ext.settings import Settings, dump
from semilearn_ext.settings.content import dataset_name, split_path
from semilearn_ext.settings.fingerprint import content, differences, hash_of, identity
from semilearn_ext.settings.load import Raw, read_record, resolve

NOT_OF_THE_RUN = {LOCK_FILE, JOB_FILE, STATE_FILE, CONSOLE_FILE}
"""Files that may exist before the run has written anything, and that stay when it starts over."""
WRITTEN_BEFORE_TRAINING = {
    *(CONFIG_FILE, IDENTITY_FILE, ENVIRONMENT_FILE, SPLIT_FILE, METRICS_FILE, LOG_FILE),
    *(EXTENSIONS_FOLDER, TENSORBOARD_FOLDER),
}
"""What a run may leave behind that failed before its first step; a run that has got further has other files too."""
WRITTEN_BEFORE_THE_CONFIG = {IDENTITY_FILE, EXTENSIONS_FOLDER}
LARGEST_RECORD = 256 * documents.MEGABYTE
"""No record is larger: the split of a million images has about a third of this."""
_BEFORE_TRAINING = (CONFIG_FILE, IDENTITY_FILE, ENVIRONMENT_FILE, SPLIT_FILE)
_OWN_CHECKSUM, _BLANK = "sha256", "0" * 64
"""The last field of ``result.json``, and what stands there while the file is hashed."""
MARKERS = {CONFIG_FILE, JOB_FILE, RESULT_FILE}
"""A folder with one of these files is a run's folder."""


class RunName(NamedTuple):
    """What the path of a run says about it, one folder per field."""

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
        """The name of the run in ``path``, or None for a path of another form."""
        parts = Path(os.path.abspath(path)).parts[-5:]
        if len(parts) < 5:
            return None
        dataset, labels, method, target, seed = parts
        count, number = re.fullmatch(r"(\d+)lpc", labels), re.fullmatch(r"seed(\d+)", seed)
        return cls(dataset, int(count[1]), method, target, int(number[1])) if count and number else None


def run_path(settings: Settings) -> Path:
    name = RunName(settings.dataset, settings.labels_per_class, settings.method, settings.target_domain, settings.seed)
    return Path(settings.save_dir).expanduser() / name.path


@dataclass(frozen=True)
class RunFolder:
    """Reads and writes the files of one run, and is the only place that knows their names.

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

    def checkpoint_file(self, iteration: int) -> Path:
        return self.path / CHECKPOINT_PATTERN.replace("*", f"{iteration:08d}")

    def checkpoint_files(self) -> list[Path]:
        """All checkpoints, oldest first: their names contain the iteration, padded with zeros."""
        return sorted(self.path.glob(CHECKPOINT_PATTERN))

    def check(self, settings: Settings) -> None:
        """Refuse a folder that another process is training, or that contains anything but this experiment and may not
        be overwritten."""
        holder = lock.holder_of(self.path)
        if holder is not None and not holder.is_this_process:
            raise lock.Held(self.path, holder)
        if not settings.overwrite:
            self.check_content(settings)

    def check_content(self, settings: Settings) -> None:
        """Refuse a folder that contains anything but this experiment."""
        if self._is_unused():
            return
        reason = self._conflict(settings) if self._content() else ""
        if reason:
            raise UserError(f"{self.path}: {reason}; choose another --save_dir, or replace it with --overwrite")
        if settings.split_file and (file := split_path(settings)).is_file():
            self._check_data({"split_sha256": hashlib.sha256(documents.read_bytes(file, LARGEST_RECORD)).hexdigest()})

    def claim(self, settings: Settings, images: str = "", split: str = "") -> None:
        """Prepare the folder for this run: keep what belongs to the same experiment, or empty it with ``overwrite``.

        Args:
            images, split: SHA-256 of the images and of the split file that the run uses, where they are known.
        """
        self.check(settings)
        data = {"images_sha256": images or None, "split_sha256": split or None}
        unused = self._is_unused()
        if not settings.overwrite and not unused:
            self._check_data(data)
        if settings.overwrite or (unused and self._conflict(settings)):
            for path in self._content():
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        files.remove_leftovers(self.path)
        copies = self.path / EXTENSIONS_FOLDER
        if copies.is_symlink():
            copies.unlink()
        for number, original in enumerate(settings.extend):
            text = documents.read_text(Path(original).expanduser())
            files.write_text(copies / f"extension_{number:02d}.py", text)
        about = {"dataset_name": dataset_name(settings), **data, "content": content(settings)}
        files.write_json(self.identity_file, about)
        files.write_text(self.config_file, dump(settings))

    def _check_data(self, data: Mapping[str, str | None]) -> None:
        """Refuse to resume a run that began with other images or another split file of the same name."""
        recorded = self._read_identity()
        for name, what in (("images_sha256", "images of another content"), ("split_sha256", "another split file")):
            before, now = str(recorded.get(name) or ""), data.get(name)
            if before and now and before != now:
                raise UserError(
                    f"{self.path}: the run began with {what} (SHA-256 {before[:12]}, now {now[:12]}); "
                    f"choose another --save_dir, or replace it with --overwrite"
                )

    def _content(self) -> list[Path]:
        """All files of the run, without those of sweeps, locks and interrupted writes."""
        if not self.path.exists():
            return []
        return [path for path in self.path.iterdir() if path.name not in NOT_OF_THE_RUN and path.suffix != ".tmp"]

    def _is_unused(self) -> bool:
        """Whether the run ended before its first checkpoint and evaluation: nothing is lost if another begins here."""
        names = {path.name for path in self._content()}
        if names and names <= WRITTEN_BEFORE_THE_CONFIG:  # killed while it claimed the folder
            return True
        if CONFIG_FILE not in names or not names <= WRITTEN_BEFORE_TRAINING:
            return False
        return METRICS_FILE not in names or os.lstat(self.metrics_file).st_size == 0

    def _conflict(self, settings: Settings) -> str:
        """Why the content does not belong to the same experiment, or an empty string."""
        if not os.path.lexists(self.config_file):
            return "the folder contains files that do not belong to a run"
        try:
            raw = read_record(self.config_file)
            # The extensions are loaded already; what counts is their content when the run began.
            loaded = resolve({**raw, "extend": Raw(list(settings.extend), settings.origins.get("extend", ""))})
            recorded = self._read_identity().get("content", {})
            existing = identity(replace(loaded, extend=self._extension_copies()), recorded)
        except UserError as error:
            return f"the folder contains a config that cannot be read ({error})"
        wanted = identity(settings)
        if hash_of(existing) == hash_of(wanted):
            return ""
        return (
            f"the folder contains a run with another config (hash {hash_of(existing)}, this one has "
            f"{hash_of(wanted)}); they differ in {differences(existing, wanted)}"
        )

    def _read_identity(self) -> dict[str, Any]:
        """What ``claim`` recorded; nothing for a folder that has no run yet."""
        return _read_json(self.identity_file) if self.identity_file.exists() else {}

    def _extension_copies(self) -> tuple[str, ...]:
        return tuple(str(path) for path in sorted((self.path / EXTENSIONS_FOLDER).glob("*")))

    def read_config(self) -> dict[str, Any]:
        """The settings as they were written, without resolving them."""
        return {name: entry.value for name, entry in read_record(self.config_file).items()}

    def read_settings(self) -> Settings:
        """The settings of the run. Its extensions are run from the copies, and only after ``--trust``, unless the user
        has named files of the same content."""
        raw = read_record(self.config_file)
        if "extend" in raw and raw["extend"].value:
            copies = self._extension_copies()
            if not copies:
                raise UserError(f"{self.config_file}: extend: the copies in {EXTENSIONS_FOLDER} are missing")
            raw["extend"] = Raw(list(copies), str(self.config_file))
        return resolve(raw)

    @property
    def is_finished(self) -> bool:
        return self.result_file.exists()

    def read_result(self) -> dict[str, Any]:
        """What ``write_result`` wrote, or a UserError if a single byte of it has changed since."""
        content = documents.read_bytes(self.result_file, LARGEST_RECORD, follow=False)
        result = _json_object(content, self.result_file)
        if result.get("format") != FORMAT:
            raise UserError(
                f"{self.result_file}: not a result of format {FORMAT}; train the run again with --overwrite"
            )
        # The two fields are written together: damage to the name of one does not pass for a result without checksums.
        if {_OWN_CHECKSUM, "files_sha256"} & result.keys():
            own = str(result.pop(_OWN_CHECKSUM, ""))
            if own != _checksum_within(content, own):
                raise _changed(self.result_file)
        return result

    def write_result(self, result: dict[str, Any]) -> None:
        """Write ``result``, with a checksum of the file itself if it has those of the others."""
        if "files_sha256" not in result:
            files.write_json(self.result_file, result)
            return
        blank = (json.dumps({**result, _OWN_CHECKSUM: _BLANK}, indent=2) + "\n").encode()
        own = _checksum_within(blank, _BLANK)
        files.write_json(self.result_file, {**result, _OWN_CHECKSUM: own})

    def file_hashes(self) -> dict[str, str]:
        """SHA-256 of every file that is written before training and not changed later, for ``result.json``."""
        copies = [f"{EXTENSIONS_FOLDER}/{Path(copy).name}" for copy in self._extension_copies()]
        names = [name for name in (*_BEFORE_TRAINING, *copies) if os.path.lexists(self.path / name)]
        return {name: _sha256(self.path / name) for name in names}

    def read_checked_result(self) -> dict[str, Any]:
        """The result, or a UserError if a file that it has a checksum of is not what the run has written."""
        result = self.read_result()
        recorded = result.get("files_sha256")
        if recorded is not None and recorded != (found := self.file_hashes()):
            names = [*_BEFORE_TRAINING, *sorted(found)]
            known = recorded if isinstance(recorded, dict) else {}
            raise _changed(self.path / next((n for n in names if known.get(n) != found.get(n)), EXTENSIONS_FOLDER))
        return result

    def check_evaluations(self, result: Mapping[str, Any]) -> None:
        """A UserError if the evaluations of the run or their details are not those that its result belongs to."""
        for file, name in ((self.metrics_file, "metrics_sha256"), (self.details_file, "details_sha256")):
            if result.get(name) and (not file.is_file() or _sha256(file) != result[name]):
                raise UserError(f"{file}: does not belong to the result beside it; train the run again")

    def read_details(self) -> dict[str, Any]:
        """What ``write_details`` wrote, or a UserError unless it is what the result was written with."""
        if not self.details_file.is_file():
            raise UserError(f"{self.path}: the run did not record {DETAILS_FILE}; train it again with --overwrite")
        content = documents.read_bytes(self.details_file, LARGEST_RECORD, follow=False)
        if hashlib.sha256(content).hexdigest() != self.read_result().get("details_sha256"):
            raise UserError(f"{self.details_file}: does not belong to the result beside it; train the run again")
        return _json_object(content, self.details_file)

    def write_details(self, details: dict[str, Any]) -> None:
        files.write_text(self.details_file, json.dumps(details, separators=(",", ":")) + "\n")

    def details_hash(self) -> str:
        """SHA-256 of ``details.json``, for ``result.json``."""
        return _sha256(self.details_file)

    def read_split(self) -> dict[str, Any]:
        return _read_json(self.split_file)

    def write_split(self, split: dict[str, Any]) -> None:
        files.write_json(self.split_file, split)

    def read_environment(self) -> dict[str, Any]:
        return _read_json(self.environment_file)

    def write_environment(self, environment: dict[str, Any]) -> None:
        files.write_json(self.environment_file, environment)

    def read_metrics(self) -> list[dict[str, Any]]:
        """All complete lines of ``metrics.jsonl``; a line that was interrupted while it was written is left out.

        The file of a finished run must be what its result was written with.
        """
        recorded = self.read_result().get("metrics_sha256") if self.is_finished else None
        exists = self.metrics_file.is_file() if recorded else os.path.lexists(self.metrics_file)
        content = documents.read_bytes(self.metrics_file, LARGEST_RECORD, follow=False) if exists else b""
        if recorded and hashlib.sha256(content).hexdigest() != recorded:
            raise UserError(f"{self.metrics_file}: does not belong to the result beside it; train the run again")
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
        """Replace the file by these evaluations."""
        files.write_text(self.metrics_file, "".join(json.dumps(record) + "\n" for record in records))

    def metrics_hash(self) -> str:
        """SHA-256 of ``metrics.jsonl``, for ``result.json``."""
        return _sha256(self.metrics_file)


def _read_json(path: Path) -> dict[str, Any]:
    return _json_object(documents.read_bytes(path, LARGEST_RECORD, follow=False), path)


def _json_object(text: bytes, path: Path) -> dict[str, Any]:
    content = documents.parse_json(text, str(path))
    if not isinstance(content, dict):
        raise UserError(f"{path}: expected a JSON object, got {type(content).__name__}")
    return content


def _sha256(path: Path) -> str:
    return hashlib.sha256(documents.read_bytes(path, LARGEST_RECORD, follow=False)).hexdigest()


def _checksum_within(content: bytes, checksum: str) -> str:
    """SHA-256 of a file that ends with its own checksum: of the file with that replaced by zeros."""
    place = content.rfind(checksum.encode())
    return hashlib.sha256(content[:place] + _BLANK.encode() + content[place + len(_BLANK) :]).hexdigest()


def _changed(path: Path) -> UserError:
    return UserError(f"{path}: is not what the run has written; restore the file, or train the run with --overwrite")


def find_runs(roots: Iterable[Path]) -> Iterator[RunFolder]:
    """Every run at or below ``roots`` once, in the order of their names."""
    return (RunFolder(path) for path, _ in find_folders(roots, MARKERS))


def find_folders(roots: Iterable[Path], markers: Iterable[str]) -> Iterator[tuple[Path, list[str]]]:
    """Every folder at or below ``roots`` that has a file of ``markers``, once, with the names of its files.

    The order is that of their names. Nothing below such a folder is looked at. Symbolic links are followed as long as
    they stay within ``roots``: one in a folder of somebody else's could lead to any runs of the reader's.
    """
    roots = list(roots)
    inside = tuple(os.path.join(os.path.realpath(root), "") for root in roots)
    seen: set[str] = set()
    for root in roots:
        if not root.is_dir():
            raise UserError(f"{root}: no such folder; expected a folder that contains runs")
        for folder, below, names in os.walk(root, followlinks=True):
            real = os.path.realpath(folder)
            if not os.path.join(real, "").startswith(inside):
                print(
                    f"{printable(folder)}: is a link out of {root} and not followed; give its target too to read it",
                    file=sys.stderr,
                )
                below.clear()
                continue
            if real in seen:
                below.clear()
                continue
            seen.add(real)
            below.sort()
            if not set(markers).isdisjoint(names):
                below.clear()
                yield Path(folder), names
