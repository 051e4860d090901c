"""What is still to be cached, in forward passes, bytes, files and hours, before anything is computed.

Hours come from three places, each said with what it is: the units that are done already, a few batches timed here, and
a table of rates that others measured (``rates.json``, whose ``source`` says how).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from pipeline.backbones import groups, make_backbones
from pipeline.caching.batch_size import find_batch_size
from pipeline.caching.forward import Forward
from pipeline.caching.job import CacheJob
from pipeline.caching.target import Target
from pipeline.caching.workers import Threads, cores
from pipeline.errors import UserError
from pipeline.estimate import Estimate
from pipeline.files import read_json
from pipeline.representation_store import RepresentationStore, StoreLayout, bytes_a_row
from pipeline.representation_store.layout import array_specs
from pipeline.representation_store.records import committed_units, record_path
from pipeline.vision_packages import fitting_torch

RATES = Path(__file__).with_name("rates.json")
RECORDS = 2  # files of a unit beside its arrays: commit record and telemetry
SO_FAR = "at the rate of the units that are done"
TIMED = "timed here"


def estimate(job: CacheJob, *, batches: int = 0) -> Estimate:
    """What ``job`` has still to do.

    Args:
        job: nothing of it is begun.
        batches: of views that are decoded, made and sent through the backbones here to see how long it takes; 0 = none,
            and no backbone is loaded.

    Raises:
        UserError: batches are to be timed, and the backbone or the images cannot be had.
    """
    rows = [_missing_rows(target) for target in job.targets]
    views = [None if count is None else count * len(job.settings.view_names) for count in rows]
    layouts = [_layout(target) for target in job.targets]
    sizes = [
        None if count is None or layout is None else count * bytes_a_row(layout)
        for count, layout in zip(rows, layouts, strict=True)
    ]
    units = [len(target.missing()) for target in job.targets]
    of_a_unit = [(None, None) if layout is None else (_files(layout), _inodes(layout)) for layout in layouts]
    files, inodes = (
        [None if made is None else count * (made + RECORDS) for count, made in zip(units, kind, strict=True)]
        for kind in zip(*of_a_unit, strict=True)
    )
    return Estimate(
        views=_sum(views), bytes=_sum(sizes), files=_sum(files), inodes=_sum(inodes), hours=_hours(job, rows, batches)
    )


def _sum(counts: list[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def _missing_rows(target: Target) -> int | None:
    return _sum([target.tars.units[unit].samples for unit in target.missing()])


# -- bytes and files


def _layout(target: Target) -> StoreLayout | None:
    """Of the store if it is begun, else what it will be like, as far as that decides its size."""
    if target.began:
        return RepresentationStore.open(target.path).layout
    width = _width(target.backbone_values)
    return None if width is None else target.layout(width)


def _width(values: Mapping[str, Any]) -> int | None:
    """Of a timm model's own embedding, from its architecture alone."""
    known = values.get("source", "timm") == "timm" and values.get("weights") != "ours"
    if not known or values.get("layer", -1) != -1 or values.get("pooling", "auto") != "auto":
        return None
    with fitting_torch():
        import timm  # where it is asked: it takes seconds to import

    try:
        with torch.device("meta"):
            model: Any = timm.create_model(values["model"])
        return int(model.head_hidden_size)
    except (RuntimeError, AttributeError, NotImplementedError):  # no such model, or one that is built otherwise
        return None


def _files(layout: StoreLayout) -> int:
    """Of a unit's arrays: one object each."""
    return len(array_specs(layout))


def _inodes(layout: StoreLayout) -> int:
    """Of these files and their folders: each lies in one for every axis but the last."""
    return sum(len(spec.axes) + 1 for spec in array_specs(layout).values())


# -- hours


def _hours(job: CacheJob, rows: list[int | None], batches: int) -> dict[str, float]:
    images = max((count for count in rows if count is not None), default=0)
    if not images:
        return {}
    hours = {}
    done = _seconds_an_image_so_far(job.targets[0])
    if done is not None:
        hours[SO_FAR] = images * done / 3600
    if batches:
        hours[TIMED] = images * seconds_an_image(job, batches) / 3600
    views = images * len(job.settings.view_names)
    rates = [_table(target.backbone_values) for target in job.targets]
    for device in sorted(set.intersection(*(set(found) for found in rates))):
        hours[device] = sum(views / found[device] for found in rates) / 3600
    return hours


def _seconds_an_image_so_far(target: Target) -> float | None:
    """From the telemetry of the units that are done, one after the other."""
    samples, seconds = 0, 0.0
    if not target.began:
        return None
    store = RepresentationStore.open(target.path)
    for unit in committed_units(target.path / "commits"):
        path = record_path(target.path / "telemetry", unit)
        if path.exists():
            commit = store.commit(unit)
            samples += commit.rows + len(commit.quarantined)
            seconds += float(read_json(path)["seconds"])
    return seconds / samples if samples else None


@lru_cache(maxsize=1)
def _rates() -> Mapping[str, Any]:
    plain: Mapping[str, Any] = read_json(RATES)
    return plain


def _table(values: Mapping[str, Any]) -> Mapping[str, float]:
    """Images a second of the forward pass alone, by device; empty for a model that is not in the table."""
    with fitting_torch():
        import timm

    model = str(values.get("model")).partition(".")[0]
    if values.get("source", "timm") != "timm" or not timm.is_model(model):
        return {}
    own = timm.get_pretrained_cfg(str(values["model"]))
    size = values.get("size") or (own.input_size[-1] if own is not None else None)
    return dict(_rates()["rates"].get(model, {}).get(str(size), {}))


def seconds_an_image(job: CacheJob, batches: int) -> float:
    """How long an image takes here, from the tar to the representation by every backbone; nothing is stored.

    Args:
        job: whose first missing units are read.
        batches: of the first backbone that are timed, after one that is not.

    Raises:
        UserError: a backbone or the images cannot be had, or there are not enough images for one batch.
    """
    backbones = make_backbones([target.backbone_values for target in job.targets])
    streams = [Forward(group, [None] * len(group.members), find_batch_size(group)) for group in groups(backbones)]
    plan = job.plan_for([stream.group.network.preprocessing for stream in streams])
    workers = Threads(plan, job.settings.workers or cores())
    size = streams[0].batch_size
    images, seen, start = 0, 0, 0.0
    for image in workers.map(sample for unit in job.missing() for sample in job.tars.samples(unit)):
        if image.reason:
            continue
        for stream, views in zip(streams, image.views, strict=True):
            stream.add(views.pixels, image.label)
        before, seen = seen // size, seen + len(job.settings.view_names)
        images += before >= 1
        if not before and seen // size:
            _finish(streams)
            start = time.perf_counter()
        if seen // size > batches:
            break
    _finish(streams)
    workers.close()
    if not images:
        raise UserError(f"too few images to time a batch of {size} views after the first; plan without timed=…")
    return (time.perf_counter() - start) / images


def _finish(streams: list[Forward]) -> None:
    for stream in streams:
        stream.begin()
        if stream.group.network.device.type == "cuda":
            torch.cuda.synchronize(stream.group.network.device)
