from __future__ import annotations

import io
from pathlib import Path

import pytest

from cluster.progress import LineProgress, LoggedProgress, TerminalProgress, progress_on
from pipeline.progress import Silent


def test_lines_come_every_ten_seconds_and_at_the_end() -> None:
    lines: list[str] = []
    now = 0.0
    bar = LineProgress(lines.append, clock=lambda: now).bar("cache", 100, "images", initial=20)
    for second in range(1, 26):
        now = float(second)
        bar.advance(2, loss=f"{second}")
    assert lines == [
        "cache: 40% 40/100 [00:10<00:30,  2.00 images/s, loss=10]",
        "cache: 60% 60/100 [00:20<00:20,  2.00 images/s, loss=20]",
    ]
    bar.close()
    assert lines[2:] == ["cache: 70% 70/100 [00:25<00:15,  2.00 images/s, loss=25]"]


def test_the_end_is_not_said_twice() -> None:
    lines: list[str] = []
    now = 0.0
    bar = LineProgress(lines.append, clock=lambda: now).bar("cache", 4, "images")
    now = 12.0
    bar.advance(4)
    bar.close()
    assert len(lines) == 1


def test_a_short_bar_inside_another_leaves_no_line() -> None:
    lines: list[str] = []
    now = 0.0
    progress = LineProgress(lines.append, clock=lambda: now)
    outer, short = progress.bar("cache", 2, "units"), progress.bar("00000.tar", 10, "images")
    now = 2.0
    short.advance(10)
    short.close()
    outer.advance()
    long = progress.bar("00001.tar", 10, "images")
    now = 14.0
    long.close()
    outer.close()
    progress.bar("probe", 1, "units").close()
    assert [line.split(":")[0] for line in lines] == ["00001.tar", "cache", "probe"]


def test_a_bar_without_an_end_counts() -> None:
    lines: list[str] = []
    now = 0.0
    bar = LineProgress(lines.append, clock=lambda: now).bar("index", None, "tars")
    now = 4.0
    bar.advance(8)
    bar.close()
    assert lines == ["index: 8 tars [00:04,  2.00 tars/s]"]


@pytest.mark.parametrize("advance", [0, 3])
def test_log_gets_what_is_shown_with_the_time(tmp_path: Path, advance: int) -> None:
    with LoggedProgress(Silent(), tmp_path / "log.txt") as progress:
        progress.say("hello")
        bar = progress.bar("pack", 3, "images")
        bar.advance(advance)
        bar.close()
    first, second = (tmp_path / "log.txt").read_text().splitlines()
    assert first.endswith(" hello")
    assert f"{advance}/3" in second


def test_terminal_gets_live_bars_and_pipes_get_lines() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    assert isinstance(progress_on(Terminal()), TerminalProgress)
    stream = io.StringIO()
    progress_on(stream).say("one line")
    assert stream.getvalue() == "one line\n"
    assert "\r" not in stream.getvalue()
