"""What is known of the images of a collection beyond one label each: how people voted, and what is relevant to what.

A dataset gives it (:meth:`pipeline.datasets.base.Dataset.annotations`), packing keeps it beside the tars as
``annotations.npz``, and evaluation asks for it by the keys of the rows that it has: images that were quarantined, or a
part of the rows, change nothing. The file is an ``.npz`` without pickles; same values, same bytes.

Shape suffixes: N images, A classes that annotators chose from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import UserError
from pipeline.files import atomic_file
from pipeline.places import Place
from pipeline.relevance import Relevance, relevance_of

FILE = "annotations.npz"
OF_RELEVANCE = "relevance/"


@dataclass(frozen=True, kw_only=True)
class Annotations:
    """Of N images, in the order of ``keys``.

    Attributes:
        keys: of the samples.
        votes_NA: how many annotators chose each class, or which share of them did; not negative; a row of zeros: nobody
            was asked, or nobody found a class that fits. None = there are no votes.
        vote_names: the A classes. They need not be those of the labels.
        relevance: which images are relevant to which, if equality of the label does not say it; None = it does.
    """

    keys: tuple[str, ...]
    votes_NA: NDArray[Any] | None = None
    vote_names: tuple[str, ...] = ()
    relevance: Relevance | None = None

    def __post_init__(self) -> None:
        votes = self.votes_NA
        assert votes is None or votes.shape == (len(self.keys), len(self.vote_names)), "votes do not fit keys and names"
        assert self.relevance is None or len(self.relevance) == len(self.keys), "the relation does not fit the keys"

    def of(self, keys: Sequence[str]) -> Annotations:
        """The same of some of the images, in the order of ``keys``.

        Raises:
            UserError: nothing is known of one of them; names it.
        """
        places = {key: place for place, key in enumerate(self.keys)}
        unknown = [key for key in keys if key not in places]
        if unknown:
            raise UserError(
                f"there are no annotations of {len(unknown)} of {len(keys)} images, such as '{unknown[0]}': the store "
                "and the packed tars are not of the same dataset."
            )
        rows = np.array([places[key] for key in keys], dtype=np.int64)
        return Annotations(
            keys=tuple(keys),
            votes_NA=None if self.votes_NA is None else self.votes_NA[rows],
            vote_names=self.vote_names,
            relevance=None if self.relevance is None else self.relevance.of(rows),
        )


def save_annotations(annotations: Annotations, folder: Place) -> None:
    """Write ``<folder>/annotations.npz``, atomically."""
    arrays: dict[str, NDArray[Any]] = {"keys": _texts(annotations.keys)}
    if annotations.votes_NA is not None:
        arrays |= {"votes_NA": annotations.votes_NA, "vote_names": _texts(annotations.vote_names)}
    if annotations.relevance is not None:
        arrays["relevance_kind"] = _texts([annotations.relevance.kind])
        arrays |= {OF_RELEVANCE + name: values for name, values in annotations.relevance.arrays().items()}
    with atomic_file(folder / FILE) as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def load_annotations(folder: Place) -> Annotations | None:
    """What :func:`save_annotations` wrote; None where it wrote nothing."""
    path = folder / FILE
    if not path.exists():
        return None
    with path.open("rb") as file, np.load(file, allow_pickle=False) as loaded:
        return _from_arrays({name: loaded[name] for name in loaded.files})


def _from_arrays(arrays: dict[str, NDArray[Any]]) -> Annotations:
    relevance = None
    if "relevance_kind" in arrays:
        (kind,) = _words(arrays["relevance_kind"])
        parts = {name.removeprefix(OF_RELEVANCE): v for name, v in arrays.items() if name.startswith(OF_RELEVANCE)}
        relevance = relevance_of(kind, parts)
    return Annotations(
        keys=_words(arrays["keys"]),
        votes_NA=arrays.get("votes_NA"),
        vote_names=_words(arrays["vote_names"]) if "vote_names" in arrays else (),
        relevance=relevance,
    )


def _texts(words: Sequence[str]) -> NDArray[np.bytes_]:
    return np.array([word.encode() for word in words], dtype=np.bytes_)


def _words(texts: NDArray[Any]) -> tuple[str, ...]:
    return tuple(text.decode() for text in texts.tolist())
