"""The command of a reproduction: runs that are missing, then its tables, its bars and its plot.

Stopped at any moment, the same command goes on.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.reproductions.runs import Plan, Work, found, overrides_of, perform
from benchmarks.reproductions.tables import bars_of, show
from cluster.streams import show_what_can_be_shown
from pipeline.errors import UserError

Results = Mapping[str, Sequence[dict[str, Any]]]  # row → the results of its seeds


@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """What differs between reproductions.

    Attributes:
        name: of its file in ``configs/reproduction`` and of its folder below ``runs/reproductions``.
        about: the first line of its help.
        settings: config class of a run.
        work: from the command line's options, what does a run; looks at what it needs before anything is computed.
        table: rows of a table, results, the paper's numbers → Markdown.
        draw: results, folder → the plot of the first table, where there is something to draw.
        more: options of its own.
    """

    name: str
    about: str
    settings: type[Any]
    work: Callable[[argparse.Namespace], Work]
    table: Callable[[Sequence[str], Results, Mapping[str, Any]], str]
    draw: Callable[[Results, Path], None]
    more: Callable[[argparse.ArgumentParser], object] = lambda parser: None

    def main(self) -> int:
        """Do what the command line says; gives the exit code."""
        show_what_can_be_shown()
        plan = Plan.read(self.name)
        options = self._parser(plan).parse_args()
        try:
            plan = replace(plan, seeds=options.seeds)
            runs = plan.runs(self.settings, options.tables, overrides_of(options.settings))
            if not options.show:
                perform(self.work(options), runs, options.output, options.workers)
            results = found(runs, options.output)
            parts = {table: self.table(plan.tables[table], results, plan.paper) for table in options.tables}
            if all({bar["row"], bar.get("over", bar["row"])} <= set(runs) for bar in plan.bars):
                parts = {"bars": bars_of(plan.bars, results), **parts}  # else a report would lose what others reached
            show(parts, options.report)
            if next(iter(plan.tables)) in options.tables:
                self.draw(results, options.report.parent if options.report else options.output)
        except UserError as error:
            print(error, file=sys.stderr)
            return 2
        except KeyboardInterrupt:
            print("\nstopped; the same command goes on", file=sys.stderr)
            return 130
        return 0

    def _parser(self, plan: Plan) -> argparse.ArgumentParser:
        made = argparse.ArgumentParser(description=self.about, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
        made.add_argument("settings", nargs="*", metavar="name=value", help="settings that hold for every run")
        made.add_argument("--tables", nargs="+", default=list(plan.tables), help="which of them")
        made.add_argument("--seeds", type=int, nargs="+", default=list(plan.seeds), help="a run each")
        made.add_argument(
            "--output",
            type=Path,
            default=Path("runs/reproductions", self.name),
            help="results; runs that are there are not repeated",
        )
        made.add_argument("--workers", type=int, default=1, help="runs at a time, of one thread each")
        made.add_argument("--report", type=Path, help="also put the tables into this document, and the plot beside it")
        made.add_argument("--show", action="store_true", help="print the tables of what is there, run nothing")
        self.more(made)
        return made
