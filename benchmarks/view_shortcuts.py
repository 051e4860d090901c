"""What two shortcuts on the way from a JPEG to a view would save, and what they would change.

    python -m benchmarks.view_shortcuts

* draft: libjpeg decodes at a half, a quarter or an eighth of the size, and the centre view is resized from that;
* torch's resize (``interpolate(…, antialias=True)`` on uint8) in place of Pillow's, for random crops of a 500 × 375
  photograph, on one thread.

Processor time beside the way that stands, share of the values of the view that differ, and by how many of 255 levels.
The photographs are those of benchmarks/cache_throughput.py. The last line is JSON.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from sklearn.datasets import load_sample_images

SHORT_SIDE, SIZE, ROUNDS, CROPS = 249, 224, 10, 60  # 249 = ⌊224 / 0.9⌋
Pixels = NDArray[np.uint8]


def compared(ours: Callable[[], Pixels], other: Callable[[], Pixels]) -> dict[str, float]:
    """Time of ``other`` over that of ``ours``, in turns, and how their pixels differ."""
    seconds = [0.0, 0.0]
    for _ in range(ROUNDS):
        for place, work in enumerate((ours, other)):
            start = time.process_time()
            work()
            seconds[place] += time.process_time() - start
    off = np.abs(ours().astype(int) - other().astype(int))
    return {
        "time_ratio": seconds[1] / seconds[0],
        "differ": float((off > 0).mean()),
        "mean": float(off.mean()),
        "max": int(off.max()),
    }


def draft(width: int, height: int) -> dict[str, float]:
    """The centre view's resize from a whole decode and from a reduced one."""
    buffer = io.BytesIO()
    photograph = Image.fromarray(load_sample_images().images[0])
    photograph.resize((width, height), Image.Resampling.LANCZOS).save(buffer, "JPEG", quality=90)
    size = (round(SHORT_SIDE * width / height), SHORT_SIDE)

    def view(*, reduced: bool) -> Pixels:
        image = Image.open(io.BytesIO(buffer.getvalue()))
        if reduced:
            image.draft("RGB", size)
        return np.asarray(image.convert("RGB").resize(size, Image.Resampling.BICUBIC))

    return compared(lambda: view(reduced=False), lambda: view(reduced=True))


def _by_pillow(crop: Image.Image, filter_: Image.Resampling) -> Pixels:
    return np.asarray(crop.resize((SIZE, SIZE), filter_))


def torch_resize(mode: str) -> dict[str, float]:
    """Random crops, resized by Pillow and by torch; over all of them."""
    rng = np.random.default_rng(0)
    photograph = Image.fromarray(load_sample_images().images[0]).resize((500, 375), Image.Resampling.LANCZOS)
    filter_ = Image.Resampling[mode.upper()]
    found = []
    for _ in range(CROPS):
        width, height = int(rng.integers(100, 500)), int(rng.integers(100, 375))
        left, top = int(rng.integers(501 - width)), int(rng.integers(376 - height))
        crop = photograph.crop((left, top, left + width, top + height))
        pixels_1CHW = torch.from_numpy(np.asarray(crop).copy()).permute(2, 0, 1)[None]

        def by_torch(pixels_1CHW: torch.Tensor = pixels_1CHW) -> Pixels:
            made = torch.nn.functional.interpolate(
                pixels_1CHW, size=(SIZE, SIZE), mode=mode, antialias=True, align_corners=False
            )
            return np.asarray(made[0].permute(1, 2, 0).numpy())

        found.append(compared(partial(_by_pillow, crop, filter_), by_torch))
    return {
        **{key: float(np.mean([item[key] for item in found])) for key in ("time_ratio", "differ", "mean")},
        "max": max(item["max"] for item in found),
    }


def main() -> None:
    torch.set_num_threads(1)
    result = {
        "draft_2560x1708": draft(2560, 1708),
        "draft_640x427": draft(640, 427),
        "torch_bicubic": torch_resize("bicubic"),
        "torch_bilinear": torch_resize("bilinear"),
    }
    for name, facts in result.items():
        print(name, {key: round(value, 3) for key, value in facts.items()})
    print(json.dumps(result))


if __name__ == "__main__":
    main()
