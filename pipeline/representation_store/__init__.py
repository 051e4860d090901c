"""The sharded Zarr store of cached representations: layout, writing, reading, commit records, verification."""

from pipeline.representation_store.compression import Compressor
from pipeline.representation_store.encoding import Dtype, largest
from pipeline.representation_store.layout import SCORES, StoreLayout, UnitInfo, bytes_a_row, fit_rows
from pipeline.representation_store.records import Commit
from pipeline.representation_store.rows import UnitRows
from pipeline.representation_store.store import RepresentationStore

__all__ = [
    "SCORES",
    "Commit",
    "Compressor",
    "Dtype",
    "RepresentationStore",
    "StoreLayout",
    "UnitInfo",
    "UnitRows",
    "bytes_a_row",
    "fit_rows",
    "largest",
]
