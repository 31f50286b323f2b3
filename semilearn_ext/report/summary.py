"""The small table a training command ends with: one row a target domain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

PROTOCOLS = ("last", "source_val", "oracle")


def by_target(results: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """Accuracy in percent, a row a target and their mean, a column a protocol; and seconds."""
    rows = [
        {"target": r["target_domain"], **{p: 100 * r["top1"][p] for p in PROTOCOLS}, "seconds": r["seconds"]}
        for r in results
    ]
    frame = pd.DataFrame(rows).set_index("target")
    if len(frame) > 1:
        frame.loc["mean"] = frame.mean()
        frame.loc["mean", "seconds"] = frame["seconds"].iloc[:-1].sum()
    return frame


def render(results: Sequence[dict[str, Any]]) -> str:
    """That table as text, with what it is and is not."""
    first = results[0]
    scales = sorted({r["scale"] for r in results})
    title = (
        f"{first['algorithm']} on {first['dataset']}, {first['labels_per_class']} labels a class, "
        f"seed {first['seed']} (one seed), scale: {', '.join(scales)}"
    )
    frame = by_target(results).rename(columns={"oracle": "oracle*"})
    body = frame.to_string(float_format=lambda value: f"{value:.1f}")
    return (
        f"{title}\n{body}\n"
        "last: after the last iteration, the paper's protocol. source_val: chosen on held-out source images.\n"
        "*oracle: chosen on the target itself, an upper bound and no result. seconds: the sum, in the last row."
    )
