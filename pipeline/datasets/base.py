"""What a dataset is: encoded images with a key and a class name, in a fixed order.

A dataset reads the folder as its authors publish it. It never decodes: the bytes it gives are the file's own, so that
packing is lossless; where the source has no encoded images (IDX, arrays) it gives PNG.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

from pipeline.annotations import Annotations
from pipeline.digests import digest
from pipeline.errors import UserError
from pipeline.places import Place


@dataclass(frozen=True, kw_only=True)
class LabelledImage:
    """One image as it lies in its source.

    Attributes:
        key: unique in the dataset, of ``[A-Za-z0-9_/-]`` only, no dot (WebDataset splits names at the first dot).
        class_name: name of its class; None = unlabelled.
        data: the encoded file.
        extension: lower case, without the dot (``png``).
        source: where it lies below the dataset's root; for people, packed beside the image.
    """

    key: str
    class_name: str | None
    data: bytes
    extension: str
    source: str = ""


@dataclass(frozen=True, kw_only=True)
class About:
    """Where a dataset comes from; printed in reports and model cards.

    Attributes:
        title: its name.
        source: where its authors publish it.
        licence: of the images; what may be done with them.
        citation: the article to cite.
        class_count: how many classes there are in all of it; None = it depends on the user's folder.
        sizes: how many images each part has as published, by the name of the part.
    """

    title: str
    source: str
    licence: str
    citation: str = ""
    class_count: int | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)


class Dataset(ABC):
    """One file a dataset: ``dataset.kind=<name>`` finds ``pipeline/datasets/<name>.py``.

    A subclass defines a nested ``Config`` (made with :func:`pipeline.config.config`) that has at least
    ``name: str`` (shown in reports) and ``root``: a ``LocalPath``, or a ``Place`` where URLs do as well.
    """

    Config: ClassVar[type[Any]]
    about: ClassVar[About]
    #: Of collections that are published as a whole and read by several kinds: its name. The same key is the same image
    #: then, whichever of the kinds reads it and wherever its copy lies. None: no other kind reads it; and where
    #: :attr:`About.class_count` is not known either, a key says where below ``root`` an image lies.
    collection: ClassVar[str | None] = None

    def __init__(self, config: Any) -> None:
        self.config = config

    @abstractmethod
    def check(self) -> None:
        """Raise :class:`~pipeline.errors.UserError` saying exactly what is missing where, and how to get it."""

    @abstractmethod
    def class_names(self) -> list[str]:
        """The classes of this split; the index of a name is its label."""

    @abstractmethod
    def __len__(self) -> int:
        """How many images :meth:`images` gives, without reading them."""

    @abstractmethod
    def images(self) -> Iterator[LabelledImage]:
        """All images of the split, always in the same order, which is mixed (neighbours are of different classes)."""

    def part(self, start: int, stop: int) -> Iterator[LabelledImage]:
        """Images number ``start`` to ``stop`` - 1 of :meth:`images`; readers that can jump do not read the others."""
        return islice(self.images(), start, stop)

    def listing(self) -> str:
        """A digest of what :meth:`images` would give, without reading the images: another listing, another digest."""
        return digest([len(self), self.class_names()])

    def keep_listing_in(self, folder: Place) -> None:
        """From now on what takes long to find out may be read from ``folder``, where :meth:`keep_listing` put it."""

    def keep_listing(self) -> None:
        """Write what takes long to find out for other processes; does nothing where nothing does."""

    def left_out(self) -> Mapping[str, int]:
        """How many images of the source this split leaves out on purpose, by reason."""
        return {}

    def annotations(self) -> Annotations | None:
        """What is known of the images of the split beyond one label each; None = nothing is.

        How annotators voted, and what is relevant to what where that is not equality of the label. Packing keeps it
        beside the tars, so evaluation does not need the source any more.
        """
        return None


def mixed_order(keys: list[str], seed: int = 0) -> list[int]:
    """A fixed shuffle of ``keys`` that depends on the keys alone: sorted by a hash of (seed, key)."""
    marks = [hashlib.blake2b(f"{seed}/{key}".encode(), digest_size=16).digest() for key in keys]
    return sorted(range(len(keys)), key=marks.__getitem__)


def folder_of(root: Path, what: str, remedy: str) -> Path:
    """``root`` if it is a folder, else a clear error.

    Raises:
        UserError: ``root`` does not exist or is not a folder.
    """
    if not root.is_dir():
        raise UserError(f"{what}: no folder at {root}. {remedy}")
    return root
