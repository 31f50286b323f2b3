"""The plan: what a run would train, counted on the algorithm itself."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from semilearn_ext.plan import describe_plan
from semilearn_ext.settings import Settings


@pytest.mark.parametrize(
    ("algorithm", "expected"),
    [
        ("fixmatch_upcsc", f"plugin         {2 * 256 * 256 + 256:,} parameters, learning rate 0.0005"),
        ("stylematch", f"classifier     {2 * 10 * 256:,} parameters, learning rate 0.05"),
        ("fixmatch", f"classifier     {10 * 256 + 10:,} parameters, learning rate 0.05"),
    ],
)
def test_it_counts_what_the_algorithm_trains(
    algorithm: str, expected: str, tiny: Callable[..., Settings], capsys: pytest.CaptureFixture[str]
) -> None:
    assert expected in describe_plan(tiny(algorithm=algorithm))
    assert capsys.readouterr().out == ""
