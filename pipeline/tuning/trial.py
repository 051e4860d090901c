"""One trial of a search: a head is trained on some classes with the settings of its number, and judged on others.

The protocol is that of URL (thesis App. C, "Hyperparameters"): every head has the same number of trials, R-AUROC on
validation classes decides among those whose R@1 is not too low. Theirs are proposed by Bayesian optimisation, one
after the other; ours are fixed points, so that they run side by side and can be interrupted.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pipeline.errors import UserError
from pipeline.evaluation.rows import ChosenRows
from pipeline.evaluation.scoring import Scorer
from pipeline.files import write_json
from pipeline.heads import make_head
from pipeline.heads.base import LinearClassifier
from pipeline.metrics.undefined import Score, Undefined
from pipeline.places import Place
from pipeline.progress import Progress
from pipeline.representation_store import RepresentationStore
from pipeline.sealed import write_sealed
from pipeline.training.checkpoints import WEIGHTS, load_head, read_checkpoint
from pipeline.training.config import TrainingConfig
from pipeline.training.loop import TrainingDivergedError, train
from pipeline.training.summary import summarise
from pipeline.training.sweep import head_folders
from pipeline.tuning.choice import of_head
from pipeline.tuning.classes import split
from pipeline.tuning.settings import SearchConfig
from pipeline.tuning.space import RATE, RATES, Space, values_of

COST = "cost.json"  # of the run, not of the result: in the trial's folder


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What a trial tries.

    Attributes:
        head: ``{kind, …}``.
        training: with one seed.
        values: what differs from the experiment: ``base_lr``, and keys of the head.
    """

    head: Mapping[str, Any]
    training: TrainingConfig
    values: Mapping[str, Any]


def space_of(head: Mapping[str, Any]) -> Space:
    """The settings of a head that are looked for, with their ranges; empty where there is nothing to choose."""
    made = make_head(head)
    return {**({RATE: RATES} if made.needs.training else {}), **made.search}


def trials_of(head: Mapping[str, Any], trials: int) -> int:
    """How many trials there are: one where there is nothing to choose."""
    return trials if space_of(head) else 1


def applied(head: Mapping[str, Any], training: TrainingConfig, values: Mapping[str, Any]) -> Setting:
    """The head and its training with some values in their places."""
    rated = replace(training, base_lr=values[RATE]) if RATE in values else training
    return Setting(head={**head, **of_head(values)}, training=rated, values=values)


def setting(head: Mapping[str, Any], training: TrainingConfig, search: SearchConfig, trial: int) -> Setting:
    """What the trial of this number tries."""
    return applied(head, replace(training, seeds=(search.seed,)), values_of(space_of(head), trial))


def perform(
    one: Setting,
    *,
    store: RepresentationStore,
    classifier: LinearClassifier | None,
    search: SearchConfig,
    folder: Place,
    record: Place,
    progress: Progress,
) -> None:
    """Train, judge, and write the record; goes on where an earlier call was cut off. The weights are not kept.

    Args:
        one: what is tried.
        store: limited to the rows that an experiment trains on.
        classifier: over its representations, for heads that need it.
        search: which classes are held out.
        folder: of the trial, for its log and its checkpoint.
        record: where the record goes.
        progress: told of the training.

    Raises:
        UserError: too few classes, a view that the store lacks, and whatever training refuses; a loss that is not
            finite is a result.
    """
    limited, held_N = split(store, search.validation_classes, search.seed)
    (trained,) = head_folders(folder, one.training)
    try:
        if not _whole(trained):  # else it was cut off after training
            began = time.process_time()
            summary = summarise(limited, classifier)
            config = one.training
            train(store=limited, head=one.head, config=config, summary=summary, folder=folder, progress=progress)
            write_json(folder / COST, {"cpu_seconds": round(time.process_time() - began, 2)})
        found = _judge(trained, ChosenRows(store, search.validation_rows, among_N=held_N), search.view)
    except TrainingDivergedError as error:
        found = {"why": str(error)}
    write_sealed(record, {"values": dict(one.values), **found})
    (trained / WEIGHTS).unlink(missing_ok=True)


def _whole(trained: Place) -> bool:
    """Whether the head is there, as it was written."""
    try:
        read_checkpoint(trained)
    except UserError:
        return False
    return True


def _judge(trained: Place, chosen: ChosenRows, view: str) -> dict[str, Any]:
    scorer = Scorer(chosen.rows(view))
    try:
        scores = scorer.score(load_head(trained))
    except UserError as error:  # an uncertainty that is not finite
        return {"why": str(error)}
    numbers: dict[str, Score] = {"r_auroc": scores.r_auroc(), "r_at_1": scores.retrieval.recall_at_1}
    plain = {key: None if isinstance(value, Undefined) else value for key, value in numbers.items()}
    reasons = [value.reason for value in numbers.values() if isinstance(value, Undefined)]
    return {**plain, "rows": len(chosen.keys), **({"why": "; ".join(reasons)} if reasons else {})}
