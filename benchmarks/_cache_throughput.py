"""The work of benchmarks/cache_throughput.py; apart, because decoding processes import the main module anew."""

from __future__ import annotations

import argparse
import io
import json
import resource
import statistics
import tarfile
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_sample_images

from pipeline.backbones import Group, groups, make_backbone
from pipeline.caching.job import CacheJob
from pipeline.caching.settings import CacheSettings
from pipeline.caching.workers import Processes, cores
from pipeline.images.packed import PackedTars, open_packed
from pipeline.memory import keep_freed_memory
from pipeline.progress import Silent

CLASS_LIST = "imagenet21k_google"
CLASSES = 21_843
DISTINCT = 512  # JPEGs that are made; more images than that are the same ones under other keys


def jpegs(count: int) -> list[bytes]:
    """Crops of real photographs, each of its own place and scale, as JPEGs of quality 90."""
    photographs = [Image.fromarray(image) for image in load_sample_images().images]

    def make(index: int) -> bytes:
        rng = np.random.default_rng(index)
        photograph = photographs[index % len(photographs)]
        share = rng.uniform(0.5, 1.0)
        width, height = int(photograph.width * share), int(photograph.height * share)
        left, top = (int(rng.integers(free + 1)) for free in (photograph.width - width, photograph.height - height))
        crop = photograph.crop((left, top, left + width, top + height)).resize((500, 375), Image.Resampling.LANCZOS)
        buffer = io.BytesIO()
        crop.save(buffer, "JPEG", quality=90)
        return buffer.getvalue()

    with ThreadPoolExecutor() as pool:
        return list(pool.map(make, range(count)))


def write_tar(path: Path, images: int, pictures: Sequence[bytes]) -> None:
    """A tar of ``images`` samples, each a JPEG and the index of its class."""
    rng = np.random.default_rng(0)
    with tarfile.open(path, "w") as tar:
        for index in range(images):
            label = b"%d" % rng.integers(CLASSES)
            for extension, data in (("jpg", pictures[index % len(pictures)]), ("cls", label)):
                member = tarfile.TarInfo(f"{index:06d}.{extension}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))


def seconds(work: Callable[[], Any], device: torch.device) -> float:
    """How long ``work`` takes, until the device is done."""
    start = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - start


class Forward:
    """The backbone alone, on batches that lie ready."""

    def __init__(self, group: Group, batch_size: int) -> None:
        size = group.network.preprocessing.size
        images_BCHW = torch.randn(batch_size, 3, size, size, device=group.network.device)
        self.images_BCHW = images_BCHW.contiguous(memory_format=torch.channels_last)
        self.group = group

    def run(self, views: int) -> None:
        """Send so many views through."""
        size = len(self.images_BCHW)
        for start in range(0, views, size):
            part = size if self.group.network.fixed_batch else min(size, views - start)
            self.group.represent(self.images_BCHW[:part])


def measure(values: dict[str, Any], arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """One model: rates, ratios and memory."""

    def job(tars: PackedTars, name: str, views: tuple[str, ...]) -> CacheJob:
        settings = CacheSettings(views=views, decode=arguments.decode, workers=arguments.workers, classifier="required")
        made = CacheJob(tars=tars, stores={folder / name: values}, settings=settings)
        made.backbones = [backbone]  # loading is not what is measured
        made.prepare()
        return made

    began = time.perf_counter()
    keep_freed_memory()
    backbone = make_backbone(values)

    pictures = jpegs(min(DISTINCT, 64 if arguments.seconds < 60 and not torch.cuda.is_available() else DISTINCT))
    write_tar(folder / "00000.tar", 2, pictures)
    tars = open_packed({"kind": "webdataset", "root": str(folder), "class_list": CLASS_LIST})
    names = tuple(f"random{i}" for i in range(arguments.views))
    trial = job(tars, "trial", names)
    [group], device = groups([backbone]), backbone.device
    batch_size = int(trial.store.run["batch_size"])
    forward = Forward(group, batch_size)
    forward.run(batch_size)
    rate = batch_size / seconds(lambda: forward.run(batch_size), device)
    images = max(2, round(rate * arguments.seconds / arguments.views))
    views = images * arguments.views
    jobs = []
    # decoding processes start one by one, as there are images for them
    warm = 6 * (arguments.workers or cores()) if isinstance(trial._workers, Processes) else 2
    # as many views of one kind as of the other, so that both are cut into the same batches
    for name, count, kinds in (("all", images, names), ("one", views, names[:1])):
        (folder / name).mkdir()
        for unit in range(arguments.rounds + 1):
            write_tar(folder / name / f"{unit:05d}.tar", count if unit else warm, pictures)
        tars = open_packed({"kind": "webdataset", "root": str(folder / name), "class_list": CLASS_LIST})
        jobs.append(job(tars, f"{name}_store", kinds))
    all_views, one_view = jobs
    all_views.run(0, Silent())  # starts the workers
    one_view.run(0, Silent())
    print(f"{time.perf_counter() - began:.0f} s: ready, batches of {batch_size}, {images} images a round", flush=True)
    found: dict[str, list[float]] = {"ours": [], "forward": [], "one_view": []}
    for unit in range(1, arguments.rounds + 1):
        before = views / seconds(lambda: forward.run(views), device)
        ours = views / seconds(partial(all_views.run, unit, Silent()), device)
        after = views / seconds(lambda: forward.run(views), device)
        one = views / seconds(partial(one_view.run, unit, Silent()), device)
        forward_rate = 2 / (1 / before + 1 / after)
        for key, value in {"ours": ours, "forward": forward_rate, "one_view": one}.items():
            found[key].append(value)
        print(
            f"round {unit}: ours {ours:.1f}/s, forward {before:.1f} and {after:.1f}/s, one view at a time {one:.1f}/s",
            flush=True,
        )
    # over all rounds together: views by time, so that a round that the machine was slow in counts as the time it took
    whole = {key: statistics.harmonic_mean(value) for key, value in found.items()}
    return {
        "cache_images_views_per_s": round(whole["ours"], 2),
        "forward_only_per_s": round(whole["forward"], 2),
        "ratio": round(whole["ours"] / whole["forward"], 4),
        "ratios": [round(a / b, 4) for a, b in zip(found["ours"], found["forward"], strict=True)],
        "one_view_at_a_time_ratio": round(whole["ours"] / whole["one_view"], 4),
        "peak_rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "images_a_round": images,
        "views": arguments.views,
        "batch_size": batch_size,
        "backbone": {key: backbone.describe()[key] for key in ("name", "compute", "compile")},
        "decode": type(all_views._workers).__name__.lower(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "threads": torch.get_num_threads(),
    }


def main(description: str) -> None:
    """Read the command line and measure."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["vit_small_patch16_224", "vit_large_patch16_224"])
    parser.add_argument("--seconds", type=float, default=5, help="of forward passes in each measurement")
    parser.add_argument("--views", type=int, default=7, help="random views of each image")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--compile", default="auto", choices=["auto", "on", "off"])
    parser.add_argument("--decode", default="auto", choices=["auto", "threads", "processes"])
    parser.add_argument("--workers", type=int, default=0, help="that decode; 0 = one a core")
    arguments = parser.parse_args()
    results = {}
    for model in arguments.models:
        values = {
            **{"model": model, "weights": "random", "num_classes": CLASSES, "class_list": CLASS_LIST},
            **{"device": arguments.device, "compile": arguments.compile},
        }
        print(model)
        with tempfile.TemporaryDirectory() as name:
            results[model] = measure(values, arguments, Path(name))
    print(json.dumps({"model": arguments.models[0], **results[arguments.models[0]], "models": results}))
