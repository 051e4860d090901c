"""The collections that are evaluated: which there are, and where their stores, images and annotations lie.

A downstream dataset is packed and cached by the very stages ``pack`` and ``cache``, as an experiment of its own with
the view ``center`` alone. Their folders are functions of dataset and backbone, so another head finds them done and is
scored in seconds. Where ``evaluate.views`` asks for interventions, a part of the dataset is packed and cached with them
in the same way: each view costs a forward pass, and a few hundred images tell how an uncertainty responds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pipeline.datasets import check_dataset, make_dataset, where_keys_are_from
from pipeline.errors import UserError
from pipeline.places import Place
from stages.base import Experiment, Stage, is_done, make_stage

if TYPE_CHECKING:
    from pipeline.annotations import Annotations
    from pipeline.evaluation.rows import ChosenRows, Rows

UPSTREAM = "upstream"
VIEW = "center"
#: Settings of the cache that hold for downstream datasets too.
CACHED_ALIKE = (
    *("batch_size", "dtype", "compressor", "compression_level"),
    *("max_quarantined", "workers", "decode"),
)


class Evaluated:
    """The collections of an experiment's stage ``evaluate``."""

    def __init__(self, experiment: Experiment) -> None:
        self.experiment, self.config = experiment, experiment.stages["evaluate"]
        self._seen: dict[str, frozenset[bytes]] = {}

    @property
    def ids(self) -> list[str]:
        """Ids of the units: upstream first, unless it is left out."""
        return [*([UPSTREAM] if self.config.upstream_rows else []), *self.experiment.downstream]

    def title(self, unit: str) -> str:
        """What a collection is called."""
        return f"{self.experiment.dataset['name']} (upstream)" if unit == UPSTREAM else unit

    def cache_of(self, unit: str) -> Stage:
        """The cache of a dataset: the experiment's own, or that of an experiment with this dataset and one view."""
        if unit == UPSTREAM:
            return make_stage("cache", self.experiment)
        return self._caching(self.experiment.downstream[unit], (VIEW,))

    def _caching(self, dataset: Mapping[str, Any], views: tuple[str, ...]) -> Stage:
        """The cache of a dataset with some views, as an experiment of its own."""
        caching = self.experiment.stages["cache"]
        alone = type(caching)(views=views, classifier="off", **{key: getattr(caching, key) for key in CACHED_ALIKE})
        packing = replace(self.experiment.stages["pack"], output=None)
        stages = {**self.experiment.stages, "pack": packing, "cache": alone}
        return make_stage("cache", replace(self.experiment, dataset=dataset, stages=stages))

    def cache_of_views(self, unit: str) -> Stage | None:
        """The cache of a part of a dataset with the other views that are asked for; None where they are not."""
        ours = self.config
        if unit == UPSTREAM or not ours.views or (ours.views_of and unit not in ours.views_of):
            return None
        cache = self.cache_of(unit)
        source = {"kind": "part_of_tars", "name": unit, "most": ours.view_rows}
        if cache.inputs():
            source |= {"root": str(cache.before("pack").folder)}
        else:
            tars = cache.experiment.dataset
            source |= {"root": tars["root"], "tars": tars["tars"], "label_classes": tars["class_list"]}
        return self._caching(check_dataset(source, f"downstream.{unit}"), (VIEW, *ours.views))

    def problem(self, name: str) -> str:
        """Why a downstream dataset can be neither found cached nor be read; "" where it can."""
        try:
            if not is_done(self.cache_of(name)):
                make_dataset(self.experiment.downstream[name], f"downstream.{name}").check()
        except UserError as error:
            return f"downstream.{name}: {error} (What is called dataset.… there is downstream.{name}.… here.)"
        return ""

    def described(self, unit: str) -> dict[str, Any]:
        """What a result says of its collection: its title, role, and where its images are from."""
        role = UPSTREAM if unit == UPSTREAM else "downstream"
        about = asdict(make_dataset(self.cache_of(unit).experiment.dataset).about)
        disjoint = {"disjoint": True} if unit == UPSTREAM and self._trained_on else {}
        return {"dataset": self.title(unit), "about": about, "role": role, **disjoint}

    def rows(self, unit: str) -> Rows:
        """The rows to score, and which are relevant to which."""
        chosen, annotations = self.chosen(unit), self.annotations(unit)
        relevance = None if annotations is None else annotations.of(chosen.keys).relevance
        return replace(chosen.rows(VIEW), relevance=relevance)

    def changed(self, unit: str) -> Callable[[], ChosenRows] | None:
        """Opens the rows of which there are other views; None where those are the collection's own."""
        from pipeline.evaluation.rows import ChosenRows
        from pipeline.representation_store import RepresentationStore

        if (views := self.cache_of_views(unit)) is None:
            return None
        return lambda: ChosenRows(RepresentationStore.open(views.folder / "store"), without=self._left_out(unit))

    def chosen(self, unit: str) -> ChosenRows:
        """The rows of its store that are evaluated."""
        from pipeline.evaluation.rows import ChosenRows
        from pipeline.representation_store import RepresentationStore

        most = self.config.upstream_rows if unit == UPSTREAM else None
        store = RepresentationStore.open(self.cache_of(unit).folder / "store")
        return ChosenRows(store, most, self._left_out(unit))

    def _left_out(self, unit: str) -> frozenset[bytes]:
        """Of the collection that the heads were trained on, the keys that are no part of the test.

        It may be evaluated under another name, or another part of it with images of the first: keys are made of where
        an image lies, so those that are trained on are left out of whatever is read from the same place, or from a copy
        of the same published collection.
        """
        if unit == UPSTREAM:
            return self._trained_on
        ours, theirs = self.experiment.dataset, self.experiment.downstream[unit]
        if where_keys_are_from(ours) != where_keys_are_from(theirs, f"downstream.{unit}"):
            return frozenset()
        if self.experiment.stages["train_head"].shots is not None:
            return self._trained_on
        # tars that nobody packed here, and an index, may give other images the same keys
        alike = ("tars", *(("index", "key_column") if ours.get("key_column") else ()))
        return self._seen_of(unit) if all(ours.get(key) == theirs.get(key) for key in alike) else frozenset()

    def _seen_of(self, unit: str) -> frozenset[bytes]:
        """Keys of a downstream dataset that the heads were trained on.

        Raises:
            UserError: there are some, and the heads were trained on all of their dataset.
        """
        import numpy as np

        from pipeline.representation_store import RepresentationStore
        from pipeline.training.subset import has_parts, keys_trained_on

        if unit not in self._seen:
            upstream, store = (
                RepresentationStore.open(cache.folder / "store")
                for cache in (make_stage("cache", self.experiment), self.cache_of(unit))
            )
            keys = np.concatenate([key_R for _, key_R in store.column("key")] or [np.zeros(0, "S1")])
            training = self.experiment.stages["train_head"]
            found = keys_trained_on(upstream, training, keys)
            if found and not has_parts(training):
                raise UserError(
                    f"evaluate.datasets: {len(found):,} of the {len(keys):,} images of {unit} are images that heads "
                    f"are trained on, the first {min(found).decode()}: that would be no test on unseen ones. "
                    f"Split the dataset: dataset.split=seen downstream.{unit}.split=unseen, where it has splits (and "
                    "in both the same class_folds and class_fold), or name another."
                )
            self._seen[unit] = found
        return self._seen[unit]

    def refuse_shots(self) -> None:
        """Look at evaluate.without_shots beside train_head.shots.

        Raises:
            UserError: a row that is trained on would be a part of the test.
        """
        shots, without = self.experiment.stages["train_head"].shots, self.config.without_shots
        if without is not None and shots is None:
            raise UserError(
                f"evaluate.without_shots={without}: heads are trained on all rows, and not on a few of each class. "
                "Set train_head.shots, or leave it out."
            )
        if without is not None and without < shots:
            raise UserError(
                f"evaluate.without_shots={without} is less than train_head.shots={shots}: rows that are trained on "
                f"would be a part of the test. Take the largest number of shots that is compared, {shots} or more."
            )

    def seen(self) -> list[str]:
        """The downstream datasets that are, under whatever name, or hold the one that the heads are trained on."""

        def whole(values: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
            # all that is split is in `all`
            return {**values, "name": "", **({"split": "all"} if other.get("split") == "all" else {})}

        ours = self.experiment.dataset
        theirs = self.experiment.downstream.items()
        return [name for name, values in theirs if whole(values, ours) == whole(ours, values)]

    @cached_property
    def _trained_on(self) -> frozenset[bytes]:
        """With train_head.shots, the keys that the heads were trained on, or those of evaluate.without_shots."""
        from pipeline.representation_store import RepresentationStore
        from pipeline.training.subset import keys_left_out

        store = RepresentationStore.open(make_stage("cache", self.experiment).folder / "store")
        return keys_left_out(store, self.experiment.stages["train_head"], self.config.without_shots)

    def annotations(self, unit: str) -> Annotations | None:
        """What packing kept of the dataset beyond labels; of tars that nobody packed here nothing is known."""
        from pipeline.images.manifest import packed_annotations

        cache = self.cache_of(unit)
        return packed_annotations(cache.before("pack").folder) if cache.inputs() else None

    def tars(self, unit: str) -> Sequence[Place]:
        """Its images."""
        from pipeline.images.packed import open_packed

        cache = self.cache_of(unit)
        return open_packed(cache.before("pack").folder if cache.inputs() else cache.experiment.dataset).paths
