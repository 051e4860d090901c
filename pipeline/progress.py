"""How long work reports itself, without knowing who listens."""

from __future__ import annotations

from typing import Protocol


class Bar(Protocol):
    """One bar of a long task."""

    def advance(self, count: int = 1, **shown: str) -> None:
        """``count`` more units are done; ``shown`` replaces the short facts beside the bar (loss, rate …)."""

    def close(self) -> None:
        """The task is over."""


class Progress(Protocol):
    """Makes bars; the command line draws them, tests and library use pass :class:`Silent`."""

    def bar(self, description: str, total: int | None, unit: str, *, initial: int = 0) -> Bar:
        """A bar for ``total`` things called ``unit``, ``initial`` of which were done before."""

    def say(self, line: str) -> None:
        """One line of text that does not disturb the bars."""


class Silent:
    """Listens to nothing."""

    def bar(self, description: str, total: int | None, unit: str, *, initial: int = 0) -> Bar:
        """A bar that nobody sees."""
        return _SilentBar()

    def say(self, line: str) -> None:
        """Nothing is said."""


class _SilentBar:
    def advance(self, count: int = 1, **shown: str) -> None:
        pass

    def close(self) -> None:
        pass
