"""``submit [verb] key=value …``: the command line. ``submit --help`` explains it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from cluster.chain import chain
from cluster.compose import compose
from cluster.help import page
from cluster.overrides import ALL, CommandLine, read
from cluster.progress import progress_on
from cluster.verbs import verb
from cluster.verbs.base import DONE, FAILED, INTERRUPTED, TERMINATED, USAGE, Request, UsageError
from pipeline.errors import UserError
from pipeline.interruption import Interrupted


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says; gives the exit code."""
    try:
        code = _run(sys.argv[1:] if arguments is None else list(arguments))
        sys.stdout.flush()
    except BrokenPipeError:  # whoever reads has read enough, as in `submit --help | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what Python writes as it ends goes there
        return FAILED
    return code


def _run(arguments: Sequence[str]) -> int:
    try:
        line = read(arguments)
        if line.help or not arguments:
            print(page(line))
            return DONE if line.help else USAGE
        request = understand(line)
    except UserError as error:
        return _complain(error, USAGE)
    try:
        return verb(line.verb)(request)
    except UserError as error:
        return _complain(error, USAGE if isinstance(error, UsageError) else FAILED)
    except (KeyboardInterrupt, Interrupted) as stop:
        print(f"\nstopped; what is done stays done, and this goes on:\n  {line.command()}", file=sys.stderr)
        return TERMINATED if isinstance(stop, Interrupted) else INTERRUPTED


def understand(line: CommandLine) -> Request:
    """Compose the config of a command line and order its stages.

    Raises:
        UserError: it does not compose, or its values are wrong.
    """
    composed = compose(line.overrides, folders=line.folders)
    stages = chain(line.stages or (ALL,), composed.experiment)
    return Request(line=line, composed=composed, stages=stages, progress=progress_on())


def _complain(error: UserError, code: int) -> int:
    print(f"submit: {error}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
