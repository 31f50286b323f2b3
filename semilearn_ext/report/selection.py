"""Rank trials by the accuracy on held-out source images. The target domain is not used."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from semilearn_ext.errors import UserError
from semilearn_ext.report.aggregate import seed_means
from semilearn_ext.report.records import check_fields, different_images
from semilearn_ext.report.statistics import interval
from semilearn_ext.runs.folder import RunFolder
from semilearn_ext.settings import Settings

SCORE = "source_val/top1"


def read_trials(settings: Mapping[Path, Settings], names: Sequence[str]) -> pd.DataFrame:
    """One row per run: the settings of the grid, target, seed, and the metrics on held-out source images."""
    rows: list[dict[str, Any]] = []
    data: list[dict[str, Any]] = []
    for path, run_settings in settings.items():
        result, flat, where = RunFolder(path).read_checked_result(), run_settings.flat(), RunFolder(path).result_file
        check_fields(result, str(where))
        if SCORE not in result["metrics"]:
            raise UserError(f"{where}: damaged: no {SCORE} in metrics; train the run again with --overwrite")
        measured = {name: value for name, value in result["metrics"].items() if name.startswith("source_val/")}
        about = {"point": run_settings.variant, **{name: flat[name] for name in names}}
        about |= {"target": run_settings.target_domain, "seed": run_settings.seed, "config_hash": result["config_hash"]}
        rows.append({**about, SCORE: measured[SCORE], **measured})
        images = {"images": result.get("images_sha256"), "pixels": result.get("pixels_sha256")}
        identity = {"dataset": run_settings.dataset, "config_hash": result["config_hash"], "source": RunFolder(path)}
        data.append({**images, **identity})
    for difference in different_images(pd.DataFrame(data)):
        warnings.warn(difference, stacklevel=2)
    return pd.DataFrame(rows)


def rank(trials: pd.DataFrame, targets: Sequence[str]) -> pd.DataFrame:
    """One row per point of the grid, the best first. Ties are broken by the order of the grid.

    Args:
        trials: one row per run: ``point``, ``target``, ``seed`` and ``source_val/top1``.
        targets: all target domains. Seeds without runs on all of them are left out.

    Returns:
        ``point``; ``seeds``; ``mean``, over targets and then seeds, with its 95 % bootstrap interval over seeds,
        ``low`` and ``high``; ``behind``, the mean difference from the best on the same seeds, with ``behind_low`` and
        ``behind_high``.
    """
    means = seed_means(trials.assign(dataset=""), {"": targets}, ["dataset", "point"], [SCORE])
    by_point = {point: rows.set_index("seed")[SCORE] for point, rows in means.groupby("point", sort=False)}
    if not by_point:
        return pd.DataFrame(columns=["point", "seeds", "mean", "low", "high", "behind", "behind_low", "behind_high"])
    order = list(dict.fromkeys(trials["point"]))
    points = sorted(by_point, key=lambda point: (-by_point[point].mean(), order.index(point)))
    best = by_point[points[0]]
    rows: list[dict[str, Any]] = []
    for point in points:
        scores = by_point[point]
        difference = (scores - best).dropna().to_numpy()
        (low, high), (behind_low, behind_high) = interval(scores.to_numpy()), interval(difference)
        rows.append(
            {
                "point": point,
                "seeds": len(scores),
                "mean": scores.mean(),
                "low": low,
                "high": high,
                "behind": difference.mean() if len(difference) else float("nan"),
                "behind_low": behind_low,
                "behind_high": behind_high,
            }
        )
    return pd.DataFrame(rows)


def shown(ranking: pd.DataFrame, targets: int) -> str:
    """The ranking as text, in percent."""
    seeds = int(ranking["seeds"].max())
    lines = [
        f"Accuracy on held-out source images in percent, mean over {targets} targets and {seeds} seeds, with its 95 % "
        f"interval; the difference from the best on the same seeds, with its own"
    ]
    width = max(len(point) for point in ranking["point"])
    for row in ranking.itertuples():
        behind = "" if row.Index == 0 else f"  {_with_interval(row.behind, row.behind_low, row.behind_high, '+.1f')}"
        lines.append(f"{row.point:<{width}}  {_with_interval(row.mean, row.low, row.high, '.1f')}{behind}")
    return "\n".join(lines)


def _with_interval(value: float, low: float, high: float, form: str) -> str:
    interval = "" if low != low else f" [{100 * low:{form}}, {100 * high:{form}}]"
    return f"{100 * value:{form}}{interval}"
