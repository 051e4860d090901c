"""copy units of one cache that were made in several places into one: stores=[a,b] into=c"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from cluster.verbs.base import DONE, Request
from pipeline.config import config
from pipeline.places import OutputPlace, Place

if TYPE_CHECKING:
    from pipeline.representation_store import RepresentationStore


@config
class Options:
    """What is merged."""

    # Run folders of stage=cache, or the stores in them, of the same digest; no unit may be committed in two of them.
    stores: Annotated[tuple[OutputPlace, ...], Field(min_length=2)]
    # Run folder that is made; the store is <into>/store. Use it with cache.output=<into>.
    into: OutputPlace


def run(request: Request) -> int:
    """Merge, and say what there is now."""
    from pipeline.representation_store.merge import merge  # here, so that the help page need not wait for zarr
    from pipeline.representation_store.store import store_inside

    options: Options = request.line.options
    merged = merge([store_inside(path) for path in options.stores], options.into / "store", request.progress)
    report(merged, options.into)
    return DONE


def report(store: RepresentationStore, folder: Place) -> None:
    """Say how much of a store there is, and how it is used."""
    rows, units = sum(store.counts().values()), len(store.layout.units)
    print(f"{store.path}: {rows} rows in {len(store.committed())} of {units} units")
    print(f"use it with cache.output={folder}")
