"""Where stages run, one file an executor, found by file name."""

from __future__ import annotations

from typing import Any

from cluster.executors.base import Executor
from pipeline.config import parse, to_plain
from pipeline.discovery import implementation, module_of
from pipeline.progress import Progress
from pipeline.settings import kind_of, parse_settings

PACKAGE, WHAT = "cluster.executors", "executor"


def executor_class(kind: str) -> type[Executor]:
    """The executor defined in ``cluster/executors/<kind>.py``.

    Raises:
        UserError: there is no such executor; lists the valid names.
    """
    return implementation(PACKAGE, kind, WHAT, Executor)


def check_executor(values: Any, where: str = "cluster") -> dict[str, Any]:
    """``{kind: <name>, …}`` with every value filled in and checked; waits for submitit only if it must.

    Raises:
        UserError: no or unknown ``kind``, unknown keys, values out of range.
    """
    kind, values = kind_of(values, where, PACKAGE, WHAT)
    settings = parse_settings(values, where, module_of(PACKAGE, kind, WHAT), lambda: executor_class(kind))
    return {"kind": kind, **to_plain(settings)}


def make_executor(values: Any, progress: Progress) -> Executor:
    """The executor that ``{kind: <name>, …}`` describes; errors as of :func:`check_executor`."""
    kind, values = kind_of(values, "cluster", PACKAGE, WHAT)
    cls = executor_class(kind)
    return cls(parse(cls.Config, values, "cluster"), progress)
