"""The style of figures: texts are drawn as they are, whatever matplotlib is configured to do."""

from __future__ import annotations

from pathlib import Path

import matplotlib
import pytest
from matplotlib.figure import Figure

from semilearn_ext.analysis import style


@pytest.mark.parametrize("name", ["$x_{$", "$\\frac{$", "a $ b $ c", "\\textbf{x}"])
def test_names_are_not_formulas(name: str, tmp_path: Path) -> None:
    with matplotlib.rc_context({"text.usetex": True, "font.size": 40}), style.look():
        figure = Figure(figsize=(2, 2))
        axis = figure.subplots()
        axis.set_title(name)
        axis.set_yticks([0], [name])
        style.save(figure, tmp_path, "a")
        assert matplotlib.rcParams["font.size"] == 8
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.pdf", "a.png"]
