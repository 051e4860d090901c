"""Somebody who asks work to stop while it reports itself."""

from __future__ import annotations

from pipeline.interruption import ask_to_stop
from pipeline.progress import Bar, Silent


class AskAfter(Silent):
    """Asks to stop when ``count`` is reached on the bar that is called ``of``; None = on any bar."""

    def __init__(self, count: int, of: str | None = None) -> None:
        self.count, self.of = count, of

    def bar(self, description: str, total: int | None, unit: str, *, initial: int = 0) -> Bar:
        """A bar that counts, or one that nobody sees."""
        if self.of not in (None, description):
            return super().bar(description, total, unit, initial=initial)
        return _Counting(self.count, initial)


class _Counting:
    def __init__(self, count: int, done: int) -> None:
        self.count, self.done = count, done

    def advance(self, count: int = 1, **shown: str) -> None:
        self.done += count
        if self.done >= self.count:
            ask_to_stop()

    def close(self) -> None:
        pass
