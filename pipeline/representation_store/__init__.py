"""The sharded Zarr store of cached representations: layout, writing, reading, commit records, verification."""

from typing import TYPE_CHECKING

from pipeline.on_demand import on_demand

if TYPE_CHECKING:
    from pipeline.representation_store.compression import Compressor
    from pipeline.representation_store.encoding import Dtype, largest
    from pipeline.representation_store.layout import SCORES, StoreLayout, UnitInfo, bytes_a_row, fit_rows
    from pipeline.representation_store.records import Commit
    from pipeline.representation_store.rows import UnitRows
    from pipeline.representation_store.store import RepresentationStore
else:  # zarr takes a while, and who looks at records needs none of it
    __getattr__ = on_demand(
        __name__,
        {
            "compression": ("Compressor",),
            "encoding": ("Dtype", "largest"),
            "layout": ("SCORES", "StoreLayout", "UnitInfo", "bytes_a_row", "fit_rows"),
            "records": ("Commit",),
            "rows": ("UnitRows",),
            "store": ("RepresentationStore",),
        },
    )

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
