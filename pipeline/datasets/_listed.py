"""What datasets have in common that list their images first and read them one by one: splits, keys and order."""

from __future__ import annotations

import hashlib
import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from pipeline.config import config
from pipeline.datasets.base import Dataset, LabelledImage, mixed_order
from pipeline.digests import digest
from pipeline.places import LocalPath

ALSO_SEEN = "the same file is also in a seen class"


@config
class ListedConfig:
    """What is taken of the source."""

    # Shown in reports.
    name: str
    # Folder of the source.
    root: LocalPath
    # Classes with fewer images are left out.
    min_images_per_class: Annotated[int, Field(ge=1)] = 1
    # seen and unseen share no class, and no image of unseen is also in a class of seen.
    split: Literal["all", "seen", "unseen"] = "all"
    # One class in so many is unseen …
    class_folds: Annotated[int, Field(ge=2)] = 3
    # … namely, counting the sorted names from 0, those whose number leaves this remainder: 2 = every third class.
    class_fold: Annotated[int, Field(ge=0)] = 2

    def __post_init__(self) -> None:
        if self.class_fold >= self.class_folds:
            raise ValueError(f"class_fold ({self.class_fold}) must be less than class_folds ({self.class_folds})")


@dataclass(frozen=True, slots=True)
class Entry:
    """One image of the source: its class, where it lies below the root (for people), and where the reader finds it.

    ``key`` is given where the source has keys of its own (all its entries then have one); "" = made of ``source``.
    """

    class_name: str
    source: str
    extension: str
    place: Any
    key: str = ""


@dataclass(frozen=True, kw_only=True)
class Found:
    """All images of the source in a fixed order, and how many files were passed over, by reason."""

    entries: Sequence[Entry]
    passed_over: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class _Table:
    class_names: list[str]
    entries: list[Entry]  # in mixed order
    keys: list[str]
    left_out: dict[str, int]


class ListedDataset(Dataset):
    """Subclasses say what there is (:meth:`find`) and how one image is read (:meth:`read`)."""

    config: Any  # a ListedConfig
    remedy: ClassVar[str]  # how to get the source; {root} is the configured folder

    @property
    def advice(self) -> str:
        """What to do when the source is not there."""
        return self.remedy.format(root=self.config.root)

    @abstractmethod
    def find(self) -> Found:
        """All images of the source. Called once."""

    @abstractmethod
    def read(self, entry: Entry) -> bytes:
        """The encoded image."""

    def identity(self, entry: Entry) -> Hashable:
        """Equal for two entries that are one and the same file."""
        return entry.source

    def ordered_classes(self, names: set[str]) -> list[str]:
        """The classes in the order of their labels."""
        return sorted(names)

    @cached_property
    def _table(self) -> _Table:
        found = self.find()
        left_out = Counter(found.passed_over)
        counts = Counter(entry.class_name for entry in found.entries)
        least = self.config.min_images_per_class
        classes = sorted(name for name, count in counts.items() if count >= least)
        left_out[f"class of fewer than {least} images"] += sum(n for n in counts.values() if n < least)
        seen = seen_classes(classes, folds=self.config.class_folds, fold=self.config.class_fold)
        taken = {"all": set(classes), "seen": seen, "unseen": set(classes) - seen}[self.config.split]
        entries = [entry for entry in found.entries if entry.class_name in taken]
        if self.config.split == "unseen":
            known = {self.identity(entry) for entry in found.entries if entry.class_name in seen}
            kept = [entry for entry in entries if self.identity(entry) not in known]
            left_out[ALSO_SEEN] += len(entries) - len(kept)
            entries = kept
        given = bool(entries and entries[0].key)
        keys = [entry.key for entry in entries] if given else unique_keys([entry.source for entry in entries])
        order = mixed_order(keys)
        return _Table(
            class_names=self.ordered_classes({entry.class_name for entry in entries}),
            entries=[entries[index] for index in order],
            keys=[keys[index] for index in order],
            left_out={reason: count for reason, count in sorted(left_out.items()) if count},
        )

    def class_names(self) -> list[str]:
        """The classes of the split that have an image."""
        return list(self._table.class_names)

    def __len__(self) -> int:
        return len(self._table.entries)

    def images(self) -> Iterator[LabelledImage]:
        """All images of the split, classes mixed."""
        return self.part(0, len(self))

    def part(self, start: int, stop: int) -> Iterator[LabelledImage]:
        """Images number ``start`` to ``stop`` - 1; only they are read."""
        table = self._table
        for entry, key in zip(table.entries[start:stop], table.keys[start:stop], strict=True):
            yield LabelledImage(
                key=key,
                class_name=entry.class_name,
                data=self.read(entry),
                extension=entry.extension,
                source=entry.source,
            )

    def listing(self) -> str:
        """A digest of keys, sources and classes in order."""
        table = self._table
        return digest([[e.class_name, e.source, key] for e, key in zip(table.entries, table.keys, strict=True)])

    def left_out(self) -> Mapping[str, int]:
        """Images of the source that are not in this split though its classes are, and files that are no images."""
        return dict(self._table.left_out)


def seen_classes(names: Sequence[str], *, folds: int, fold: int) -> set[str]:
    """The seen ones of ``names``: all but those whose number, in sorted order, leaves the remainder ``fold``.

    Names that are paths sort by topic, so each fold has a share of every topic, and over all folds every class is
    unseen once: a score can be given for each.
    """
    return {name for number, name in enumerate(sorted(names)) if number % folds != fold}


def unique_keys(sources: Sequence[str]) -> list[str]:
    """Sample keys of ``[A-Za-z0-9_/-]`` from paths: no extension, other characters become ``_``.

    Where that makes two alike (``a.png`` and ``a.jpg``), each of them gets eight digits of a hash of its path.
    """
    plain = [re.sub(r"[^A-Za-z0-9_/-]", "_", source.rpartition(".")[0] or source) for source in sources]
    counts, times = Counter(plain), Counter[str]()
    keys = []
    for key, source in zip(plain, sources, strict=True):
        if counts[key] > 1:
            mark = hashlib.blake2b(f"{times[source]}/{source}".encode("utf-8", "surrogateescape"), digest_size=4)
            times[source] += 1
            key = f"{key}-{mark.hexdigest()}"
        keys.append(key)
    assert len(set(keys)) == len(keys), "keys must be unique"
    return keys
