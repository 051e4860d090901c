"""copy the committed units of a cache into one that has no others: store=a into=b"""

from __future__ import annotations

from cluster.verbs.base import DONE, Request
from cluster.verbs.merge import report
from pipeline.config import config
from pipeline.places import OutputPlace


@config
class Options:
    """What is compacted."""

    # Run folder of stage=cache, or the store in it; some of its units failed for good.
    store: OutputPlace
    # Run folder that is made; the store is <into>/store. Use it with cache.output=<into>.
    into: OutputPlace


def run(request: Request) -> int:
    """Compact, and say what there is now."""
    from pipeline.representation_store.merge import compact  # here, so that the help page need not wait for zarr
    from pipeline.representation_store.store import store_inside

    options: Options = request.line.options
    report(compact(store_inside(options.store), options.into / "store", request.progress), options.into)
    return DONE
