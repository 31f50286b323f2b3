"""What a sweep shows: the counts, the time to go, a block on a terminal and plain lines elsewhere."""

from __future__ import annotations

import io

import pytest

from semilearn_ext.runs.display import Display, Tally, duration, summary_line, time_to_go


def test_the_time_to_go_is_what_is_left_shared_by_the_places() -> None:
    tally = Tally(total=10, slots=2, done=2, running={"a": 40.0, "b": 130.0}, seconds=[90.0, 110.0])
    assert tally.left == 6
    assert time_to_go(tally) == pytest.approx((6 * 100 + 60 + 0) / 2)
    assert time_to_go(Tally(total=3, slots=2)) is None
    assert time_to_go(Tally(total=1, slots=8, running={"a": 40.0}, seconds=[100.0])) == pytest.approx(60)


def test_the_line_names_what_there_is() -> None:
    tally = Tally(total=9, slots=2, done=2, failed=1, stopped=1, elsewhere=1, running={"a": 1.0}, seconds=[3600.0])
    assert summary_line(tally) == (
        "2/9 done, 1 running, 1 failed, 1 stopped, 1 running elsewhere, 3 left, about 2:00:00 to go"
    )
    assert summary_line(Tally(total=1, slots=1)) == "0/1 done, 0 running, 1 left"


@pytest.mark.parametrize(("seconds", "expected"), [(0.4, "0:00"), (61, "1:01"), (3600, "1:00:00"), (90061, "25:01:01")])
def test_durations(seconds: float, expected: str) -> None:
    assert duration(seconds) == expected


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_keeps_lines_and_draws_the_block_anew() -> None:
    screen = Terminal()
    display = Display(screen)
    tally = Tally(total=2, slots=1, running={"pen": 5.0})
    display.show(tally)
    display.line("done pen")
    display.show(tally)
    display.show(tally)
    display.close()
    block = "0/2 done, 1 running, 1 left\n      0:05  pen\n"
    erase = "\x1b[2F\x1b[J"
    assert screen.getvalue() == block + erase + "done pen\n" + block + erase + block + erase


def test_elsewhere_only_lines_are_written() -> None:
    output = io.StringIO()
    display = Display(output)
    display.show(Tally(total=2, slots=1))
    display.line("done pen")
    display.close()
    assert output.getvalue() == "done pen\n"
