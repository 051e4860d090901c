"""What datasets have in common that list their images first and read them one by one: splits, keys and order."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from pipeline.class_lists import class_list
from pipeline.config import config, to_plain
from pipeline.datasets._keys import digests
from pipeline.datasets._listing import Entry, Listing, gather
from pipeline.datasets._selection import Selection, load, save, select
from pipeline.datasets.base import Dataset, LabelledImage, folder_of
from pipeline.digests import digest
from pipeline.errors import OF_THE_MACHINE, UserError
from pipeline.places import LocalPath, Place

Array = NDArray[Any]
ALSO_SEEN = "the same file is also in a seen class"
NOT_HERE = "published, but not in this copy"


@config
class ListedConfig:
    """What is taken of the source."""

    # Shown in reports.
    name: str
    # Folder of the source.
    root: LocalPath
    # Classes with fewer images are left out.
    min_images_per_class: Annotated[int, Field(ge=1)] = 1
    # Take only these classes, in this order: a name (imagenet1k, …) or a text file with one class a line.
    class_list: str | None = None
    # seen and unseen share no class, and no image of unseen is also in a class of seen.
    split: Literal["all", "seen", "unseen"] = "all"
    # One class in so many is unseen …
    class_folds: Annotated[int, Field(ge=2)] = 3
    # … namely, counting the sorted names from 0, those whose number leaves this remainder: 2 = every third class.
    class_fold: Annotated[int, Field(ge=0)] = 2

    def __post_init__(self) -> None:
        if self.class_fold >= self.class_folds:
            raise ValueError(f"class_fold ({self.class_fold}) must be less than class_folds ({self.class_folds})")


class ListedDataset(Dataset):
    """Subclasses say what there is (:meth:`find`) and how one image is read (:meth:`read`)."""

    config: Any  # a ListedConfig
    remedy: ClassVar[str]  # how to get the source; {root} is the configured folder
    #: Whether one file of the source may be several entries (a link, a path in two rows), maybe of several classes.
    shares_files: ClassVar[bool] = True
    #: Where below root the source may lie, the best first; root itself does as well, and so does a folder in a folder
    #: of the same name, which many ways to unpack an archive make.
    inside: ClassVar[tuple[str, ...]] = ()
    _kept_in: Path | None = None  # arrays are mapped, so only a folder of this file system does

    @property
    def advice(self) -> str:
        """What to do when the source is not there."""
        return self.remedy.format(root=self.config.root)

    def folder(self) -> Path:
        """The folder of the source, below root or root itself; an error where there is no root."""
        root = folder_of(self.config.root, self.config.name, self.advice)
        places = (root / inside / twice for inside in self.inside for twice in (Path(inside).name, "."))
        return next((place for place in places if place.is_dir()), root)

    @abstractmethod
    def find(self, passed_over: Counter[str]) -> Iterator[Entry]:
        """All images of the source in a fixed order; files that are none are counted by reason in ``passed_over``."""

    @abstractmethod
    def read(self, entry: Entry) -> bytes:
        """The encoded image."""

    def identity(self, entry: Entry) -> Hashable:
        """Equal for two entries that are one and the same file."""
        return entry.source

    def ordered_classes(self, names: set[str]) -> list[str]:
        """The classes in the order of their labels."""
        return sorted(names)

    def fingerprint(self) -> Any:
        """Plain values that change when the source does, cheap to get; None = there is no way but to look at it all."""
        return None

    # -- the listing

    def keep_listing_in(self, folder: Place) -> None:
        """From now on take the listing from ``folder``, if :meth:`keep_listing` has put it there."""
        self._kept_in = folder if isinstance(folder, Path) else None

    def keep_listing(self) -> None:
        """Put the listing where :meth:`keep_listing_in` says, if looking anew whether it still holds is cheap."""
        folder = self._kept_folder()
        if folder is not None and load(folder) is None:
            save(self._selection, folder)

    def _kept_folder(self) -> Path | None:
        mark = self.fingerprint()
        if self._kept_in is None or mark is None:
            return None
        return self._kept_in / digest([to_plain(self.config), self._wanted_classes, mark])[:16]

    @cached_property
    def _selection(self) -> Selection:
        folder = self._kept_folder()
        return (load(folder) if folder is not None else None) or self._select()

    def _select(self) -> Selection:
        left_out = Counter[str]()
        listing = gather(self.find(left_out))
        if len(listing) and getattr(self.config, "part", "all") == "all":  # the size of a part may hang on settings
            left_out[NOT_HERE] = max(0, self.about.sizes.get("all", 0) - len(listing))
        count_C = np.bincount(listing.class_N, minlength=len(listing.class_names))
        classes = self._classes(listing, count_C, left_out)
        seen = seen_classes(classes, folds=self.config.class_folds, fold=self.config.class_fold)
        taken = {"all": set(classes), "seen": seen, "unseen": set(classes) - seen}[self.config.split]
        rows = np.flatnonzero(_mask(listing, taken)[listing.class_N])
        if self.config.split == "unseen" and self.shares_files:
            known = np.flatnonzero(_mask(listing, seen)[listing.class_N])
            fresh = ~np.isin(self._identities(listing, rows), self._identities(listing, known))
            left_out[ALSO_SEEN] += len(rows) - int(fresh.sum())
            rows = rows[fresh]
        with_images = {listing.class_names[index] for index in np.unique(listing.class_N[rows])}
        names = self._wanted_classes or self.ordered_classes(with_images)
        return select(
            listing,
            rows,
            tuple(name for name in names if name in with_images),
            {reason: count for reason, count in sorted(left_out.items()) if count},
        )

    @cached_property
    def _wanted_classes(self) -> tuple[str, ...] | None:
        choice = self.config.class_list
        return None if choice is None else class_list(choice, "dataset.class_list")

    def _classes(self, listing: Listing, count_C: Array, left_out: Counter[str]) -> list[str]:
        """The classes that are taken before the split, sorted."""
        least, wanted = self.config.min_images_per_class, self._wanted_classes
        sizes = dict(zip(listing.class_names, count_C.tolist(), strict=True))
        if wanted is not None:
            listed = set(wanted)
            known = {name: size for name, size in sizes.items() if name in listed}
            left_out["class that is not in dataset.class_list"] += sum(sizes.values()) - sum(known.values())
            if sizes and not known:
                ours, theirs = (", ".join([*names][:3]) for names in (wanted, sizes))
                raise UserError(
                    f"{self.config.name}: none of the {len(wanted):,} classes of dataset.class_list ({ours}, …) is "
                    f"among the {len(sizes):,} that are there ({theirs}, …)."
                )
            sizes = known
        left_out[f"class of fewer than {least} images"] += sum(size for size in sizes.values() if size < least)
        return sorted(name for name, size in sizes.items() if size >= least)

    def _identities(self, listing: Listing, rows: Array) -> Array:
        return digests((repr(self.identity(listing[int(row)])) for row in rows), len(rows), 8)[:, 0]

    # -- what the base class promises

    def class_names(self) -> list[str]:
        """The classes of the split that have an image."""
        return list(self._selection.class_names)

    def __len__(self) -> int:
        return len(self._selection)

    def images(self) -> Iterator[LabelledImage]:
        """All images of the split, classes mixed."""
        return self.part(0, len(self))

    def part(self, start: int, stop: int) -> Iterator[LabelledImage]:
        """Images number ``start`` to ``stop`` - 1; only they are read."""
        for key, entry in self._selection.entries(start, stop):
            yield LabelledImage(
                key=key,
                class_name=entry.class_name,
                data=self._data(entry),
                extension=entry.extension,
                source=entry.source,
            )

    def _data(self, entry: Entry) -> bytes:
        """What lies there; a file that the system does not give spoils the tar that it would be in, and no other."""
        try:
            return self.read(entry)
        except OSError as error:
            if error.errno in OF_THE_MACHINE:
                raise
            raise UserError(
                f"{self.config.name}: {entry.source} cannot be read ({error.strerror}). Bring it back, or give the "
                "right to read it; then the same command goes on."
            ) from None

    def listing(self) -> str:
        """A digest of keys, sources and classes in order."""
        return self._selection.digest

    def left_out(self) -> Mapping[str, int]:
        """Images of the source that are not in this split though its classes are, and files that are no images.

        Of all of a published collection, also the images that this copy lacks.
        """
        return dict(self._selection.left_out)

    def __getstate__(self) -> dict[str, Any]:
        """Without the listing: another process finds it on the disk, or makes it."""
        return {name: value for name, value in self.__dict__.items() if name != "_selection"}


def _mask(listing: Listing, names: set[str]) -> Array:
    """(classes of the listing) bool."""
    return np.array([name in names for name in listing.class_names], bool)


def seen_classes(names: Sequence[str], *, folds: int, fold: int) -> set[str]:
    """The seen ones of ``names``: all but those whose number, in sorted order, leaves the remainder ``fold``.

    Names that are paths sort by topic, so each fold has a share of every topic, and over all folds every class is
    unseen once: a score can be given for each.
    """
    return {name for number, name in enumerate(sorted(names)) if number % folds != fold}
