"""``submit [verb] key=value …``: the command line. ``submit --help`` explains it."""

from __future__ import annotations

import errno
import os
import shlex
import sys
from collections.abc import Sequence

from cluster.chain import chain
from cluster.compose import compose
from cluster.help import page
from cluster.overrides import ALL, DEFAULT_VERB, CommandLine, read
from cluster.progress import progress_on
from cluster.streams import show_what_can_be_shown
from cluster.verbs import verb
from cluster.verbs.base import DONE, FAILED, INTERRUPTED, TERMINATED, USAGE, Request, UsageError
from pipeline.errors import UserError
from pipeline.interruption import Interrupted

#: What a disk or an administrator may say, and no fault of the program: no room, not permitted, a broken disk, …
REFUSALS = frozenset(
    {
        *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, errno.ESTALE),
        *(errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.EMFILE, errno.ENFILE, errno.ELOOP, errno.EEXIST),
        *(errno.EAGAIN, errno.ENOMEM, errno.ENOLCK, errno.EBUSY, errno.EMLINK, errno.ENXIO, errno.ENODEV),
        # of network disks and FUSE: the server is away; a name or an operation that it does not have
        *(errno.ENOTCONN, errno.ETIMEDOUT, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETDOWN, errno.ENETUNREACH),
        *(errno.EREMOTEIO, errno.EILSEQ, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP),
    }
)
NO_THREAD = "can't start new thread"  # Python's words where the system says EAGAIN


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says; gives the exit code."""
    show_what_can_be_shown()
    try:
        code = _run(sys.argv[1:] if arguments is None else list(arguments))
        if sys.stdout is not None:  # as it is where standard output was closed
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
    except (OSError, MemoryError, RuntimeError) as error:
        refusal = _refusal(error)
        if not refusal:
            raise
        print(
            f"submit: the system refuses ({refusal}). What is done stays done; once that is mended, this "
            f"goes on:\n  {_again(line, arguments)}",
            file=sys.stderr,
        )
        return FAILED
    except (KeyboardInterrupt, Interrupted) as stop:
        again = _again(line, arguments)
        print(f"\nstopped; what is done stays done, and this goes on:\n  {again}", file=sys.stderr)
        return TERMINATED if isinstance(stop, Interrupted) else INTERRUPTED


def _refusal(error: OSError | MemoryError | RuntimeError) -> str:
    """What the system, not the program, does not want to do; "" where it is no such error."""
    if isinstance(error, OSError):
        where = f": {error.filename}" if error.filename else ""
        return f"{error.strerror}{where}" if error.errno in REFUSALS else ""
    if isinstance(error, MemoryError):
        return f"out of memory: {error}" if str(error) else "out of memory"
    return f"{error}: too many processes or threads of this user or container" if str(error) == NO_THREAD else ""


def _again(line: CommandLine, arguments: Sequence[str]) -> str:
    """The command that goes on: of a verb, what was written; else what ``submit`` says itself when it is done."""
    return line.command() if line.verb == DEFAULT_VERB else shlex.join(["submit", *arguments])


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
