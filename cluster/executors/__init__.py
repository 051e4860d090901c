"""Where stages run, one file an executor, found by file name."""

from __future__ import annotations

from typing import Any

from cluster.executors.base import Executor
from pipeline.config import parse
from pipeline.discovery import implementation, names
from pipeline.errors import UserError
from pipeline.progress import Progress


def parse_executor(values: Any, where: str = "cluster") -> tuple[str, Any]:
    """``{kind: <name>, …}`` → the executor's name and its checked config.

    Raises:
        UserError: no or unknown ``kind``, unknown keys, values out of range.
    """
    values = dict(values)
    kind = str(values.pop("kind", ""))
    if not kind:
        raise UserError(f"{where}.kind: needs the name of an executor. Valid: {', '.join(names('cluster.executors'))}.")
    return kind, parse(executor_class(kind).Config, values, where)


def executor_class(kind: str) -> type[Executor]:
    """The executor defined in ``cluster/executors/<kind>.py``.

    Raises:
        UserError: there is no such executor; lists the valid names.
    """
    return implementation("cluster.executors", kind, "executor", Executor)


def make_executor(values: Any, progress: Progress) -> Executor:
    """The executor that ``{kind: <name>, …}`` describes."""
    kind, config = parse_executor(values)
    return executor_class(kind)(config, progress)
