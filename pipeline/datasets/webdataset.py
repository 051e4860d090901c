"""Images that are WebDataset tars already: there is nothing to pack, and the tars are used where they lie."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, ClassVar

from braceexpand import braceexpand
from pydantic import Field

from pipeline.class_lists import class_list
from pipeline.config import config
from pipeline.datasets.base import About, Dataset, LabelledImage, folder_of
from pipeline.errors import UserError
from pipeline.faults import BadLabel
from pipeline.images.manifest import FILE, TARS, Manifest, load_manifest
from pipeline.images.tars import TarSample, index_tar, label_of, read_tar
from pipeline.places import Place, is_remote

REMEDY = "Set dataset.root to the folder of the tars and dataset.tars to their pattern."


class WebDataset(Dataset):
    """Tars of ``<key>.jpg`` with ``<key>.cls``, ``.json`` or ``.txt`` beside it.

    A folder that ``stage=pack`` filled brings its manifest, so counts, hashes and class names are known; other tars are
    counted by their headers, unless their size is stated, and their classes come from a text file.
    """

    about: ClassVar[About] = About(
        title="WebDataset tars",
        source="the user's own",
        licence="not stated: ask whoever owns the images",
    )

    @config
    class Config:
        """Which tars."""

        # Shown in reports.
        name: str = "webdataset"
        # Folder of the tars, or a folder with a manifest.json of ours.
        root: Place
        # Names below root, with * ? [] or braces: train-{00000..00146}.tar. Not used where there is a manifest.
        tars: str = "*.tar"
        # What the labels index: a name (imagenet21k_google, imagenet1k, …), or a text file with one class name (a WNID,
        # …) a line. Not used where there is a manifest.
        class_list: str | None = None
        # Most samples of a tar. Set, neither a manifest nor a header is read beforehand, and a tar with more fails.
        # Remote tars without a manifest need it. Rows that are absent cost memory while a unit is written, no storage.
        max_rows_per_unit: Annotated[int, Field(ge=1)] | None = None
        # With max_rows_per_unit: most bytes of a key (UTF-8, folders included).
        max_key_bytes: Annotated[int, Field(ge=1, le=4096)] = 64

    @cached_property
    def manifest(self) -> Manifest | None:
        """The manifest of packing, where there is one; not looked for where ``max_rows_per_unit`` is stated."""
        root: Place = self.config.root
        if self.config.max_rows_per_unit is not None:
            return None
        return load_manifest(root) if (root / FILE).exists() else None

    def tars(self) -> list[Place]:
        """The tars, in the order of the pattern, names sorted."""
        root: Place = self.config.root
        if self.manifest is not None:
            return [root / TARS / tar.name for tar in self.manifest.tars]
        names = list(braceexpand(self.config.tars))
        found = [sorted(_shown(root.glob(name)), key=_parts) if _is_pattern(name) else [root / name] for name in names]
        return [path for paths in found for path in paths]

    def check(self) -> None:
        """There must be a tar, and the class list. A tar that is missing among others fails alone when it is read."""
        root: Place = self.config.root
        _refuse_url(self.config.tars)
        if isinstance(root, Path):
            folder_of(root, self.config.name, REMEDY)
        elif root.suffix == ".tar":
            raise UserError(
                f"dataset.root: {root} is no folder. Write dataset.root={root.parent} dataset.tars={root.name}"
            )
        paths = self.tars()
        if not paths:
            raise UserError(f"{self.config.name}: no {self.config.tars} in {root}. {REMEDY}")
        twice = [path for path, times in Counter(paths).items() if times > 1]
        if twice:
            raise UserError(
                f"{self.config.name}: dataset.tars={self.config.tars} names {len(twice)} of the tars twice, e.g. "
                f"{twice[0]}. Their images would count twice: name each tar once."
            )
        if is_remote(root) and self.manifest is None and self.config.max_rows_per_unit is None:
            raise UserError(
                f"{self.config.name}: {root} has no {FILE}, and remote tars are not read beforehand. Set "
                "dataset.max_rows_per_unit to the most samples of a tar, or more."
            )
        if not any(path.is_file() for path in paths):
            raise UserError(f"{self.config.name}: all {len(paths)} tars are missing, e.g. {paths[0]}. {REMEDY}")
        self.class_names()

    def class_names(self) -> list[str]:
        """From the manifest or the class list; the order is the source's.

        Raises:
            UserError: there is neither, or the list cannot be used.
        """
        if self.manifest is not None:
            return list(self.manifest.class_names)
        choice: str | None = self.config.class_list
        if choice is None:
            raise UserError(
                f"{self.config.name}: no class list. Set dataset.class_list to a name (imagenet21k_google, …) or to a "
                "text file with one class name a line, in the order of the labels (empty = all unlabelled)."
            )
        return list(class_list(choice, "dataset.class_list"))

    def __len__(self) -> int:
        if self.manifest is not None:
            return self.manifest.samples
        indices = [index_tar(path) for path in self.tars()]
        return sum(index.samples - index.faulty for index in indices)

    def images(self) -> Iterator[LabelledImage]:
        """The samples in the order of the tars (mixed only if whoever packed them mixed them).

        A sample whose label cannot be used comes unlabelled; caching quarantines it with the reason.
        """
        class_names = self.class_names()
        labels = {name: label for label, name in enumerate(class_names)}
        for path in self.tars():
            for sample in read_tar(path):
                if isinstance(sample, TarSample):
                    yield LabelledImage(
                        key=sample.key,
                        class_name=_class_of(sample, class_names, labels),
                        data=sample.data,
                        extension=sample.extension,
                        source=path.name,
                    )


def _class_of(sample: TarSample, class_names: list[str], labels: Mapping[str, int]) -> str | None:
    try:
        label = label_of(sample, labels, absent="unlabelled")
    except BadLabel:
        return None
    return class_names[label] if label >= 0 else None


def _shown(paths: Iterable[Place]) -> Iterator[Place]:
    """Without hidden files: a Mac puts ``._train-0.tar`` beside ``train-0.tar`` on disks of others."""
    return (path for path in paths if not path.name.startswith("."))


def _parts(path: Place) -> tuple[str, ...]:
    return tuple(path.parts)


def _refuse_url(tars: str) -> None:
    """The web writes tars as one URL or as a command; here the folder stands apart, and no command is run."""
    if tars.startswith("pipe:"):
        raise UserError(
            f"dataset.tars={tars}: commands are not run. Write where the tars lie (a folder, s3://, gs://, https://) "
            "as dataset.root and their names as dataset.tars."
        )
    if "://" in tars:
        root, _, names = tars.rpartition("/")
        raise UserError(
            f"dataset.tars={tars}: names below dataset.root are wanted, not a URL. Write dataset.root={root} "
            f"dataset.tars={names}"
        )


def _is_pattern(name: str) -> bool:
    return any(mark in name for mark in "*?[")
