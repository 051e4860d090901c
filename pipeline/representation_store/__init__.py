"""The sharded Zarr store of cached representations: layout, writing, reading, commit records, verification."""

from pipeline.representation_store.layout import SCORES, StoreLayout, UnitInfo, fit_rows
from pipeline.representation_store.records import Commit, Quarantined
from pipeline.representation_store.store import RepresentationStore, UnitRows

__all__ = ["SCORES", "Commit", "Quarantined", "RepresentationStore", "StoreLayout", "UnitInfo", "UnitRows", "fit_rows"]
