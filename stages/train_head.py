"""train_head: representation store → one trained head a seed and point of a sweep, all in one pass; one unit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pipeline.config import config
from pipeline.errors import UserError
from pipeline.places import OutputPlace, Place
from pipeline.progress import Progress
from pipeline.training.config import TrainingConfig
from pipeline.training.log import TrainingLog
from pipeline.training.state import state_step
from pipeline.training.subset import SubsetConfig, check_names, content, limit
from pipeline.training.sweep import RECORD, head_folders, points, was_trained
from stages.base import Stage, Status, Unit

if TYPE_CHECKING:
    from pipeline.heads.base import LinearClassifier

HEADS = "heads"  # id of the one unit


class TrainHead(Stage):
    """Train the experiment's head on the cached representations; the images and the backbone are not touched."""

    name = "train_head"
    groups = ("dataset", "backbone", "head")
    by_ranks = True
    resumes_units = True

    @config
    class Config(SubsetConfig, TrainingConfig):
        """The training, whose losses it learns from, on which rows, and where the heads lie."""

        operational: ClassVar[frozenset[str]] = TrainingConfig.operational | {"output"}
        task_loss: Literal["classifier", "probe"] = "classifier"  # the backbone's own class head, or out of fold
        output: OutputPlace | None = None  # run folder; default runs/train_head-<digest>

    @property
    def process_group(self) -> bool:
        """DeepSpeed does."""
        return bool(self.config.engine == "deepspeed")

    def inputs(self) -> tuple[str, ...]:
        """The store of the cache, with the probe's losses in it where they are asked for."""
        return ("cache", "probe") if self.config.task_loss == "probe" else ("cache",)

    def meaning(self) -> Mapping[str, Any]:
        """Of files that name rows, what they hold decides as well."""
        files = content(self.config)
        return {**super().meaning(), **({"files": files} if files else {})}

    @property
    def store_path(self) -> Place:
        """The representation store."""
        return self.before("cache").folder / "store"

    def head_folders(self) -> list[Place]:
        """Where the heads lie: of each point of a sweep, of each seed."""
        return head_folders(self.folder, self.config)

    def plan(self) -> list[Unit]:
        """The whole run, unless every head is there.

        Raises:
            UserError: a stage before is not done, or its store has not the classes or units that are asked for.
        """
        from pipeline.representation_store import RepresentationStore

        if self._done():
            return []
        for name in self.inputs():
            status = self.before(name).status()
            if status.total is None or status.done < status.total:
                raise UserError(
                    f"train_head: {name} is not done in {self.before(name).folder}. Run: submit stage={name}"
                )
        check_names(RepresentationStore.open(self.store_path), self.config)
        seeds = ", ".join(str(seed) for seed in self.config.seeds)
        left = (self.config.total_steps - state_step(self.folder)) * self.config.batch_size
        places = [point.name for point in points(self.config) if point.name]
        at = f" at each of {', '.join(places)}" if places else ""
        return [Unit(id=HEADS, what=f"{self.experiment.head['kind']}, seeds {seeds}{at}", samples=left)]

    def run(self, unit: Unit, progress: Progress) -> None:
        """Train all seeds side by side; goes on at the last checkpoint.

        Where a process group has been initialised, all its processes run the unit together, see :mod:`pipeline.world`.
        """
        from pipeline.representation_store import RepresentationStore
        from pipeline.training.loop import train
        from pipeline.training.summary import summarise
        from pipeline.world import current_world

        with current_world().together():
            store = limit(RepresentationStore.open(self.store_path), self.config)
            summary = summarise(store, self._classifier())
        train(
            store=store,
            head=self.experiment.head,
            config=self.config,
            summary=summary,
            folder=self.folder,
            progress=progress,
        )

    def _classifier(self) -> LinearClassifier | None:
        from pipeline.backbones import make_backbone
        from pipeline.heads import make_head
        from pipeline.probing.saved import load_probe

        if not make_head(self.experiment.head).needs.classifier:
            return None
        if self.config.task_loss == "probe":
            return load_probe(self.before("probe").folder)
        return make_backbone(self.experiment.backbone).classifier()

    def _done(self) -> bool:
        return all((folder / RECORD).exists() for folder in self.head_folders())

    def status(self) -> Status:
        """Done or not, and the samples that each head has seen by the last checkpoint."""
        done = self._done()
        steps = self.config.total_steps if done else state_step(self.folder)
        trained = not done or was_trained(self.head_folders()[0])
        return Status(
            done=int(done),
            total=1,
            samples=steps * self.config.batch_size if trained else 0,
            done_ids=frozenset([HEADS] if done else []),
        )

    def verify(self, progress: Progress) -> list[str]:
        """Load every head against its hash; the record of a bad one is removed, so that the run is made again."""
        from pipeline.training.checkpoints import load_head

        problems = []
        for folder in self.head_folders():
            try:
                load_head(folder)
            except UserError as error:
                problems.append(f"unit {HEADS}: {error}")
                (folder / RECORD).unlink(missing_ok=True)
        return problems

    def summary(self) -> list[str]:
        """Final loss and speed of each seed, and where the heads lie."""
        from pipeline.training.loop import LOG

        lines = []
        named = ((point.name, seed) for point in points(self.config) for seed in self.config.seeds)
        for (point, seed), folder in zip(named, self.head_folders(), strict=True):
            logged = TrainingLog(folder / LOG).rows()
            if logged:
                last, speed = logged[-1], max(row["samples_per_second"] for row in logged)
                name = f"{point} seed {seed}".strip()
                lines.append(f"train_head: {name}: final loss {last['loss']:.4f}, up to {speed:,.0f} samples/s")
        return [*lines, f"train_head: {self.folder}"]
