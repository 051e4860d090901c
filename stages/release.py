"""release: the head of one seed, its backbone and its results as a folder that anyone loads in two lines; one unit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field

from pipeline.backbones import make_backbone, parse_backbone, uncompiled
from pipeline.config import config
from pipeline.datasets import make_dataset
from pipeline.errors import UserError
from pipeline.fetching import local_copy
from pipeline.files import read_json, temporary_folder
from pipeline.places import LocalPath, Place
from pipeline.progress import Progress
from pipeline.release.bundle import CONFIG, Bundle, how_to_load, verify_bundle, write_bundle
from pipeline.release.licence import Include, Licence, backbone_licence
from pipeline.sealed import read_open
from pipeline.training.sweep import points, seed_folder
from stages.base import Stage, Status, Unit, make_stage

if TYPE_CHECKING:
    import torch

    from pipeline.backbones.base import Backbone
    from pipeline.release.model import ReleasedModel
    from pipeline.training.checkpoints import Checkpoint


class Release(Stage):
    """Put the bundle together, try it as a stranger would, and only then commit it."""

    name = "release"
    groups = ("dataset", "backbone", "head", "downstream")

    @config
    class Config:
        """What is released."""

        operational: ClassVar[frozenset[str]] = frozenset({"output"})

        name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")] = "model"  # of the bundle's folder
        title: str | None = None  # of the model card; default: head and backbone
        seed: int | None = None  # of the head that is released; default: the first of train_head.seeds
        include_backbone: Include = "auto"  # auto: if its licence permits and it is not too large
        max_backbone_mb: Annotated[float, Field(ge=0)] = 500  # what is too large for auto, in 10⁶ bytes
        backbone_licence: str | None = None  # SPDX identifier, where it is not known by itself
        output: LocalPath | None = None  # run folder; default runs/release-<digest>

    def inputs(self) -> tuple[str, ...]:
        """The trained head and its results."""
        return ("train_head", "evaluate")

    @property
    def folder(self) -> Path:
        """The run folder; local, because a bundle is renamed into place whole.

        Raises:
            UserError: runs are kept on an object store, and no local folder is given for this one.
        """
        place = super().folder
        if not isinstance(place, Path):
            raise UserError("release: a bundle is made on this machine. Set release.output=<local folder>.")
        return place

    @property
    def bundle(self) -> Path:
        """The released model."""
        return self.folder / str(self.config.name)

    @property
    def seed(self) -> int:
        """Which of the trained seeds is released."""
        chosen: int | None = self.config.seed
        return self.experiment.stages["train_head"].seeds[0] if chosen is None else chosen

    def _head_folder(self) -> Place:
        training = self.experiment.stages["train_head"]
        if self.seed not in training.seeds:
            raise UserError(f"release.seed={self.seed}: no such head. Valid: {', '.join(map(str, training.seeds))}.")
        if points(training)[0].values:
            raise UserError(
                "release: train_head.sweep trains heads at several points, and a release is one head. Set the chosen "
                "values as train_head.base_lr and train_head.weight_decay, with no sweep; the same head is trained."
            )
        return seed_folder(self.before("train_head").folder, self.seed)

    def plan(self) -> list[Unit]:
        """The bundle, unless it is there.

        Raises:
            UserError: no head of this seed is trained, or heads at several points, or a stage before is not done.
        """
        from pipeline.evaluation.contenders import describe

        if (self.bundle / CONFIG).exists():
            return []
        self._head_folder()
        for name in self.inputs():
            status = self.before(name).status()
            if status.total is None or status.done < status.total:
                raise UserError(f"release: {name} is not done in {self.before(name).folder}. Run: submit stage={name}")
        return [Unit(id=self.config.name, what=f"{describe(self.experiment.head)}, seed {self.seed}")]

    def run(self, unit: Unit, progress: Progress) -> None:
        """Write a candidate, load it, compare it with what was evaluated, write the bundle."""
        from pipeline.release.card import model_card
        from pipeline.training.checkpoints import read_checkpoint

        bar = progress.bar("release", 3, "steps")
        backbone = make_backbone(uncompiled(self.experiment.backbone))
        checkpoint = read_checkpoint(self._head_folder())
        bundle = self._assembled(checkpoint, backbone)
        bar.advance()
        with temporary_folder(self.folder / "candidate") as own:
            write_bundle(own / "model", bundle, "")
            found = self._checked(own / "model", backbone)
        bar.advance()
        config = {**bundle.config, "self_check": found}
        write_bundle(self.bundle, replace(bundle, config=config), model_card(config, folder_name=self.config.name))
        bar.advance()
        bar.close()

    def _assembled(self, checkpoint: Checkpoint, backbone: Backbone) -> Bundle:
        from pipeline.evaluation.contenders import describe
        from pipeline.release.assemble import assemble, carries
        from pipeline.release.card import kept_results

        licence = self._licence()
        about = make_dataset(self.experiment.dataset).about
        summary = checkpoint.record["summary"]
        return assemble(
            checkpoint,
            backbone,
            self.experiment.backbone,
            licence=licence,
            carried=carries(backbone, licence, self.config.include_backbone, self.config.max_backbone_mb),
            about={
                "title": self.config.title or f"{describe(self.experiment.head)} on {backbone.name}",
                "experiment": self.experiment.name,
                "digest": self.digest,
                "data": {**asdict(about), **self._trained_on(summary)},
                "results": kept_results(self._results),
            },
        )

    def _trained_on(self, summary: Mapping[str, Any]) -> Mapping[str, int]:
        """How many images of how many classes the head was trained on: of the store, or of the part that was named."""
        import numpy as np

        from pipeline.representation_store import RepresentationStore
        from pipeline.training.subset import limit

        upstream = RepresentationStore.open(self.before("cache").folder / "store")
        taken_N = limit(upstream, self.experiment.stages["train_head"]).takes_part
        if taken_N is None:
            return {"images": summary["rows"], "classes": summary["num_classes"]}
        label_N = np.concatenate([label_R for _, label_R in upstream.column("label")])[taken_N]
        return {"images": int(taken_N.sum()), "classes": len(np.unique(label_N[label_N >= 0]))}

    def _licence(self) -> Licence:
        given: str | None = self.config.backbone_licence
        if given is not None:
            return Licence(name=given.lower(), said_by="release.backbone_licence")
        return backbone_licence(parse_backbone(self.experiment.backbone))

    @cached_property
    def _results(self) -> list[Mapping[str, Any]]:
        results: list[Mapping[str, Any]] = read_open(self.before("evaluate").folder / "results.json")["results"]
        return results

    # -- the check

    def _checked(self, candidate: Path, alone: Backbone) -> Mapping[str, Any]:
        from pipeline.release.check import NOT_CHECKED, first_batch, self_check
        from pipeline.representation_store import RepresentationStore

        model = self._loaded(candidate, alone.device)
        upstream = RepresentationStore.open(self.before("cache").folder / "store")
        for name in self.experiment.downstream:
            scored = self._scored(name)
            images = first_batch(self._tars(name), scored, int(upstream.run["batch_size"]))
            if images:
                return self_check(model, alone, images, scored, stored_as=upstream.layout.dtype, dataset=name)
        return NOT_CHECKED

    def _loaded(self, bundle: Path, device: str | torch.device) -> ReleasedModel:
        from pipeline.release.model import load_model

        values = self.experiment.backbone
        weights = None if values.get("path") is None else Path(values["path"])
        return load_model(bundle, device=device, backbone_weights=weights, trusted=bool(values.get("trusted")))

    def _scored(self, dataset: str) -> dict[str, float]:
        """Key → the uncertainty that the evaluation stored for the released head."""
        import numpy as np

        from pipeline.evaluation.contenders import describe

        primary = next(
            item["primary"] for result in self._results for item in result["contenders"] if item["role"] == "head"
        )
        table = self.before("evaluate").folder / "rows" / f"{dataset}.npz"
        with local_copy(table) as local, np.load(local) as rows:
            column = rows[f"uncertainty/{describe(self.experiment.head)}/{self.seed}/{primary}"]
            return {key.decode(): float(value) for key, value in zip(rows["key"], column, strict=True)}

    def _tars(self, dataset: str) -> tuple[Place, ...]:
        """The tars that the evaluation packed of a downstream dataset."""
        from pipeline.images.packed import open_packed

        values = self.experiment.downstream[dataset]
        if values["kind"] == "webdataset":
            return open_packed(values).paths
        stages = {**self.experiment.stages, "pack": replace(self.experiment.stages["pack"], output=None)}
        packing = make_stage("pack", replace(self.experiment, dataset=values, stages=stages))
        return open_packed(packing.folder).paths

    # -- what people ask

    def status(self) -> Status:
        """Done when the bundle's config is there, which is renamed into place with all the rest."""
        done = (self.bundle / CONFIG).exists()
        return Status(done=int(done), total=1, done_ids=frozenset([self.config.name] if done else []))

    def verify(self, progress: Progress) -> list[str]:
        """Check every hash and load it; the config of a bad bundle goes, so that it is made again."""
        problems = verify_bundle(self.bundle)
        if not problems:
            try:
                self._loaded(self.bundle, "cpu")
            except UserError as error:
                problems = [str(error)]
        if problems:
            (self.bundle / CONFIG).unlink(missing_ok=True)
        return problems

    def summary(self) -> list[str]:
        """Where the model is, and the lines that load it."""
        load = how_to_load(
            self.bundle, read_json(self.bundle / CONFIG)["backbone"], self.experiment.backbone.get("path")
        )
        return [
            f"release: {self.bundle}",
            "  import hedgerow",
            f"  model = {load}",
            "  embedding, uncertainty = model(images)",
        ]
