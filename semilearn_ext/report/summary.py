"""The table that a training command prints at the end, with one row per target domain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from semilearn_ext.report.aggregate import seed_means
from semilearn_ext.report.methods import setting_title
from semilearn_ext.runs.result import AVERAGES, PROTOCOLS


def by_target(results: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """Accuracy in percent and seconds: one row per target and one for their mean, one column per protocol."""
    columns = [*PROTOCOLS, *(name for name in AVERAGES if all(name in result["top1"] for result in results))]
    rows = [
        {
            "dataset": result["dataset"],
            "target": result["target_domain"],
            "seed": result["seed"],
            **{protocol: 100 * result["top1"][protocol] for protocol in columns},
            "seconds": result["seconds"],
        }
        for result in results
    ]
    runs = pd.DataFrame(rows)
    frame = runs.set_index("target")[[*columns, "seconds"]]
    if len(frame) > 1:
        mean = seed_means(runs, {runs.loc[0, "dataset"]: list(runs["target"])}, ["dataset"], columns)
        frame.loc["mean"] = [*mean.loc[0, columns], runs["seconds"].sum()]
    return frame


def render_comparison(results: Sequence[dict[str, Any]], base: Sequence[dict[str, Any]]) -> str:
    """A comparison of a method with its base as text: accuracy after the last iteration, and the difference."""
    frame = pd.DataFrame({part[0]["title"]: by_target(part)["last"] for part in (base, results)})
    frame["difference"] = frame.iloc[:, 1] - frame.iloc[:, 0]
    body = frame.to_string(float_format=lambda value: f"{value:.1f}")
    return (
        f"{_title(results)}\n{body}\n"
        "Accuracy on the target domain after the last iteration, in percent. With one seed, a difference of a few "
        "points is not conclusive."
    )


def _title(results: Sequence[dict[str, Any]]) -> str:
    first = results[0]
    scales = sorted({result["scale"] for result in results})
    return (
        f"{first['title']} on {setting_title(first['dataset'], first['labels_per_class'])}, "
        f"seed {first['seed']} (one seed), scale: {', '.join(scales)}"
    )


def render(results: Sequence[dict[str, Any]]) -> str:
    """The table as text, with an explanation of its columns."""
    frame = by_target(results).rename(columns={"oracle": "oracle*"})
    body = frame.to_string(float_format=lambda value: f"{value:.1f}")
    averages = (
        "ema, swa: averaged weights, exponentially over training and uniformly over its end.\n"
        if set(AVERAGES) & set(frame.columns)
        else ""
    )
    return (
        f"{_title(results)}\n{body}\n"
        "last: after the last iteration, as in the paper. source_val: selected on held-out source images.\n"
        f"{averages}"
        "*oracle: selected on the target domain itself, which is an upper bound and not a result. The last row of "
        "seconds is the total."
    )
