"""A trained head on disk: ``head.safetensors`` and ``head.json``, no pickle.

``head.safetensors`` holds ``head.*`` (its state) and the tensors of the summary that :meth:`Head.prepare` needs again:
``summary.mean_D`` and, for heads that need it, ``summary.classifier.*``. ``head.json`` is written last and holds the
SHA-256 of the other file: a head exists once its record does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from safetensors.torch import load, save
from torch import Tensor

from pipeline.config import to_plain
from pipeline.errors import UserError
from pipeline.files import read_bytes, write_bytes
from pipeline.heads import make_head
from pipeline.heads.base import Head, LinearClassifier, Summary
from pipeline.places import Place
from pipeline.sealed import read_open, write_sealed
from pipeline.training.sweep import RECORD

WEIGHTS = "head.safetensors"


def describe_head(head: Head) -> dict[str, Any]:
    """``{kind, …}`` with every value filled in, as :func:`pipeline.heads.make_head` takes it."""
    return {"kind": type(head).__module__.rpartition(".")[2], **to_plain(head.config)}


def save_head(
    folder: Place,
    head: Head,
    summary: Summary,
    *,
    store: str,
    training: Mapping[str, Any],
    metrics: Mapping[str, float],
) -> None:
    """Write a head that is ready for use. The same head gives the same bytes.

    Args:
        folder: where; made if need be.
        head: trained, or prepared if it needs no training.
        summary: the one it was prepared with.
        store: digest of the store it was trained on.
        training: the resolved config of its training, plain values; empty for heads that need none.
        metrics: final values worth knowing, by name.
    """
    tensors = {f"head.{name}": value for name, value in head.state_dict().items()}
    if summary.mean_D is not None:
        tensors["summary.mean_D"] = summary.mean_D
    if head.needs.classifier and summary.classifier is not None:
        tensors["summary.classifier.weight_CD"] = summary.classifier.weight_CD
        tensors["summary.classifier.bias_C"] = summary.classifier.bias_C
    # copies: a head may hold one tensor by two names, or one of the summary's, and safetensors takes no shared memory
    data = save({name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()})
    write_bytes(folder / WEIGHTS, data)
    record = {
        "format": 1,
        "head": describe_head(head),
        "seed": head.seed,
        "summary": {
            "width": summary.width,
            "rows": summary.rows,
            "num_classes": summary.num_classes,
            "class_names": list(summary.class_names),
            "scale": summary.scale,
        },
        "store": {"digest": store},
        "training": dict(training),
        "metrics": dict(metrics),
        "sha256": sha256(data).hexdigest(),
    }
    write_sealed(folder / RECORD, record)


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A head's files, read and checked.

    Attributes:
        record: ``head.json``: the head's config, its seed, the summary, where it was trained and how.
        tensors: ``head.safetensors``: ``head.*`` and ``summary.*``.
    """

    record: Mapping[str, Any]
    tensors: Mapping[str, Tensor]


def read_checkpoint(folder: Place) -> Checkpoint:
    """The files of the head in ``folder``.

    Raises:
        UserError: there is none, or its bytes are not those that were written.
    """
    if not (folder / RECORD).is_file():
        raise UserError(f"no head at {folder} (no {RECORD} there). Train it with `submit stage=train_head`.")
    record = read_open(folder / RECORD)
    data = read_bytes(folder / WEIGHTS) if (folder / WEIGHTS).is_file() else b""
    if sha256(data).hexdigest() != record.get("sha256"):
        raise UserError(
            f"{folder / WEIGHTS}: the bytes are not those that {RECORD} speaks of. "
            f"Remove {folder} and train again with `submit stage=train_head`, or fetch it again."
        )
    return Checkpoint(record=record, tensors=load(data))


def restore_head(record: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Head:
    """The head that a record and its tensors describe, on the CPU, ready for use.

    Args:
        record: with ``head``, ``seed`` and ``summary`` as in ``head.json``.
        tensors: ``head.*`` and ``summary.*``; others are passed over.
    """
    head = make_head(record["head"], seed=record["seed"])
    head.prepare(_summary(record["summary"], tensors))
    head.load_state_dict({k.removeprefix("head."): v for k, v in tensors.items() if k.startswith("head.")})
    return head.eval()


def load_head(folder: Place) -> Head:
    """The head in ``folder``, on the CPU, ready for use.

    Raises:
        UserError: there is none, or its bytes are not those that were written.
    """
    checkpoint = read_checkpoint(folder)
    return restore_head(checkpoint.record, checkpoint.tensors)


def _summary(plain: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Summary:
    # copies, which a head may keep: the tensors of a released model are views of its file, which may be overwritten
    own = {name: value.clone() for name, value in tensors.items() if name.startswith("summary.")}
    classifier = None
    if "summary.classifier.weight_CD" in own:
        classifier = LinearClassifier(
            weight_CD=own["summary.classifier.weight_CD"], bias_C=own["summary.classifier.bias_C"]
        )
    return Summary(
        width=plain["width"],
        rows=plain["rows"],
        num_classes=plain["num_classes"],
        class_names=tuple(plain["class_names"]),
        mean_D=own.get("summary.mean_D"),
        scale=plain["scale"],
        classifier=classifier,
    )
