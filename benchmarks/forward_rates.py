"""How many views a second common backbones do on this device: what `submit plan` reckons with.

    python -m benchmarks.forward_rates [--models …] [--device auto] [--compute auto] [--compile auto] [--seconds 3]

Random weights, 224 px or the model's own size, batches of the size that caching would take. Medians over some rounds of
batches that lie ready on the device. The last line is JSON: model → views/s, batch size, compute, compiled or not.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

import torch

from pipeline.backbones import groups, make_backbone
from pipeline.caching.batch_size import find_batch_size
from pipeline.memory import keep_freed_memory

MODELS = (
    "vit_small_patch16_224",
    "vit_base_patch16_224",
    "vit_large_patch16_224",
    "vit_small_patch14_dinov2",
    "resnet50",
    "convnext_base",
    "tf_efficientnet_lite0",
)
ROUNDS = 3


def measure(model: str, arguments: argparse.Namespace) -> dict[str, object]:
    """One model."""
    size = {"size": 224} if "patch14" in model else {}
    how = {name: getattr(arguments, name) for name in ("device", "compute", "compile")}
    backbone = make_backbone({"model": model, "weights": "random", **how, **size})
    [group] = groups([backbone])
    batch_size, device, side = find_batch_size(group), backbone.device, backbone.preprocessing.size
    images_BCHW = torch.randn(batch_size, 3, side, side, device=device).contiguous(memory_format=torch.channels_last)

    def run(count: int) -> float:
        start = time.perf_counter()
        for _ in range(count):
            group.represent(images_BCHW)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return count * batch_size / (time.perf_counter() - start)

    run(2)
    count = max(1, round(run(1) * arguments.seconds / batch_size))
    rate = statistics.median(run(count) for _ in range(ROUNDS))
    facts = backbone.describe()
    return {
        "views_per_s": round(rate, 2),
        "batch_size": batch_size,
        "size": side,
        "compute": facts["compute"],
        "compile": facts["compile"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    parser.add_argument("--device", default="auto")
    parser.add_argument("--compute", default="auto", choices=["auto", "fp32", "bf16"])
    parser.add_argument("--compile", default="auto", choices=["auto", "on", "off"])
    parser.add_argument("--seconds", type=float, default=3, help="of each round")
    arguments = parser.parse_args()
    keep_freed_memory()
    rates = {}
    for model in arguments.models:
        rates[model] = measure(model, arguments)
        print(f"{model}: {rates[model]['views_per_s']} views/s", flush=True)
    cuda = torch.cuda.is_available() and arguments.device != "cpu"
    device = torch.cuda.get_device_name() if cuda else "cpu"
    print(json.dumps({"device": device, "threads": torch.get_num_threads(), "rates": rates}))


if __name__ == "__main__":
    main()
