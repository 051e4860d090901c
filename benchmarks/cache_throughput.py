"""How close caching comes to the speed of the backbone alone.

    python -m benchmarks.cache_throughput [--model vit_small_patch16_224] [--images 24] [--views 7] [--rounds 3]

Real JPEGs of about 500 × 375 (crops of the two photographs that scikit-learn ships) are packed into tars; then, in
turns within one run and on the same threads:

* ours: read, decode once, make all views, forward, write the store and its commit record;
* forward only: the same number of views through the same backbone, from ready tensors;
* one view at a time: the same cache code, once for each view, so that every image is decoded once a view.

Rates are views/s, medians over the rounds. The last line is JSON.
"""

from __future__ import annotations

import argparse
import io
import json
import resource
import statistics
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_sample_images

from pipeline.backbones import make_backbone
from pipeline.backbones.memory import keep_freed_memory
from pipeline.caching import CacheJob, CacheSettings
from pipeline.images.packed import open_packed
from pipeline.progress import Silent

BATCH = 32


def write_tar(path: Path, images: int) -> None:
    """Crops of real photographs, each of its own place and scale, as JPEGs of quality 90."""
    photographs = [Image.fromarray(image) for image in load_sample_images().images]
    rng = np.random.default_rng(0)
    with tarfile.open(path, "w") as tar:
        for index in range(images):
            photograph = photographs[index % len(photographs)]
            share = rng.uniform(0.5, 1.0)
            width, height = int(photograph.width * share), int(photograph.height * share)
            left, top = rng.integers(photograph.width - width + 1), rng.integers(photograph.height - height + 1)
            crop = photograph.crop((left, top, left + width, top + height)).resize((500, 375), Image.Resampling.LANCZOS)
            buffer = io.BytesIO()
            crop.save(buffer, "JPEG", quality=90)
            for extension, data in (("jpg", buffer.getvalue()), ("cls", b"%d" % (index % 2))):
                member = tarfile.TarInfo(f"{index:06d}.{extension}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))


def seconds(work: Callable[[], None]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="vit_small_patch16_224", help="timm name; random weights")
    parser.add_argument("--images", type=int, default=24, help="images a round")
    parser.add_argument("--views", type=int, default=7, help="random views of each image")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    keep_freed_memory()
    values = {"model": arguments.model, "weights": "random"}
    backbone = make_backbone(values)
    size, views = backbone.preprocessing.size, tuple(f"random{i}" for i in range(arguments.views))
    count = arguments.images * len(views)
    batch_BCHW = torch.randn(BATCH, 3, size, size).contiguous(memory_format=torch.channels_last)
    times: dict[str, list[float]] = {"ours": [], "forward": [], "one_view": []}

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_tar(folder / "images.tar", arguments.images)
        (folder / "classes.txt").write_text("china\nflower\n")
        tars = open_packed({"kind": "webdataset", "root": name, "class_list": str(folder / "classes.txt")})

        def cache(store: str, names: tuple[str, ...]) -> None:
            settings = CacheSettings(views=names, batch_size=BATCH, classifier="off")
            job = CacheJob(tars=tars, store=folder / store, backbone=values, settings=settings)
            job.backbone = backbone  # loading is not what is measured
            job.run(0, Silent())

        def forward_only() -> None:
            for start in range(0, count, BATCH):
                backbone.represent(batch_BCHW[: min(BATCH, count - start)])

        forward_only()
        for turn in range(arguments.rounds):
            times["ours"].append(seconds(lambda turn=turn: cache(f"ours{turn}", views)))
            times["forward"].append(seconds(forward_only))
            times["one_view"].append(
                seconds(lambda turn=turn: [cache(f"one{turn}-{view}", (view,)) for view in views] and None)
            )
            print(f"round {turn}: " + ", ".join(f"{key} {count / value[-1]:.1f}/s" for key, value in times.items()))

    rate = {key: count / statistics.median(value) for key, value in times.items()}
    result = {
        "model": arguments.model,
        "threads": torch.get_num_threads(),
        "images": arguments.images,
        "views": len(views),
        "cache_images_views_per_s": round(rate["ours"], 2),
        "forward_only_per_s": round(rate["forward"], 2),
        "ratio": round(rate["ours"] / rate["forward"], 4),
        "one_view_at_a_time_ratio": round(rate["ours"] / rate["one_view"], 4),
        "peak_rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
