"""What is wrong with the files of an evaluation; what is bad is taken away, so that the same command makes it again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pipeline.analyses._records import Records, whole
from pipeline.files import sha256_file
from pipeline.places import Place


def take_away_damage(records: Records) -> list[str]:
    """A line for each record or file that is not what was written."""
    problems: list[str] = []
    for unit in records.units:
        problems += [f"{unit}: {path} is not what was written" for path in _bad_collection(records, unit)]
    rows = {unit: found["rows_sha256"] for unit in records.units if (found := records.scored(unit)) is not None}
    beside = [*_bad_analyses(records, records.of_all, rows), *_bad_report(records)]
    problems += [f"{path} is not what was written" for path in beside]
    if problems:
        records.together.unlink(missing_ok=True)
    return problems


def _bad_collection(records: Records, unit: str) -> Iterator[Place]:
    place, table = records.result(unit), records.table(unit)
    if not place.exists():
        return
    result = records.scored(unit)
    if result is None or not _is_file_of(table, result["rows_sha256"]):
        place.unlink()
        yield place if result is None else table
    if result is not None:
        yield from _bad_analyses(records, records.of(unit), result["rows_sha256"])


def _bad_analyses(records: Records, folder: Place, rows: Any) -> Iterator[Place]:
    """Files of the analyses in a folder that are not what was written, or not of these rows."""
    for name in records.versions:
        place = folder / f"{name}.json"
        if not place.exists():
            continue
        record = whole(place)
        if record is None or record["rows_sha256"] != rows:
            bad = [place]
        else:
            files = {folder / name / file: digest for file, digest in record["files"].items()}
            bad = [path for path, digest in files.items() if not _is_file_of(path, digest)]
        if bad:
            place.unlink(missing_ok=True)
        yield from bad


def _bad_report(records: Records) -> Iterator[Place]:
    if not records.together.exists():
        return
    together = whole(records.together)
    if together is None:
        yield records.together
        return
    for file, digest in together.get("files", {}).items():  # there are none in an older record
        if not _is_file_of(records.folder / file, digest):
            yield records.folder / file


def _is_file_of(path: Place, digest: str) -> bool:
    return path.is_file() and sha256_file(path) == digest
