"""The rows of an index of images: text with a delimiter, or Parquet."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pipeline.errors import UserError

ROWS_AT_A_TIME = 65_536  # of Parquet


def noun(path: Path) -> str:
    """What a row of the index is called."""
    return "row" if path.suffix == ".parquet" else "line"


def index_rows(path: Path, columns: Sequence[str], delimiter: str | None) -> Iterator[tuple[int, list[str]]]:
    """The number of each row (of its line in a text, else counted from 1) and its values of ``columns``, in order.

    Args:
        path: ``.parquet``, else text with a header line, UTF-8.
        columns: which are wanted.
        delimiter: of text; None = a comma, in ``.tsv`` a tab.

    Raises:
        UserError: no such column, a value that is missing or empty, a file of another kind; names row and column.
    """
    rows = _parquet(path, columns) if path.suffix == ".parquet" else _text(path, columns, delimiter)
    for number, values in rows:
        for column, value in zip(columns, values, strict=True):
            if value is None or not str(value).strip():
                raise UserError(
                    f"{path}, {noun(path)} {number}, column {column}: empty. Give it a value, or remove the row."
                )
        yield number, [str(value).strip() for value in values]


def _text(path: Path, columns: Sequence[str], delimiter: str | None) -> Iterator[tuple[int, list[Any]]]:
    sign = delimiter or ("\t" if path.suffix == ".tsv" else ",")
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, delimiter=sign, strict=True)
        try:
            header = [name.strip() for name in next(reader, [])]
            places = _places(path, header, columns, f"delimiter {sign!r}")
            for row in reader:
                if row and len(row) != len(header):
                    raise UserError(
                        f"{path}, line {reader.line_num}: {len(row)} values for {len(header)} columns. Quote values "
                        f'that hold the delimiter ({sign!r}) with "…", or set dataset.delimiter.'
                    )
                if row:
                    yield reader.line_num, [row[place] for place in places]
        except (csv.Error, UnicodeDecodeError) as error:
            raise UserError(
                f"{path}, after line {reader.line_num}: cannot be read ({error}). Save it as UTF-8 text."
            ) from None


def _parquet(path: Path, columns: Sequence[str]) -> Iterator[tuple[int, list[Any]]]:
    try:
        import pyarrow as arrow
        from pyarrow.parquet import ParquetFile
    except ImportError:
        raise UserError(f"{path}: reading Parquet needs pyarrow: pip install 'hedgerow[parquet]'") from None
    number = 0
    try:
        with ParquetFile(path) as file:
            _places(path, file.schema_arrow.names, columns, "Parquet")
            for batch in file.iter_batches(ROWS_AT_A_TIME, columns=list(columns)):
                for values in zip(*(batch.column(column).to_pylist() for column in columns), strict=True):
                    number += 1
                    yield number, list(values)
    except arrow.ArrowException as error:
        raise UserError(f"{path}, after row {number}: cannot be read as Parquet ({error}). Get it again.") from None


def _places(path: Path, header: Sequence[str], columns: Sequence[str], how: str) -> list[int]:
    for column in columns:
        if list(header).count(column) != 1:
            what = "no column" if column not in header else "more than one column"
            raise UserError(
                f"{path}: {what} {column!r}; read as {how} it has {', '.join(map(repr, header)) or 'none'}. "
                "Set dataset.path_column, dataset.label_column or dataset.key_column."
            )
    return [list(header).index(column) for column in columns]
