"""The leaderboard's files: a page that needs nothing beside it, its plots, and the table in three forms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pipeline.files import write_bytes
from pipeline.leaderboard.entries import Board, Entry
from pipeline.leaderboard.plots import bars, histograms, scatter
from pipeline.leaderboard.runs import RESULTS
from pipeline.leaderboard.tables import aliases, as_csv, as_latex, as_markdown, table, undefined
from pipeline.places import Place
from pipeline.report.build import ready_figure, render
from pipeline.report.parts import Figure
from pipeline.sealed import read_open

FILES = ("leaderboard.html", "leaderboard.md", "leaderboard.csv", "leaderboard.tex")


def write_board(folder: Place, board: Board, command: str) -> list[Place]:
    """Write everything into ``folder``; the paths, plots left out.

    Args:
        folder: where.
        board: what.
        command: that makes it again, for the page.
    """
    plots = [ready_figure(folder, "leaderboard", figure) for figure in _figures(board)]
    page = render(
        "leaderboard.html",
        title="Leaderboard",
        command=command,
        datasets=[(name, board.rows[name]) for name in board.datasets],
        main=table(board),
        aliases=aliases(board),
        undefined=undefined(board),
        plots=plots,
        runs=sorted({str(run) for entry in board.entries for run in entry.runs}),
    )
    texts = dict(zip(FILES, (page, as_markdown(board), as_csv(board), as_latex(board)), strict=True))
    for name, text in texts.items():
        write_bytes(folder / name, text.encode())
    return [folder / name for name in texts]


def _figures(board: Board) -> Iterator[Figure]:
    yield scatter(board)
    yield bars(board)
    for dataset in board.datasets:
        if found := {entry: counts for entry in board.entries if (counts := _histogram(entry, dataset))}:
            yield histograms(dataset, found)


def _histogram(entry: Entry, dataset: str) -> Mapping[str, Any] | None:
    """What the first run that has it stored of an entry's uncertainties on a dataset."""
    for run in entry.runs:
        for result in read_open(run / RESULTS)["results"]:
            record = result.get("analyses", {}).get("histograms") or {}
            found: Mapping[str, Any] = record.get("values") or {}
            if result["dataset"] == dataset and entry.called[run] in found:
                counts: Mapping[str, Any] = found[entry.called[run]]
                return counts
    return None
