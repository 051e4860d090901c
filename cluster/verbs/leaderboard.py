"""put several evaluations into one table and its plots: runs=[a,b] into=c"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from cluster.verbs.base import DONE, Request
from pipeline.config import config
from pipeline.places import OutputPlace, Place


@config
class Options:
    """What is compared, and where the table goes."""

    # Run folders of stage=evaluate. Runs of the same method that differ in their seeds become one entry.
    runs: Annotated[tuple[Place, ...], Field(min_length=1)]
    # Folder for leaderboard.html, .md, .csv and .tex, and plots/.
    into: OutputPlace
    # Compare on the datasets that heads were trained on, and not on the downstream ones.
    upstream: bool = False


def run(request: Request) -> int:
    """Gather, write, and show the table."""
    from pipeline.leaderboard import read_board, write_board  # here, so that the help page need not wait for torch
    from pipeline.leaderboard.tables import as_markdown

    options: Options = request.line.options
    board = read_board(options.runs, upstream=options.upstream)
    runs = ",".join(map(str, options.runs))
    more = " upstream=true" if options.upstream else ""
    paths = write_board(options.into, board, f"submit leaderboard runs=[{runs}] into={options.into}{more}")
    print(as_markdown(board))
    for path in paths:
        print(path)
    return DONE
