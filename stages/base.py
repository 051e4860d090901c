"""What a stage is: it plans the units still missing, runs them one by one, and says where its artefact lies.

Stages never import each other: they meet on disk. A stage finds the artefact before it by asking
:meth:`Stage.before` for the folder, which is a function of the resolved config alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

from pipeline.config import meaning, to_plain
from pipeline.digests import digest
from pipeline.discovery import implementation, names
from pipeline.estimate import Estimate
from pipeline.places import Place
from pipeline.progress import Progress
from pipeline.run_record import RUN_RECORD, check_record, refuse_other


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """The whole resolved config, as every stage sees it.

    Attributes:
        name: of the experiment file.
        data_root: where datasets lie; ``dataset`` roots are below it by default.
        runs_root: where run folders are made.
        dataset: ``{kind, …}`` of the upstream dataset, as for :func:`pipeline.datasets.make_dataset`.
        backbone: ``{…}`` as for :func:`pipeline.backbones.make_backbone`.
        head: ``{kind, …}`` as for :func:`pipeline.heads.make_head`.
        downstream: name → ``{kind, …}`` of the datasets that are evaluated.
        compare: name → ``{kind, …}`` of further heads that the report sets beside ``head``.
        beside: name → ``{…}`` of further backbones whose stores the cache fills in the same pass over the images.
        stages: name → checked config of each stage.
        settings: words of the command line that asked for it, to be said again; they decide nothing. Those that say
            on which machines, and below which ``runs_root``, are left out: reports of one experiment are the same bytes
            wherever they were made.
    """

    name: str
    data_root: Place
    runs_root: Place
    dataset: Mapping[str, Any]
    backbone: Mapping[str, Any]
    head: Mapping[str, Any]
    downstream: Mapping[str, Mapping[str, Any]]
    compare: Mapping[str, Mapping[str, Any]]
    stages: Mapping[str, Any]
    beside: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    settings: tuple[str, ...] = ()

    def with_head(self, head: Mapping[str, Any]) -> Experiment:
        """The same experiment with another head."""
        return replace(self, head=head)


@dataclass(frozen=True, kw_only=True)
class Unit:
    """What is scheduled, committed, verified and retried: idempotent, and deterministic in its bytes."""

    id: str  # stable and printable: the tar's index, the dataset's name
    what: str  # for a person: "clip-art/00003.tar"
    samples: int | None = None
    bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class Status:
    """How far a stage is, read from commit records."""

    done: int
    total: int | None  # None: not known before the stage before it is done
    samples: int = 0
    quarantined: int = 0
    failed: Mapping[str, str] = field(default_factory=dict)  # unit id → reason
    done_ids: frozenset[str] = field(default=frozenset(), compare=False)  # of the units that are done


@dataclass(frozen=True, kw_only=True)
class SetAside:
    """A sample that the finished work leaves out."""

    unit: str  # its id
    tar: str
    key: str
    reason: str


class Stage(ABC):
    """One stage of one experiment. Construction reads nothing from disk and is cheap.

    A subclass is found by its file name, and defines ``Config`` (made with :func:`pipeline.config.config`, with an
    operational field ``output: OutputPlace | None = None``) and ``groups``: the parts of the experiment it depends on.
    """

    name: ClassVar[str]
    Config: ClassVar[type[Any]]
    groups: ClassVar[tuple[str, ...]] = ()  # of: dataset, backbone, head, downstream, compare
    side_by_side: ClassVar[bool] = False  # whether several processes may run units of it at once
    by_ranks: ClassVar[bool] = False  # whether one unit may be run by several processes of one process group
    resumes_units: ClassVar[bool] = False  # whether a unit that was interrupted goes on and does not begin anew

    def __init__(self, experiment: Experiment) -> None:
        self.experiment = experiment
        self.config = experiment.stages[self.name]

    @property
    def process_group(self) -> bool:
        """Whether a process that works alone needs a process group of torch.distributed all the same."""
        return False

    # -- where it stands in the chain

    @abstractmethod
    def inputs(self) -> tuple[str, ...]:
        """Names of the stages whose artefact this one reads."""

    def before(self, name: str) -> Stage:
        """The stage called ``name`` of the same experiment (to ask for its folder)."""
        return make_stage(name, self.experiment)

    def meaning(self) -> Mapping[str, Any]:
        """Everything that decides the result, as plain values; its digest names the run folder."""
        return {
            "stage": self.name,
            "config": meaning(self.config),
            **{group: self._group(group) for group in self.groups},
            "inputs": {name: self.before(name).digest for name in self.inputs()},
        }

    def _group(self, group: str) -> Any:
        from pipeline.backbones import parse_backbone  # with its base classes, `submit --help` need not wait for it

        values = getattr(self.experiment, group)
        # on which device a backbone runs is no part of what it is
        return meaning(parse_backbone(values)) if group == "backbone" else to_plain(values)

    @cached_property  # a stage's is asked for often, and that of all stages before it with it
    def digest(self) -> str:
        """Hex SHA-256 of :meth:`meaning`."""
        return digest(self.meaning())

    @property
    def folder(self) -> Place:
        """The run folder: stage name and config digest, unless the config says ``output``."""
        output: Place | None = self.config.output
        return output if output is not None else self.experiment.runs_root / f"{self.name}-{self.digest[:12]}"

    # -- the work

    def prepare(self) -> None:
        """Make the run folder and its record, or refuse a folder that holds another config's work.

        Raises:
            UserError: the folder's record has another digest; the message is the difference.
        """
        refuse_other(self.folder / RUN_RECORD, self.meaning(), self.name)

    @abstractmethod
    def plan(self) -> list[Unit]:
        """The units still missing, read from disk now. Empty when the stage is done.

        Raises:
            UserError: what it needs is not there; says what, where and what to do.
        """

    def estimate(self, batches: int) -> Estimate | None:
        """What the missing units will take; None: nobody has thought about it.

        Args:
            batches: that are worked here to see how long they take, without storing anything; 0 = none.
        """
        return None

    def sources(self) -> Mapping[str, str]:
        """The collections of images that it has yet to read from their folders: name → what is wrong; "" = nothing."""
        return {}

    def lacks(self, unit: Unit) -> bool:
        """Whether a unit is still missing; like asking :meth:`plan`, and cheaper where a stage can."""
        return any(missing.id == unit.id for missing in self.plan())

    @abstractmethod
    def run(self, unit: Unit, progress: Progress) -> None:
        """Do one unit and commit it. Killed at any moment, running it again gives the same bytes."""

    def forget_failure(self, unit: str) -> bool:
        """Take away the record of why a unit failed; whether there was one. A stage that keeps none tries it anyway."""
        return False

    def finish(self, progress: Progress) -> None:
        """What is to do once, when no unit is missing; idempotent."""

    # -- what people ask

    @abstractmethod
    def status(self) -> Status:
        """How far it is; cheap, and true while others work."""

    def set_aside(self) -> Iterator[SetAside]:
        """The samples that are left out of what is done, in order, with the reason of each."""
        return iter(())

    def verify(self, progress: Progress) -> list[str]:
        """What is wrong with the finished work, a line each naming the unit; empty when all is well."""
        return []

    def verify_record(self) -> list[str]:
        """What is wrong with the record of the run folder; a damaged one is set aside, so that it is made again."""
        return check_record(self.folder / RUN_RECORD)

    def recompute(self, rows: int, seed: int, progress: Progress) -> list[str] | None:
        """Make ``rows`` random rows again and compare them with what is stored; a line each that differs.

        What differs is set aside as by :meth:`verify`. None: this stage has no rows that can be made again one by one.
        """
        return None

    def summary(self) -> list[str]:
        """Lines that are shown when the stage is done: what came out, and where it lies."""
        return [f"{self.name}: {self.folder}"]


def stage_names() -> list[str]:
    """The stages there are, in alphabetical order."""
    return names("stages")


def stage_class(name: str) -> type[Stage]:
    """The stage defined in ``stages/<name>.py``.

    Raises:
        UserError: there is no such stage; lists the valid names.
    """
    return implementation("stages", name, "stage", Stage)


def make_stage(name: str, experiment: Experiment) -> Stage:
    """The stage called ``name`` of ``experiment``."""
    return stage_class(name)(experiment)


def is_done(stage: Stage) -> bool:
    """No unit of the stage is missing."""
    status = stage.status()
    return status.total is not None and status.done >= status.total


def complete(stage: Stage, progress: Progress) -> None:
    """Do what is missing of a stage here and now, after what is missing of the stages that it reads."""
    for name in stage.inputs():
        complete(stage.before(name), progress)
    if not is_done(stage):
        stage.prepare()
        for unit in stage.plan():
            stage.run(unit, progress)
    stage.finish(progress)
