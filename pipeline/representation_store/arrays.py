"""The zarr side of a store: its metadata made from the layout, and its arrays opened."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import zarr
from zarr.storage import FsspecStore

from pipeline.places import Place
from pipeline.representation_store.compression import codecs
from pipeline.representation_store.layout import StoreLayout, array_specs, chunk_shape, shard_shape

_AXIS_NAMES = {"R": "row", "V": "view", "D": "width", "P": "parameter"}


def create_arrays(path: Place, layout: StoreLayout) -> None:
    """Make the group and those of its arrays that are not there."""
    group = zarr.open_group(_zarr_store(path), mode="a", zarr_format=3)
    for name, spec in array_specs(layout).items():
        if (path / name / "zarr.json").exists():
            continue
        with quiet_about_bytes():
            group.create_array(
                name,
                shape=(len(layout.units), *shard_shape(layout, spec)[1:]),
                shards=shard_shape(layout, spec),
                chunks=chunk_shape(layout, spec),
                dtype=spec.dtype,
                fill_value=spec.fill,
                compressors=codecs(layout.compressor, layout.compression_level, spec.dtype),
                dimension_names=("unit", *(_AXIS_NAMES[axis] for axis in spec.axes)),
            )


def open_arrays(path: Place, layout: StoreLayout) -> dict[str, zarr.Array[Any]]:
    """The arrays by name, for reading and writing."""
    with quiet_about_bytes():
        group = zarr.open_group(_zarr_store(path), mode="r+", zarr_format=3)
        return {name: group[name] for name in array_specs(layout)}  # type: ignore[misc]


def _zarr_store(place: Place) -> Path | FsspecStore:
    if isinstance(place, Path):
        return place
    return FsspecStore.from_url(str(place), storage_options=dict(place.storage_options))


@contextmanager
def quiet_about_bytes() -> Iterator[None]:
    """Zarr warns that fixed-width bytes have no v3 specification yet; docs/design/02_store.md pins their form."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*NullTerminatedBytes.*")
        yield
