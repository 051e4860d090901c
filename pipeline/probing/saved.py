"""A fitted probe, and its files: weights as safetensors, then a record with their hash."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pipeline.errors import UserError
from pipeline.files import read_bytes, sha256_file, write_bytes
from pipeline.places import Place
from pipeline.sealed import read_sealed, write_sealed

if TYPE_CHECKING:  # which probes are there is known without torch
    from torch import Tensor

    from pipeline.heads.base import LinearClassifier

NAME = "probe"  # of the probe on all rows
FITTED = "all-rows"  # record of that probe between its fit and the scoring of all rows, when it gets its own


@dataclass(frozen=True, kw_only=True)
class Probe:
    """A fitted probe, over raw representations, and the facts of its fit (plain values)."""

    classifier: LinearClassifier
    facts: Mapping[str, Any]


def fold_name(fold: int) -> str:
    """The name of the probe that never saw a fold."""
    return f"fold-{fold}"


def over_raw(weight_CD: Tensor, bias_C: Tensor, mean_D: Tensor, scale: float) -> LinearClassifier:
    """The same classifier over raw representations: centring and scaling go into weight and bias."""
    from pipeline.heads.base import LinearClassifier

    weight_CD = weight_CD.cpu().double() / scale
    bias_C = bias_C.cpu().double() - weight_CD @ mean_D.double()
    return LinearClassifier(weight_CD=weight_CD.float(), bias_C=bias_C.float())


def save_probe(folder: Place, name: str, probe: Probe, *, record: str | None = None, **more: Any) -> None:
    """Write ``<name>.safetensors``, then its record with its hash and facts, which makes it count.

    Args:
        folder: where.
        name: of the probe.
        probe: what is saved.
        record: name of the record, without ``.json``; None = that of the probe.
        more: further facts, plain values.
    """
    from safetensors.torch import save

    path = folder / f"{name}.safetensors"
    write_bytes(path, save({"weight": probe.classifier.weight_CD, "bias": probe.classifier.bias_C}))
    write_sealed(folder / f"{record or name}.json", {**probe.facts, **more, "sha256": sha256_file(path)})


def load_probe(folder: Place, name: str = NAME, *, record: str | None = None) -> LinearClassifier:
    """The probe that the stage wrote: on all rows by default, or of a fold (``fold-0`` …).

    Raises:
        UserError: there is none, or its bytes are not those of its record.
    """
    from safetensors.torch import load

    from pipeline.heads.base import LinearClassifier

    path, facts = folder / f"{name}.safetensors", folder / f"{record or name}.json"
    if not facts.is_file() or not path.is_file():
        raise UserError(f"no {name} in {folder}. Make it with `submit stage=probe`.")
    if sha256_file(path) != read_sealed(facts)["sha256"]:
        raise UserError(
            f"{path} is damaged: its SHA-256 is not that of {facts.name}. Remove both, and `submit stage=probe`."
        )
    tensors = load(read_bytes(path))
    return LinearClassifier(weight_CD=tensors["weight"], bias_C=tensors["bias"])
