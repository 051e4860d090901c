"""Where training starts from: the weights of a head that is there already, released or left by a run.

What is learnt a class or a row (proxies, the last layer of a classifier) belongs to the classes and rows it was learnt
on. It is kept where the classes are the same by name, and begins anew where they are not; which tensors these are is
found by asking for the same head with one class, or one row, more. All else must fit, or is refused.

(URL, App. C.6: pretrained heads are trained on with a few samples of each class of a downstream dataset.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from pipeline.digests import difference
from pipeline.errors import UserError
from pipeline.heads import make_head
from pipeline.heads.base import Head, Summary
from pipeline.places import Place
from pipeline.progress import Progress
from pipeline.release.bundle import CONFIG, read_bundle
from pipeline.representation_store import RepresentationStore
from pipeline.training.checkpoints import Checkpoint, describe_head, read_checkpoint
from pipeline.training.initial_records import KEY, initial_records


@dataclass(frozen=True, kw_only=True)
class Initial:
    """Where each seed starts.

    Attributes:
        place: as it was given, for messages.
        heads: seed → the head it starts from; the same one for all where only one is there.
        weights_sha256: of the backbone whose representations they read; None where it is not on record.
    """

    place: Place
    heads: Mapping[int, Checkpoint]
    weights_sha256: str | None = None


def read_initial(place: Place, seeds: Sequence[int]) -> Initial:
    """The heads at ``place``: a released model, the folder of one head, or a run folder with ``seed-<s>`` of each seed.

    Raises:
        UserError: there is none, one of a seed is missing, or the bytes are not those that were written.
    """
    records = initial_records(place, seeds)
    if records[0].name == CONFIG:
        bundle = read_bundle(_local(place))
        checkpoint = Checkpoint(record=bundle.config["head"], tensors=bundle.tensors)
        heads = dict.fromkeys(seeds, checkpoint)
        return Initial(place=place, heads=heads, weights_sha256=bundle.config["backbone"]["weights_sha256"])
    found = [read_checkpoint(record.parent) for record in records]
    return Initial(place=place, heads=dict(zip(seeds, found if len(found) > 1 else found * len(seeds), strict=True)))


def _local(place: Place) -> Path:
    if not isinstance(place, Path):
        raise UserError(f"{KEY}: {place}: a released model is read from a local folder. Copy it first.")
    return place if (place / CONFIG).is_file() else place / "model"


def begin(heads: Sequence[Head], initial: Initial, summary: Summary, progress: Progress) -> None:
    """Give prepared heads the weights that they start from, each by its seed, and say what begins anew.

    Raises:
        UserError: see :func:`start_from`.
    """
    for head in heads:
        anew = start_from(head, initial.heads[head.seed], summary, initial.place)
    if anew:
        progress.say(f"{KEY}: learnt anew, because it is of other classes or rows: {', '.join(anew)}.")


def refuse_other_backbone(initial: Initial, store: RepresentationStore) -> None:
    """Refuse a released head whose backbone has other weights than the one that filled the store.

    Raises:
        UserError: says both.
    """
    theirs, ours = initial.weights_sha256, store.run.get("backbone", {}).get("weights_sha256")
    if theirs and ours and theirs != ours:
        raise UserError(
            f"{KEY}: {initial.place} was trained with a backbone whose weights have the SHA-256 {theirs[:12]}…, "
            f"those of {store.path} are {ours[:12]}…. Cache with the backbone of the released model, or take another "
            "head."
        )


def start_from(head: Head, source: Checkpoint, summary: Summary, place: Place) -> list[str]:
    """Give a prepared head the weights of another one, in place.

    Args:
        head: that is trained.
        source: it starts from.
        summary: that ``head`` was prepared with.
        place: of ``source``, for messages.

    Returns:
        Names of the tensors that begin anew, because they are learnt a class or a row.

    Raises:
        UserError: it is a head of another kind or of other sizes, or learnt from representations of another width.
    """
    theirs, ours = dict(source.record["head"]), describe_head(head)
    if theirs["kind"] != ours["kind"]:
        raise UserError(f"{KEY}: {place} holds a head {theirs['kind']}, trained is a head {ours['kind']}.")
    if not head.needs.training:
        raise UserError(f"{KEY}: a head {ours['kind']} has nothing to train. Unset it.")
    width = source.record["summary"]["width"]
    if width != summary.width:
        raise UserError(
            f"{KEY}: {place} holds a head for representations of width {width}, those of the store have "
            f"{summary.width}. Take the backbone that it was trained with."
        )
    given = {name.removeprefix("head."): value for name, value in source.tensors.items() if name.startswith("head.")}
    anew = _learnt_apart(ours, summary, source.record["summary"])
    state = head.state_dict()
    unfit = [
        name
        for name in sorted(given.keys() | state.keys())
        if name not in anew and (name not in given or name not in state or given[name].shape != state[name].shape)
    ]
    if unfit:
        lines = "; ".join(difference(theirs, ours)) or "the version of the head differs"
        raise UserError(f"{KEY}: the head at {place} does not fit in {', '.join(unfit)}: {lines}.")
    with torch.no_grad():
        for name, value in state.items():
            if name not in anew:
                value.copy_(given[name])
    return [name for name in state if name in anew]


def _learnt_apart(head: Mapping[str, Any], summary: Summary, before: Mapping[str, Any]) -> set[str]:
    """Names of tensors of which there is a part for each row, or for each class unless the classes are the same."""
    same = bool(summary.class_names) and list(summary.class_names) == list(before["class_names"])
    more = replace(summary, rows=summary.rows + 1)
    if not same:
        more = replace(more, num_classes=summary.num_classes + 1, class_names=(*summary.class_names, ""))
    one, other = (_shapes(head, of) for of in (summary, more))
    return {name for name, shape in one.items() if other[name] != shape}


def _shapes(head: Mapping[str, Any], summary: Summary) -> dict[str, torch.Size]:
    made = make_head(head)
    made.prepare(summary)
    return {name: value.shape for name, value in made.state_dict().items()}
