"""What an executor is: it gets stages in the order of the chain and sees to it that their missing units are run.

It knows no stage: only :meth:`~stages.base.Stage.plan`, ``run`` and their like. What is done is read from disk, so an
executor may be killed at any moment and the same command goes on.
"""

from __future__ import annotations

import errno
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from omegaconf import OmegaConf

from pipeline.files import write_bytes
from pipeline.progress import Progress
from stages.base import Stage

RESOLVED = "config.yaml"


@dataclass(frozen=True, kw_only=True)
class Submission:
    """What is to be run.

    Attributes:
        stages: in the order of the chain, under the words that choose them; each starts when those it reads are done.
        resolved: the whole config as plain values, kept in every run folder for the record.
        command: what goes on with the work after an interruption.
    """

    stages: Mapping[str, Stage]
    resolved: Mapping[str, Any]
    command: str


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of a submission.

    Attributes:
        lines: what the user should see: results and folders, or job ids.
        failed: stage or "stage unit" → reason; empty when all is well.
    """

    lines: tuple[str, ...] = ()
    failed: Mapping[str, str] = field(default_factory=dict)


def write_resolved(stage: Stage, submission: Submission) -> None:
    """Keep the whole config in the run folder, for people; not in a folder where this user may only read."""
    plain = OmegaConf.to_yaml(OmegaConf.create(dict(submission.resolved)))
    try:
        write_bytes(stage.folder / RESOLVED, plain.encode())
    except OSError as error:  # of somebody else, perhaps, and done: what is still to do there says so itself
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise


class Executor(ABC):
    """One file an executor: ``cluster.kind=<name>`` finds ``cluster/executors/<name>.py``.

    A subclass defines a nested ``Config`` (made with :func:`pipeline.config.config`): the site's settings.
    """

    Config: ClassVar[type[Any]]

    def __init__(self, config: Any, progress: Progress) -> None:
        self.config = config
        self.progress = progress

    @abstractmethod
    def submit(self, submission: Submission) -> Outcome:
        """Run the stages, or hand them to those who will. Units that fail are in the outcome, not raised."""
