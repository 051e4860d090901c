"""Bars with rates: live ones on a terminal, a line now and then in a file."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from types import TracebackType
from typing import Any, TextIO

from tqdm import tqdm

from pipeline.errors import UserError
from pipeline.files import append_text
from pipeline.places import Place, is_remote
from pipeline.progress import Bar, Progress, Silent

SECONDS_A_LINE = 10.0
SECONDS_AN_UPLOAD = 60.0  # an object cannot grow: the whole log is written anew
_FACTS = "[{elapsed}<{remaining}, {rate_noinv_fmt}{postfix}]"
_BAR = "{l_bar}{bar}| {n_fmt}/{total_fmt} " + _FACTS
_LINE = "{desc}: {percentage:.0f}% {n_fmt}/{total_fmt} " + _FACTS
_OPEN_LINE = "{desc}: {n_fmt}{unit} [{elapsed}, {rate_noinv_fmt}{postfix}]"  # of a task whose end is not known


class TerminalProgress:
    """tqdm's bars; for a person at a terminal."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def bar(self, description: str, total: int | None, unit: str, *, initial: int = 0) -> Bar:
        """A live bar."""
        return _TerminalBar(
            tqdm(
                desc=description,
                total=total,
                unit=f" {unit}",
                initial=initial,
                file=self.stream,
                dynamic_ncols=True,
                bar_format=_BAR,
                leave=None,  # the outermost bar stays when it is done, those of single units go
                delay=0.2,  # work that is done at once shows no bar
            )
        )

    def say(self, line: str) -> None:
        """A line above the bars."""
        tqdm.write(line, file=self.stream)


class _TerminalBar:
    def __init__(self, bar: tqdm[Any]) -> None:
        self._bar = bar

    def advance(self, count: int = 1, **shown: str) -> None:
        if shown:
            self._bar.set_postfix(shown, refresh=False)
        self._bar.update(count)

    def close(self) -> None:
        self._bar.close()


class LineProgress:
    """Lines with the same facts as a bar, every ten seconds and at the end; for files and pipes.

    A bar inside another one, of a single unit, has a last line only if it took ten seconds.
    """

    def __init__(self, write: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self.write = write
        self.clock = clock
        self.outermost: Bar | None = None

    def bar(self, description: str, total: int | None, unit: str, *, initial: int = 0) -> Bar:
        """A bar whose first line comes after ten seconds, or at its end."""
        bar = _LineBar(self, description, total, unit, initial)
        self.outermost = self.outermost or bar
        return bar

    def say(self, line: str) -> None:
        """A line."""
        self.write(line)


class _LineBar:
    def __init__(self, progress: LineProgress, description: str, total: int | None, unit: str, initial: int) -> None:
        self._progress, self._description, self._total, self._unit = progress, description, total, unit
        self._initial = self._done = initial
        self._shown: dict[str, str] = {}
        self._start = self._last = progress.clock()
        self._written: int | None = None  # what the last line said

    def advance(self, count: int = 1, **shown: str) -> None:
        self._done += count
        self._shown.update(shown)
        if self._progress.clock() - self._last >= SECONDS_A_LINE:
            self._last = self._progress.clock()
            self._write()

    def close(self) -> None:
        outermost = self._progress.outermost is self
        if outermost:
            self._progress.outermost = None
        long = self._progress.clock() - self._start >= SECONDS_A_LINE
        if (outermost or long) and self._written != self._done:
            self._write()

    def _write(self) -> None:
        self._written = self._done
        line = tqdm.format_meter(
            n=self._done,
            total=self._total,  # type: ignore[arg-type]  # tqdm takes None: the end is not known
            elapsed=max(self._progress.clock() - self._start, 1e-9),
            prefix=self._description,
            unit=f" {self._unit}",
            initial=self._initial,
            postfix=", ".join(f"{key}={value}" for key, value in self._shown.items()),
            bar_format=_OPEN_LINE if self._total is None else _LINE,
        )
        self._progress.write(line)


class LoggedProgress:
    """Another progress, of which the log file of a run folder gets the lines too; an object store, once a minute."""

    def __init__(self, shown: Progress, log: Place, clock: Callable[[], float] = time.monotonic) -> None:
        self._shown = shown
        self._log = log
        self._clock = clock
        self._waiting: list[str] = []
        self._written = clock()
        self._logged = LineProgress(self.record)

    def __enter__(self) -> LoggedProgress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._write()

    def bar(self, description: str, total: int | None, unit: str, *, initial: int = 0) -> Bar:
        """A bar in both."""
        return _TwoBars(
            self._shown.bar(description, total, unit, initial=initial),
            self._logged.bar(description, total, unit, initial=initial),
        )

    def say(self, line: str) -> None:
        """A line in both."""
        self._shown.say(line)
        self.record(line)

    def record(self, text: str) -> None:
        """A text in the log alone, with the time."""
        self._waiting.append(f"{datetime.now().astimezone():%Y-%m-%d %H:%M:%S%z} {text}\n")
        if not is_remote(self._log) or self._clock() - self._written >= SECONDS_AN_UPLOAD:
            self._write()

    def _write(self) -> None:
        if self._waiting:
            with suppress(OSError, UserError):  # a full disk, a server that is away: the work itself says so
                append_text(self._log, "".join(self._waiting))
                self._waiting = []
        self._written = self._clock()


class _TwoBars:
    def __init__(self, *bars: Bar) -> None:
        self._bars = bars

    def advance(self, count: int = 1, **shown: str) -> None:
        for bar in self._bars:
            bar.advance(count, **shown)

    def close(self) -> None:
        for bar in self._bars:
            bar.close()


def progress_on(stream: TextIO | None = None) -> Progress:
    """Live bars if ``stream`` (default: standard error) is a terminal, else lines."""
    stream = stream if stream is not None else sys.stderr
    if stream is None:  # it was closed, as services do
        return Silent()
    if stream.isatty():
        return TerminalProgress(stream)
    return LineProgress(lambda line: print(line, file=stream, flush=True))
