"""Some of the images of tars, chosen by their keys alone: the upstream's held-out images, or a part that is small.

With ``share`` they are those that ``train_head.validation_share`` keeps out of training, by the same hash of the same
keys. With ``keys`` they are listed in a file; whoever evaluates on them must see to it that they were not trained on.
With ``most`` they are so many, those with the smallest hashes: a larger part contains a smaller one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from hashlib import blake2b
from heapq import nsmallest
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field

from pipeline.config import config
from pipeline.datasets._listed import ListedConfig, ListedDataset
from pipeline.datasets._listing import Entry
from pipeline.datasets.base import About
from pipeline.datasets.webdataset import WebDataset
from pipeline.errors import UserError
from pipeline.faults import BadLabel, Quarantined
from pipeline.held_out import held_out
from pipeline.images.archive import Member, members, printable, read_member
from pipeline.images.grouping import Group, grouped
from pipeline.images.tars import TarSample, label_of
from pipeline.places import LocalPath
from pipeline.stale import SteadyFile

Sample = Group | Quarantined


class PartOfTars(ListedDataset):
    """``root`` and ``tars`` are those of ``dataset=webdataset``: the user's own, or a folder that packing filled.

    The headers of all tars are read once, and what was found is kept with the packed images.
    """

    shares_files: ClassVar[bool] = False
    about: ClassVar[About] = About(
        title="Some of the images of tars",
        source="the user's own",
        licence="not stated: ask whoever owns the images; ImageNet: non-commercial research only",
    )
    remedy = "Set dataset.root to the folder of the tars and dataset.tars to their pattern."

    @config
    class Config(ListedConfig):
        """Which tars, and which of their keys."""

        name: str = "part_of_tars"
        # Names below root, with * ? [] or braces. Not used where there is a manifest.
        tars: str = "*.tar"
        # What the labels in the tars count: a name or a file, as dataset.class_list of webdataset. Not used where there
        # is a manifest.
        label_classes: str | None = None
        # The share that train_head.validation_share holds out.
        share: Annotated[float, Field(ge=0, lt=1)] = 0.0
        # Instead: text file with one key a line.
        keys: LocalPath | None = None
        # Instead: so many images.
        most: Annotated[int, Field(ge=0)] = 0

        def __post_init__(self) -> None:
            super().__post_init__()
            if [bool(self.share), self.keys is not None, bool(self.most)].count(True) != 1:
                raise ValueError("give one of share (what train_head.validation_share is), keys (a file) and most")

    @cached_property
    def _source(self) -> WebDataset:
        ours = self.config
        return WebDataset(
            WebDataset.Config(name=ours.name, root=ours.root, tars=ours.tars, class_list=ours.label_classes)
        )

    def check(self) -> None:
        """There must be tars, the classes of their labels, the file of keys, and an image that is taken."""
        self._source.check()
        if self.config.keys is not None and not self.config.keys.is_file():
            raise UserError(f"{self.config.name}: no file of keys at {self.config.keys}. Set dataset.keys.")
        if not len(self):
            raise UserError(
                f"{self.config.name}: none of the images in {self.config.root} is taken. Left out: "
                f"{dict(self.left_out())}. Take a larger part."
            )

    def fingerprint(self) -> Any:
        """Name, size and time of every tar and of the file of keys."""
        keys = [] if self.config.keys is None else [self.config.keys]
        paths = [Path(str(path)) for path in (*self._source.tars(), *keys)]
        return [[path.name, (look := path.stat()).st_size, look.st_mtime_ns] for path in paths]

    def find(self, passed_over: Counter[str]) -> Iterator[Entry]:
        """The samples that are taken, by the headers; of them the labels are read."""
        names = self._source.class_names()
        labels = {name: label for label, name in enumerate(names)}
        wanted, taken, last = self._wanted_keys(), set[str](), self._last_mark()
        for tar in self._source.tars():
            path = Path(str(tar))
            with SteadyFile(path) as file:
                for group in self._chosen(grouped(members(path)), wanted, last):
                    taken.add(group.key)
                    if isinstance(group, Quarantined):
                        passed_over[group.reason] += 1
                        continue
                    fields = {name: read_member(file, member) for name, member in group.labels.items()}
                    sample = TarSample(key=group.key, data=b"", extension=group.extension, fields=fields)
                    try:
                        label = label_of(sample, labels, absent="unlabelled")
                    except BadLabel as error:
                        passed_over[f"label: {error}"] += 1
                        continue
                    if label < 0:
                        passed_over["without a label"] += 1
                        continue
                    source = f"{tar.relative_to(self.config.root).as_posix()}/{printable(group.image.name)}"
                    yield Entry(names[label], source, group.extension, (group.image.start, group.image.size))
        if absent := sorted(wanted - taken):
            raise UserError(
                f"{self.config.name}: {len(absent)} of the {len(wanted)} keys in {self.config.keys} are in no tar, "
                f"such as '{absent[0]}'. A key is the name in the tar up to its first dot, folders included."
            )

    def _wanted_keys(self) -> set[str]:
        if self.config.keys is None:
            return set()
        return {line.strip() for line in self.config.keys.read_text(encoding="utf-8-sig").splitlines() if line.strip()}

    def _last_mark(self) -> bytes:
        """The largest hash of a key that is taken, if ``most`` says how many are."""
        if not self.config.most:
            return b""
        groups = (group for tar in self._source.tars() for group in grouped(members(Path(str(tar)))))
        marks = (_mark(group.key) for group in groups if isinstance(group, Group))
        return max(nsmallest(self.config.most, marks), default=b"")

    def _chosen(self, groups: Sequence[Sample], wanted: set[str], last: bytes) -> Sequence[Sample]:
        if wanted:
            return [group for group in groups if group.key in wanted]
        if last:
            return [group for group in groups if _mark(group.key) <= last]
        if not groups:
            return []
        keep_N = held_out(np.array([group.key.encode() for group in groups]), self.config.share)
        return [group for group, keep in zip(groups, keep_N, strict=True) if keep]

    def read(self, entry: Entry) -> bytes:
        """The bytes of the member."""
        tar = re.split(r"(?<=\.tar)/", entry.source, maxsplit=1)[0]
        with SteadyFile(self.config.root / tar) as file:
            return read_member(file, Member(entry.source, *entry.place))


def _mark(key: str) -> bytes:
    return blake2b(key.encode(), digest_size=16).digest()
