"""Names that become folders and files: one check of them all; and names that options may not have."""

from __future__ import annotations

import re

from semilearn_ext.errors import UserError, shown

LONGEST = 100
USB_ARGUMENTS = {
    *("amp", "context", "crop_ratio", "dist_backend", "dist_url", "distributed", "gpu", "imb_algorithm"),
    *("include_lb_to_ulb", "layer_decay", "lb_imb_ratio", "load_path", "max_length", "max_length_seconds"),
    *("multiprocessing_distributed", "net_from_name", "num_classes", "num_domains", "num_labels", "rank"),
    *("resume", "sample_rate", "save_name", "train_sampler", "ulb_imb_ratio", "ulb_num_labels", "use_pretrain"),
    "world_size",
}
"""What USB's algorithms are configured with besides our settings: an option of such a name would get USB's value."""
COMMAND_WORDS = {
    *("algorithms", "array_parallelism", "base", "c", "cpus_per_task", "gpus", "gpus_per_node", "h", "help"),
    *("jobs", "jobs_per_gpu", "labels", "launcher", "methods", "options", "origins", "partition", "plugins"),
    *("sbatch", "seeds", "targets", "time", "trust", "with_base"),
}
"""Flags of ``ssdg train`` and ``ssdg sweep`` and keys of config files that are not settings."""
_RULE = "names consist of letters, digits, '_', '-' and '.'"


def check_name(name: str, where: str) -> str:
    """``name`` if it consists of letters, digits, ``_``, ``-`` and ``.``, does not begin with a dot, and is at most 100
    characters long; else a UserError."""
    if not re.fullmatch(r"\w[\w.-]*", name):
        raise UserError(f"{where}: {shown(name)}: {_RULE}, and do not begin with '.' or '-'")
    return _check_length(name, where)


def check_folder_name(name: str, where: str) -> str:
    """``name`` if it may be the name of an existing folder, such as that of a domain: spaces and other characters are
    allowed, but none that lead elsewhere or drive a terminal."""
    if not name.strip() or name.startswith(".") or re.search(r"[/\\\0-\x1f\x7f]", name):
        raise UserError(f"{where}: {shown(name)} cannot be the name of a folder; rename it")
    return _check_length(name, where)


def _check_length(name: str, where: str) -> str:
    if len(name) > LONGEST:
        raise UserError(
            f"{where}: {shown(name)}: {len(name)} characters are too long for a name; use at most {LONGEST}"
        )
    return name
