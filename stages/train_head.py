"""train_head: representation store → one trained head a seed and point of a sweep, all in one pass; one unit."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle
from typing import Any, ClassVar, Literal

from pipeline.config import config
from pipeline.errors import UserError
from pipeline.places import OutputPlace, Place
from pipeline.progress import Progress
from pipeline.training.config import TrainingConfig
from pipeline.training.log import TrainingLog
from pipeline.training.state import state_step
from pipeline.training.subset import SubsetConfig, check_names, content, has_parts, limit
from pipeline.training.sweep import RECORD, head_folders, points, was_trained
from stages.base import Stage, Status, Unit

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
        later: ClassVar[frozenset[str]] = SubsetConfig.later | {"init_from", "tuned"}
        task_loss: Literal["classifier", "probe"] = "classifier"  # the backbone's own class head, or out of fold
        # a head whose weights are trained on: folder of a released model, of one head, or of a run with the same seeds
        init_from: Place | None = None
        tuned: bool = False  # take the learning rate and the head's settings that stage=tune has chosen
        output: OutputPlace | None = None  # run folder; default runs/train_head-<digest>

    @property
    def process_group(self) -> bool:
        """DeepSpeed does."""
        return bool(self.config.engine == "deepspeed")

    def inputs(self) -> tuple[str, ...]:
        """The store of the cache, with the probe's losses in it where they are asked for; and what tune has chosen."""
        probed, tuned = self.config.task_loss == "probe", self.config.tuned
        return ("cache", *(["probe"] if probed else []), *(["tune"] if tuned else []))

    @property
    def trained(self) -> tuple[Mapping[str, Any], TrainingConfig]:
        """The head that is trained, and its training: as they stand, or as they were chosen.

        Raises:
            UserError: nothing has been chosen yet.
        """
        if not self.config.tuned:
            return self.experiment.head, self.config
        from pipeline.tuning.choice import read_choice
        from pipeline.tuning.trial import applied

        values = read_choice(self.before("tune").folder)["values"]
        chosen = applied(self.experiment.head, self.config, values)
        return chosen.head, chosen.training

    def meaning(self) -> Mapping[str, Any]:
        """Of files that name rows, and of heads to start from, what they hold decides as well."""
        files = dict(content(self.config))
        if self.config.init_from is not None:
            from pipeline.training.initial_records import initial_content

            files["init_from"] = initial_content(self.config.init_from, self.config.seeds)
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
        from pipeline.training.initial import read_initial, refuse_other_backbone

        if self._done():
            return []
        if self.config.tuned and any(vars(self.config.sweep).values()):
            raise UserError("train_head.tuned: the learning rate is the one that tune has chosen; leave sweep out.")
        for name in self.inputs():
            status = self.before(name).status()
            if status.total is None or status.done < status.total:
                raise UserError(
                    f"train_head: {name} is not done in {self.before(name).folder}. Run: submit stage={name}"
                )
        self._refuse_leak()
        store = RepresentationStore.open(self.store_path)
        check_names(store, self.config)
        if self.config.init_from is not None:
            refuse_other_backbone(read_initial(self.config.init_from, self.config.seeds), store)
        seeds = ", ".join(str(seed) for seed in self.config.seeds)
        left = (self.config.total_steps - state_step(self.folder)) * self.config.batch_size
        places = [point.name for point in points(self.config) if point.name]
        at = f" at each of {', '.join(places)}" if places else ""
        return [Unit(id=HEADS, what=f"{self.experiment.head['kind']}, seeds {seeds}{at}", samples=left)]

    def _refuse_leak(self) -> None:
        """Few-shot with the losses of a probe that was fitted on rows that are left for the test as well."""
        from pipeline.heads import make_head

        kind, ours, probe = self.experiment.head["kind"], self.config, self.experiment.stages["probe"]
        if not ours.shots or ours.task_loss != "probe" or not make_head(self.experiment.head).needs.task_loss:
            return
        on_shots = (probe.shots, probe.shots_seed) == (ours.shots, ours.shots_seed)
        if not on_shots or has_parts(ours):
            parts = ", and without train_head.only_…, of which the probe knows nothing" if has_parts(ours) else ""
            raise UserError(
                f"train_head.shots: the head {kind} learns from task losses, and those of this probe know the labels "
                "of rows that are left for the test. Fit the probe on the shots alone: stage=[probe,train_head,…] "
                f"probe.shots={ours.shots} probe.shots_seed={ours.shots_seed}{parts} (a store has the scores of one "
                "probe; cache.output=<folder> makes another store). Or take a head that learns from labels "
                "(cross_entropy, elk, nivmf, mc_info_nce, info_nce, hib), or, where the backbone's own class head "
                "knows these classes, train_head.task_loss=classifier."
            )

    def run(self, unit: Unit, progress: Progress) -> None:
        """Train all seeds side by side; goes on at the last checkpoint.

        Where a process group has been initialised, all its processes run the unit together, see :mod:`pipeline.world`.
        """
        from pipeline.representation_store import RepresentationStore
        from pipeline.training.initial import read_initial
        from pipeline.training.loop import train
        from pipeline.training.summary import classifier_for, summarise
        from pipeline.world import current_world

        with current_world().together():
            store = limit(RepresentationStore.open(self.store_path), self.config)
            summary = summarise(store, classifier_for(self.experiment.head, self._probe, self.experiment.backbone))
            place = self.config.init_from
            initial = None if place is None else read_initial(place, self.config.seeds)
        head, config = self.trained
        train(
            store=store,
            head=head,
            config=config,
            summary=summary,
            folder=self.folder,
            progress=progress,
            initial=initial,
        )

    @property
    def _probe(self) -> Place | None:
        return self.before("probe").folder if self.config.task_loss == "probe" else None

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
        for folder, seed in zip(self.head_folders(), cycle(self.config.seeds), strict=False):
            try:
                wrong = "" if (found := load_head(folder).seed) == seed else f"{folder} holds the head of seed {found}"
            except UserError as error:
                wrong = str(error)
            if wrong:
                problems.append(f"unit {HEADS}: {wrong}")
                (folder / RECORD).unlink(missing_ok=True)
        return problems

    def summary(self) -> list[str]:
        """Final loss and speed of each seed, and where the heads lie."""
        from pipeline.training.loop import LOG

        lines = []
        named = ((point.name, seed) for point in points(self.config) for seed in self.config.seeds)
        for (point, seed), folder in zip(named, self.head_folders(), strict=True):
            logged = TrainingLog(folder / LOG).rows()
            if logged and {"loss", "samples_per_second"} <= logged[-1].keys():  # its header is whole
                last, speed = logged[-1], max(row["samples_per_second"] for row in logged)
                name = f"{point} seed {seed}".strip()
                lines.append(f"train_head: {name}: final loss {last['loss']:.4f}, up to {speed:,.0f} samples/s")
        return [*lines, f"train_head: {self.folder}"]
