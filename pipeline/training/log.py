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
        """What was logged; a line cut off by a crash is left out."""
        if not self.path.exists():
            return []
        text, _, _ = self.path.read_text(encoding="utf-8").rpartition("\n")
        return [{name: float(value) for name, value in row.items()} for row in csv.DictReader(io.StringIO(text))]

    def cut(self, step: int) -> None:
        """Forget the lines after ``step``: training goes on from there."""
        kept = [row for row in self.rows() if row["step"] <= step]
        self.path.unlink(missing_ok=True)
        if kept:
            write_bytes(self.path, _text(kept, header=True).encode())

    def append(self, row: Mapping[str, float]) -> None:
        """Add a line, durably."""
        append_text(self.path, _text([row], header=not self.path.exists()))


def _text(rows: list[dict[str, float]] | list[Mapping[str, float]], *, header: bool) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=list(rows[0]), lineterminator="\n")
    if header:
        writer.writeheader()
    writer.writerows({name: int(v) if float(v).is_integer() else v for name, v in row.items()} for row in rows)
    return out.getvalue()
