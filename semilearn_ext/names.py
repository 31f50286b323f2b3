"""Check names that become folders and files, and reserve names that options must not have."""

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
"""Arguments of USB's algorithms besides our settings. An option with such a name would get the value of USB."""
COMMAND_WORDS = {
    *("action", "algorithms", "array_parallelism", "base", "benchmark", "c", "call", "command", "cpus_per_task"),
    *("dev_seeds", "figure", "folder", "gpus", "gpus_per_node", "grid", "h", "help", "images_per_second", "jobs"),
    *("jobs_per_gpu", "labels", "launcher", "methods", "options", "origins", "out", "partition", "plugins", "runs"),
    *("sbatch", "seeds", "targets", "time", "trust", "with_base"),
}
"""Arguments of commands that take settings, and keys of config files that are not settings."""
_RULE = "names consist of letters, digits, '_', '-' and '.'"


def check_name(name: str, where: str) -> str:
    """Return ``name`` if it consists of letters, digits, ``_``, ``-`` and ``.``, does not start with a dot, and has at
    most 100 characters; otherwise raise a UserError."""
    if not re.fullmatch(r"\w[\w.-]*", name):
        raise UserError(f"{where}: {shown(name)}: {_RULE}, and do not start with '.' or '-'")
    return _check_length(name, where)


def check_folder_name(name: str, where: str) -> str:
    """Return ``name`` if it may be the name of an existing folder, such as that of a domain; otherwise raise a
    UserError. Spaces and other characters are allowed, but no path separators and nothing that cannot be printed."""
    if not name.strip() or name.startswith(".") or not name.isprintable() or re.search(r"[/\\]", name):
        raise UserError(f"{where}: {shown(name)} is not a valid folder name; rename it")
    return _check_length(name, where)


def _check_length(name: str, where: str) -> str:
    if len(name) > LONGEST:
        raise UserError(f"{where}: {shown(name)}: the name has {len(name)} characters; use at most {LONGEST}")
    return name
