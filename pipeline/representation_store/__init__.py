"""The sharded Zarr store of cached representations: layout, writing, reading, commit records, verification."""

from pipeline.representation_store.layout import SCORES, StoreLayout, UnitInfo, fit_rows
from pipeline.representation_store.records import Commit
from pipeline.representation_store.store import RepresentationStore, UnitRows

__all__ = ["SCORES", "Commit", "RepresentationStore", "StoreLayout", "UnitInfo", "UnitRows", "fit_rows"]
