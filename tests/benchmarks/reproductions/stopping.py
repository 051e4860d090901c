"""A progress that stops its work."""

from pipeline.progress import Silent


class Stopped(Exception):  # noqa: N818 (it is no error)
    """The work was stopped."""


class StopsAt(Silent):
    """Raises at the step after ``count``, before that step is saved."""

    def __init__(self, count):
        self.left = count

    def bar(self, description, total, unit, *, initial=0):
        return self

    def advance(self, count=1, **shown):
        if self.left == 0:
            raise Stopped
        self.left -= 1
