"""What each dtype and compressor of the representation store costs, on real embeddings.

    python -m benchmarks.storage [experiment=demo] [key=value …] [--rounds 3] [--mb 200] [--levels 1,5] [--store DIR]

The experiment's cache must be done (`submit stage=[pack,cache] …` with the same settings); its rows are written anew in
every form.

* bytes a view: of the embedding (with its scale) of one view of one image, on the disk; and the same by dimension;
* write, read: GB/s, counting each number as the 2 bytes that float16 takes, so that all lines compare. Writing is
  `write_unit`, durable and with its checksums; reading is what training reads, from the page cache. The forms take
  turns in every round, in this one process, and the best round of each is shown;

Embeddings of a float16 store leave 13 bits of a float32 number zero, so the compressed sizes of float32 are then too
small; for true ones, run the chain with cache.dtype=float32. What a dtype does to R-AUROC: benchmarks/dtype_scores.py.

Run it on a quiet machine. The last line is JSON.
"""

from __future__ import annotations

import argparse
import itertools
import json
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import get_args

from cluster.compose import compose
from cluster.overrides import read
from cluster.progress import progress_on
from pipeline.errors import UserError
from pipeline.representation_store import (
    SCORES,
    Compressor,
    Dtype,
    RepresentationStore,
    UnitRows,
    fit_rows,
)
from stages.base import make_stage


@dataclass(kw_only=True)
class Form:
    """One way to store, and what was measured of it."""

    dtype: Dtype
    compressor: Compressor
    level: int
    bytes_a_view: float = 0.0
    write_gb_s: list[float] = field(default_factory=list)
    read_gb_s: list[float] = field(default_factory=list)


def forms(levels: Sequence[int]) -> list[Form]:
    """Every dtype with every compressor at every level."""
    found = []
    for dtype, compressor in itertools.product(get_args(Dtype), get_args(Compressor)):
        for level in levels[:1] if compressor == "none" else levels:
            found.append(Form(dtype=dtype, compressor=compressor, level=level))
    return found


def unit_rows(store: RepresentationStore, unit: int) -> UnitRows:
    """The rows of a unit as they were given to the store, but for the rounding of its dtype."""
    return UnitRows(
        embedding_RVD=store.representation(unit),
        view_params_RVP=store.read("view_params", unit),
        label_R=store.read("label", unit),
        keys=[key.decode() for key in store.read("key", unit)],
        scores={name: store.read(name, unit) for name in SCORES},
    )


def empty_like(store: RepresentationStore, path: Path, form: Form, *, same_chunks: bool = False) -> RepresentationStore:
    """A store of the same rows in another form, without rows; with the chunks that caching would take, or the same."""
    rows, chunk_rows = fit_rows(max(store.counts().values()), store.layout.width, form.dtype)
    layout = replace(
        store.layout,
        dtype=form.dtype,
        compressor=form.compressor,
        compression_level=form.level,
        rows=store.layout.rows if same_chunks else rows,
        chunk_rows=store.layout.chunk_rows if same_chunks else chunk_rows,
    )
    return RepresentationStore.create(path, layout, {k: v for k, v in store.run.items() if k != "layout"})


def measure(source: RepresentationStore, made: Sequence[UnitRows], form: Form, folder: Path) -> None:
    """Write the rows in a form, and read them."""
    layout = source.layout
    store = empty_like(source, folder, form)
    views = sum(len(rows.keys) for rows in made) * len(layout.views)
    gigabytes = views * layout.width * 2 / 1e9
    start = time.perf_counter()
    for unit, rows in enumerate(made):
        store.write_unit(unit, rows)
    form.write_gb_s.append(gigabytes / (time.perf_counter() - start))
    start = time.perf_counter()
    for unit, array in itertools.product(range(len(made)), store.layout.representation):
        store.read(array, unit)
    form.read_gb_s.append(gigabytes / (time.perf_counter() - start))
    paths = [store.shard_path(a, u) for u, a in itertools.product(range(len(made)), store.layout.representation)]
    form.bytes_a_view = sum(path.stat().st_size for path in paths if path.exists()) / views
    shutil.rmtree(folder)


def some_units(source: RepresentationStore, megabytes: float) -> Iterator[UnitRows]:
    """Rows of the first units, as many as make up ``megabytes`` of float16."""
    left = megabytes * 1e6
    for unit in source.counts():
        if left <= 0:
            return
        rows = unit_rows(source, unit)
        left -= rows.embedding_RVD.size * 2
        yield rows


def table(measured: Sequence[Form], width: int) -> str:
    """Markdown."""
    heads = ["dtype", "compressor", "level", "bytes a view", "bytes a dimension", "write GB/s", "read GB/s"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for form in measured:
        lines.append(
            f"| {form.dtype} | {form.compressor} | {'' if form.compressor == 'none' else form.level} "
            f"| {form.bytes_a_view:.0f} | {form.bytes_a_view / width:.3f} | {max(form.write_gb_s):.3f} "
            f"| {max(form.read_gb_s):.3f} |"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("settings", nargs="*", help="of the chain, as for submit: experiment=demo key=value …")
    parser.add_argument("--store", type=Path, help="of the embeddings; default: the one of the experiment's cache")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--mb", type=float, default=200, help="of float16 embeddings that are written and read, 10⁶ B")
    parser.add_argument("--levels", default="1,5", help="of the compressors")
    options = parser.parse_args(arguments)
    experiment = compose(read(options.settings).overrides).experiment
    path = options.store or make_stage("cache", experiment).folder / "store"
    source = RepresentationStore.open(path)
    made = list(some_units(source, options.mb))
    if not sum(len(rows.keys) for rows in made):
        raise UserError(f"{path} has no rows yet.")
    measured = forms([int(level) for level in options.levels.split(",")])
    progress = progress_on()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        bar = progress.bar("write and read", options.rounds * len(measured), "forms")
        for _, form in itertools.product(range(options.rounds), measured):
            measure(source, made, form, folder / "speed")
            bar.advance()
        bar.close()
    print(table(measured, source.layout.width))
    rows = [
        {
            "dtype": form.dtype,
            "compressor": form.compressor,
            "level": form.level,
            "bytes_a_view": round(form.bytes_a_view, 1),
            "bytes_a_dimension": round(form.bytes_a_view / source.layout.width, 4),
            "write_gb_s": round(max(form.write_gb_s), 4),
            "read_gb_s": round(max(form.read_gb_s), 4),
        }
        for form in measured
    ]
    facts = {"width": source.layout.width, "views": len(source.layout.views), "rows": sum(source.counts().values())}
    print(json.dumps({"forms": rows, "stored_as": source.layout.dtype, **facts}))


if __name__ == "__main__":
    main()
