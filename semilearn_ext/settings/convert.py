"""Convert a raw value from YAML or the command line to the type of its setting."""

from __future__ import annotations

import math
import re
from typing import Any

from semilearn_ext.errors import UserError, did_you_mean, shown
from semilearn_ext.specs import LIMITS, Option

_TRUE = {"true", "yes", "on", "1", "t", "y"}
_FALSE = {"false", "no", "off", "0", "f", "n"}
_EXPECTED = {
    int: "an integer",
    float: "a number",
    bool: "true or false",
    str: "a word",
    float | None: "a number or none",
    tuple[str, ...]: "a list of words",
}


def convert(raw: Any, kind: Any, where: str) -> Any:
    """Convert ``raw`` to ``kind`` (int, float, bool, str, ``float | None`` or ``tuple[str, ...]``)."""
    try:
        return _CONVERTERS[kind](raw)
    except (ValueError, TypeError, OverflowError):
        quotes = " (put a name in quotes)" if kind is str and isinstance(raw, bool | float) else ""
        raise UserError(f"{where}: expected {_EXPECTED[kind]}, got {shown(raw)}{quotes}") from None


def as_text(value: Any) -> str:
    """``value`` as it is written in a config file: ``true``, ``0.5``, ``none``."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    return "none" if value in (None, "", ()) else str(value)


def check_choice(value: str, choices: tuple[str, ...], where: str) -> None:
    if choices and value not in choices:
        hint = did_you_mean(value, choices)
        raise UserError(f"{where}: {shown(value)} is not one of {', '.join(choices)}{hint}")


def check_range(
    value: Any,
    where: str,
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    above: float | None = None,
    below: float | None = None,
) -> None:
    if value is None:
        return
    if above is not None and value <= above:
        raise UserError(f"{where}: must be above {above:.10g}, got {value!r}")
    if minimum is not None and value < minimum:
        raise UserError(f"{where}: must be at least {minimum:.10g}, got {value!r}")
    if maximum is not None and value > maximum:
        raise UserError(f"{where}: must be at most {maximum:.10g}, got {value!r}")
    if below is not None and value >= below:
        raise UserError(f"{where}: must be below {below:.10g}, got {value!r}")


def option_value(option: Option, raw: Any, where: str) -> Any:
    """Convert ``raw`` to a value of ``option`` and check it."""
    value = convert(raw, option.type, where)
    check_choice(value, option.choices, where)
    check_range(value, where, **{limit: getattr(option, limit) for limit in LIMITS})
    return value


def _int(raw: Any) -> int:
    if isinstance(raw, bool) or (isinstance(raw, float) and not raw.is_integer()):
        raise ValueError
    value = int(_plain(raw))
    if abs(value) > 2**53:  # larger integers are not exact as floats
        raise ValueError
    return value


def _float(raw: Any) -> float:
    # YAML 1.1 reads 5e-4 as a string, so strings that look like numbers are accepted.
    if isinstance(raw, bool):
        raise ValueError
    value = float(_plain(raw))
    if not math.isfinite(value) or (not value and isinstance(raw, str) and re.match(r"[-+.0]*[1-9]", raw)):
        raise ValueError  # too large or too small for a float
    return value + 0.0  # -0.0 would be another experiment than 0.0


def _plain(raw: Any) -> Any:
    """``raw`` unless it is a text that only Python reads as a number, such as ``1_000`` or other digits than 0 to 9."""
    if isinstance(raw, str) and ("_" in raw or not raw.isascii()):
        raise ValueError
    return raw


def _bool(raw: Any) -> bool:
    word = str(raw).lower()
    if word not in _TRUE | _FALSE:
        raise ValueError
    return word in _TRUE


def _str(raw: Any) -> str:
    # YAML reads the words no, off, yes and on as booleans, and 1.10 as 1.1; as a name, such a word has to be quoted.
    if isinstance(raw, dict | list | bool | float | bytes) or raw is None or "\0" in str(raw):
        raise ValueError
    return str(raw)


def _optional_float(raw: Any) -> float | None:
    return None if raw is None or str(raw).lower() == "none" else _float(raw)


def _words(raw: Any) -> tuple[str, ...]:
    items = raw.replace(",", " ").split() if isinstance(raw, str) else raw or ()
    if not isinstance(items, list | tuple):
        raise ValueError
    return tuple(_str(item) for item in items)


_CONVERTERS: dict[Any, Any] = {
    int: _int,
    float: _float,
    bool: _bool,
    str: _str,
    float | None: _optional_float,
    tuple[str, ...]: _words,
}
