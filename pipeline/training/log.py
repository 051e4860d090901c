"""The course of training, a line every few steps, as CSV that any tool reads."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping

from pipeline.files import append_text, write_bytes
from pipeline.places import Place


class TrainingLog:
    """``log.csv``: one header, one line for each interval; all values are numbers."""

    def __init__(self, path: Place) -> None:
        self.path = path

    def rows(self) -> list[dict[str, float]]:
        """What was logged; a line cut off by a crash is left out, and so is one that is damaged."""
        return [row for row in self._lines() if row is not None]

    def cut(self, step: int) -> int:
        """Forget the lines after ``step``: training goes on from there.

        Returns:
            How many lines are damaged, and forgotten as well.
        """
        found = self._lines()
        kept = [row for row in found if row is not None and row["step"] <= step]
        self.path.unlink(missing_ok=True)
        if kept:
            write_bytes(self.path, _text(kept, header=True).encode())
        return found.count(None)

    def _lines(self) -> list[dict[str, float] | None]:
        """None for a line that is damaged, or that stands below a damaged header."""
        if not self.path.exists():
            return []
        text, _, _ = self.path.read_bytes().decode("utf-8", errors="replace").rpartition("\n")
        return [_numbers(row) for row in csv.DictReader(io.StringIO(text))]

    def append(self, row: Mapping[str, float]) -> None:
        """Add a line, durably."""
        append_text(self.path, _text([row], header=not self.path.exists()))


def _numbers(row: Mapping[str | None, str | list[str] | None]) -> dict[str, float] | None:
    try:
        found = {str(name): float(value) for name, value in row.items()}  # type: ignore[arg-type]
    except (TypeError, ValueError):  # too few or too many values, or one that is no number
        return None
    return found if "step" in found else None


def _text(rows: list[dict[str, float]] | list[Mapping[str, float]], *, header: bool) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=list(rows[0]), lineterminator="\n")
    if header:
        writer.writeheader()
    writer.writerows({name: int(v) if float(v).is_integer() else v for name, v in row.items()} for row in rows)
    return out.getvalue()
