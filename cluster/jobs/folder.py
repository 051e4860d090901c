"""Where the job records of a stage lie."""

from __future__ import annotations

from pathlib import Path

from pipeline.errors import UserError
from stages.base import Stage


def jobs_folder(stage: Stage, shared: Path | None = None) -> Path:
    """The folder of a stage's job records and logs.

    Args:
        stage: whose.
        shared: where they are kept instead, for run folders that are no local path (``cluster.folder``).

    Raises:
        UserError: the run folder is a URL, and ``shared`` is not given.
    """
    if shared is not None:
        return shared / f"{stage.name}-{stage.digest[:12]}"
    if not isinstance(stage.folder, Path):
        raise UserError(
            f"{stage.name}: {stage.folder} is no local folder, and logs and claims of jobs need one that all machines "
            "share. Say where: cluster.folder=<a shared folder>."
        )
    return stage.folder.absolute() / "jobs"


def folder_of(stage: Stage, shared: Path | None) -> Path | None:
    """Its job records; None: it has none, because its run folder is no local one."""
    try:
        return jobs_folder(stage, shared)
    except UserError:
        return None
