"""The zarr side of a store: its metadata made from the layout, and its arrays opened."""

from __future__ import annotations

import atexit
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import zarr
from numpy.typing import NDArray
from zarr.core.sync import sync
from zarr.storage import FsspecStore, MemoryStore

from pipeline.errors import UserError
from pipeline.files import write_bytes
from pipeline.places import Place, reaching
from pipeline.representation_store.compression import codecs
from pipeline.representation_store.layout import ArraySpec, StoreLayout, array_specs, chunk_shape, shard_shape

_AXIS_NAMES = {"R": "row", "V": "view", "D": "width", "P": "parameter"}


@lru_cache(maxsize=4)  # asked for at every opening, and milliseconds to make
def metadata(layout: StoreLayout) -> Mapping[str, bytes]:
    """What the zarr.json files of the group and its arrays hold, by path inside the store: the layout decides it."""
    made: dict[str, Any] = {}
    group = zarr.open_group(MemoryStore(made), mode="a", zarr_format=3)
    for name, spec in array_specs(layout).items():
        _create(group, name, layout, spec, units=len(layout.units))
    return {name: data.to_bytes() for name, data in made.items()}


def create_arrays(path: Place, layout: StoreLayout) -> None:
    """Make the group and those of its arrays that are not there."""
    for name, data in metadata(layout).items():
        if not (path / name).exists():
            write_bytes(path / name, data)


def shard_bytes(layout: StoreLayout, name: str, region: NDArray[Any]) -> bytes | None:
    """The object that holds a unit's whole region of an array; None where it is nothing but fill.

    It is made in memory: zarr reads an object that lies at its place before it writes over it, so it would stumble over
    a damaged one, and it does not write atomically.
    """
    made: dict[str, Any] = {}
    store = MemoryStore(made)
    spec = array_specs(layout)[name]
    with quiet_about_bytes():
        array = _create(zarr.open_group(store, mode="a", zarr_format=3), name, layout, spec, units=1)
        array[0] = region
    found = made.get("/".join([name, "c", "0", *("0" for _ in spec.axes)]))
    return None if found is None else found.to_bytes()


def _create(group: zarr.Group, name: str, layout: StoreLayout, spec: ArraySpec, units: int) -> zarr.Array[Any]:
    with quiet_about_bytes():
        return group.create_array(
            name,
            shape=(units, *shard_shape(layout, spec)[1:]),
            shards=shard_shape(layout, spec),
            chunks=chunk_shape(layout, spec),
            dtype=spec.dtype,
            fill_value=spec.fill,
            compressors=codecs(layout.compressor, layout.compression_level, spec.dtype),
            dimension_names=("unit", *(_AXIS_NAMES[axis] for axis in spec.axes)),
        )


def open_arrays(path: Place, layout: StoreLayout) -> dict[str, zarr.Array[Any]]:
    """The arrays by name, for reading.

    Raises:
        UserError: the metadata of the group or of an array is missing or damaged.
    """
    try:
        with quiet_about_bytes(), reaching(path):
            group = zarr.open_group(_zarr_store(path), mode="r", zarr_format=3)
            return {name: group[name] for name in array_specs(layout)}  # type: ignore[misc]
    except UserError:  # not the bytes, the connection
        raise
    except Exception as error:  # whatever a flipped bit makes zarr's parsers stumble over
        raise UserError(
            f"{path}: a zarr.json is missing or damaged ({error}). `submit verify stage=cache` says which, and the "
            "same `submit stage=cache` makes it again."
        ) from error


def _zarr_store(place: Place) -> Path | FsspecStore:
    if isinstance(place, Path):
        return place
    store = FsspecStore.from_url(str(place), storage_options=dict(place.storage_options))
    _connected.add(store.fs)
    return store


_connected: set[Any] = set()  # file systems that zarr's event loop uses; fsspec keeps one for equal options


@atexit.register  # after zarr's own, so it runs before zarr ends its loop
def _disconnect() -> None:
    """Close their connections: s3fs leaves them to the garbage collector, which complains as the process ends."""
    for system in _connected:
        session = getattr(system, "_s3creator", None)
        if session is not None:
            with suppress(Exception):
                sync(session.__aexit__(None, None, None), timeout=1)


@contextmanager
def quiet_about_bytes() -> Iterator[None]:
    """Zarr warns that fixed-width bytes have no v3 specification yet; docs/design/02_store.md pins their form."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*NullTerminatedBytes.*")
        yield
