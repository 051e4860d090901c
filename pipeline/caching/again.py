"""Rows of a store made once more from their images: what ``submit verify recompute=<k>`` compares with the stored ones.

Shapes: n rows of a unit, V views, D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.caching.job import CacheJob
from pipeline.images.prepared import prepare
from pipeline.images.tars import TarSample, read_tar
from pipeline.progress import Progress
from pipeline.representation_store.recompute import recompute
from pipeline.representation_store.verify import Problem


def compare_again(job: CacheJob, rows: int, seed: int, progress: Progress) -> list[Problem]:
    """Embed ``rows`` random rows of the job's own store again, from the tars, and compare.

    Raises:
        UserError: a tar is not there or broken, or the store is of another run.
    """
    store, [stream, *_] = job.store, job.streams

    def embed(unit: int, chosen: Sequence[int]) -> NDArray[Any]:
        place = {store.read("key", unit, start=row, stop=row + 1)[0].decode(): n for n, row in enumerate(chosen)}
        stream.begin()
        for sample in read_tar(job.tars.paths[unit], job.tars.room):  # whatever lies there now: that is the question
            if isinstance(sample, TarSample) and sample.key in place:
                made = prepare(sample, job.plan)
                if not made.reason:
                    stream.add(made.key, made.label, made.views[0])
        found = stream.forward.results(len(store.layout.views))[0].embedding_RVD
        # NaN: an image that is not there any more or cannot be decoded cannot be what is stored
        made_nVD = np.full((len(chosen), *found.shape[1:]), np.nan, np.float32)
        for row, embedding_VD in zip(stream.rows, found, strict=True):
            made_nVD[place[row.key]] = embedding_VD
        return made_nVD

    compute = str(job.backbones[0].describe()["compute"])
    return recompute(store, embed, rows=rows, seed=seed, compute=compute, progress=progress)
