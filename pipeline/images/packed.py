"""Packed tars as the later stages see them, whether we packed them or someone else did."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from pipeline.datasets import make_dataset
from pipeline.datasets.webdataset import WebDataset
from pipeline.errors import UserError
from pipeline.images.manifest import FILE, TARS, Manifest, load_manifest
from pipeline.images.tars import Known, Quarantined, Room, TarIndex, TarSample, index_tar, read_tar
from pipeline.places import Place, is_remote
from pipeline.representation_store import UnitInfo

INDEX_THREADS = 8  # of the header pass: it waits for the file system, not for the processor
UNKNOWN_ROOM = (
    2  # times the rows and the key width of the tars that can be read, when others cannot: they may be fuller
)


@dataclass(frozen=True, kw_only=True)
class PackedTars:
    """Tars of labelled images, ours or anyone's: ``units`` describes each, ``paths`` says where it lies.

    Of a tar that is missing or broken now, ``units`` knows nothing but the name; reading it says what is wrong.
    """

    units: tuple[UnitInfo, ...]
    paths: tuple[Place, ...]
    class_names: tuple[str, ...]
    longest_key: int  # in bytes; at least 1
    max_samples: int  # of a tar
    room: Room | None = None  # what the user said that a tar holds at most, where nobody has looked
    manifest: Place | None = None  # that says what was packed

    def samples(self, unit: int) -> Iterator[TarSample | Quarantined]:
        """The samples of a unit, in order.

        Raises:
            UserError: the tar is missing or broken, holds more than the user said, or is not the one of the manifest
                or of the pass over the headers.
        """
        about, path = self.units[unit], self.paths[unit]
        hashed = self.manifest is not None and _is_younger(path, self.manifest)
        known = Known(samples=about.samples, bytes=about.bytes, sha256=about.sha256 if hashed else None)
        yield from read_tar(path, self.room, known)


def _is_younger(path: Place, manifest: Place) -> bool:
    """Whether a tar was put in its place after the manifest was written; the others are as packing left them."""
    if is_remote(path) or not path.exists():
        return False
    return bool(path.stat().st_ctime_ns > manifest.stat().st_ctime_ns)


def open_packed(source: Place | Mapping[str, Any]) -> PackedTars:
    """The tars of a folder that ``stage=pack`` filled, or of a dataset ``{kind: webdataset, …}``.

    Tars without a manifest are counted by a pass over their headers, unless the dataset states their size; one that is
    missing or broken spoils no other.

    Raises:
        UserError: packing is not finished there, or the dataset is not packed; no tar is there and whole.
    """
    if not isinstance(source, Mapping):
        return _from_manifest(source, load_manifest(source))
    dataset = make_dataset(source)
    if not isinstance(dataset, WebDataset):
        raise UserError(f"dataset.kind={source['kind']} is not tars yet. Run: submit stage=pack")
    dataset.check()
    if dataset.config.max_rows_per_unit is not None:
        return _as_stated(
            dataset, Room(samples=dataset.config.max_rows_per_unit, key_bytes=dataset.config.max_key_bytes)
        )
    manifest = dataset.manifest
    return _from_headers(dataset) if manifest is None else _from_manifest(dataset.config.root, manifest)


def _from_manifest(folder: Place, manifest: Manifest) -> PackedTars:
    units = [UnitInfo(name=t.name, samples=t.samples, bytes=t.bytes, sha256=t.sha256) for t in manifest.tars]
    return PackedTars(
        units=tuple(units),
        paths=tuple(folder / TARS / tar.name for tar in manifest.tars),
        class_names=manifest.class_names,
        longest_key=max(1, *(tar.longest_key for tar in manifest.tars)),
        max_samples=max(tar.samples for tar in manifest.tars),
        manifest=folder / FILE,
    )


def _as_stated(dataset: WebDataset, room: Room) -> PackedTars:
    paths = dataset.tars()
    return PackedTars(
        units=tuple(UnitInfo(name=_name(dataset, path)) for path in paths),
        paths=tuple(paths),
        class_names=tuple(dataset.class_names()),
        longest_key=room.key_bytes,
        max_samples=room.samples,
        room=room,
    )


def _from_headers(dataset: WebDataset) -> PackedTars:
    paths = dataset.tars()
    with ThreadPoolExecutor(INDEX_THREADS) as pool:
        indices = list(pool.map(_index_or_error, paths))
    known = [index for index in indices if isinstance(index, TarIndex)]
    if not known:
        raise next(index for index in indices if isinstance(index, UserError))
    room = 1 if len(known) == len(indices) else UNKNOWN_ROOM
    return PackedTars(
        units=tuple(_unit(dataset, path, index) for path, index in zip(paths, indices, strict=True)),
        paths=tuple(paths),
        class_names=tuple(dataset.class_names()),
        longest_key=room * max(1, *(index.longest_key for index in known)),
        max_samples=room * max(index.samples for index in known),
    )


def _index_or_error(path: Place) -> TarIndex | UserError:
    try:
        return index_tar(path)
    except UserError as error:
        return error


def _unit(dataset: WebDataset, path: Place, index: TarIndex | UserError) -> UnitInfo:
    name = _name(dataset, path)
    return (
        UnitInfo(name=name, samples=index.samples, bytes=index.bytes)
        if isinstance(index, TarIndex)
        else UnitInfo(name=name)
    )


def _name(dataset: WebDataset, path: Place) -> str:
    return path.relative_to(dataset.config.root).as_posix()
