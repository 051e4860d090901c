"""Train the small ViT of ours that tests and the digits demo use, and write it into the package.

    python -m benchmarks.train_digit_vit --seed 0

It classifies pairs of digits (70 seen classes, ``split: backbone``), every image drawn once. Judged on other digits of
the same classes, and zero-shot on the 30 classes it never saw. One thread, so that the weights repeat on one machine.
The last line is JSON; the same goes into ``pipeline/backbones/digit_vit.json``. Results: docs/digit_vit.md.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor
from torch.nn.functional import cross_entropy
from tqdm import tqdm

from pipeline.backbones.sources._timm_models import OURS
from pipeline.datasets.digit_pairs import CANVAS, DigitPairs, Split, class_of
from pipeline.files import sha256_file, write_bytes, write_json
from pipeline.metrics.r_auroc import auroc, r_auroc
from pipeline.metrics.retrieval import retrieve

NAME = "digit_vit"
CLASSES = 70
ARCHITECTURE: dict[str, Any] = {
    "img_size": CANVAS,
    "patch_size": 7,
    "embed_dim": 64,
    "depth": 3,
    "num_heads": 4,
    "mlp_ratio": 2.0,
    "num_classes": CLASSES,
}
PREPROCESSING = {"size": CANVAS, "mean": [0.5] * 3, "std": [0.5] * 3, "crop": 1.0, "interpolation": "bicubic"}
BATCH = 128
PEAK_RATE = 2e-3
WEIGHT_DECAY = 0.05
WARM_UP = 0.1  # share of the steps
JUDGED = 60  # images of each class


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """Normalised images (N, 3, 42, 42) and labels (N,)."""

    images_NCHW: Tensor
    label_N: Tensor


def draw(dataset: DigitPairs, keys: list[str]) -> Drawn:
    names = dataset.class_names()
    pixels_NHW = torch.from_numpy(np.stack([dataset.pixels(key) for key in keys]))
    images_NCHW = ((pixels_NHW.float() / 255 - 0.5) / 0.5)[:, None].expand(-1, 3, -1, -1).contiguous()
    return Drawn(images_NCHW=images_NCHW, label_N=torch.tensor([names.index(class_of(key)) for key in keys]))


def pairs(split: Split, images_per_class: int) -> DigitPairs:
    return DigitPairs(DigitPairs.Config(split=split, images_per_class=images_per_class))


def batches(steps: int) -> Iterator[Drawn]:
    dataset = pairs("backbone", -(-steps * BATCH // CLASSES))
    for step in range(steps):
        yield draw(dataset, dataset.keys[step * BATCH : (step + 1) * BATCH])


def train(seed: int, steps: int) -> VisionTransformer:
    torch.manual_seed(seed)
    model = VisionTransformer(**ARCHITECTURE)
    optimiser = torch.optim.AdamW(model.parameters(), lr=PEAK_RATE, weight_decay=WEIGHT_DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, PEAK_RATE, total_steps=steps, pct_start=WARM_UP)
    bar = tqdm(batches(steps), total=steps, unit="steps", desc="train")
    for batch in bar:
        loss = cross_entropy(model(batch.images_NCHW), batch.label_N)
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        bar.set_postfix(loss=f"{loss.item():.3f}", refresh=False)
    return model.eval()


@torch.inference_mode()
def judge(model: VisionTransformer) -> dict[str, Any]:
    scores: dict[str, Any] = {}
    for split in ("seen", "unseen"):
        dataset = pairs(split, JUDGED)
        drawn = draw(dataset, dataset.keys)
        embedding_ND = model.forward_head(model.forward_features(drawn.images_NCHW), pre_logits=True)
        log_p_NC = model.head(embedding_ND).log_softmax(dim=1)
        entropy_N = -(log_p_NC.exp() * log_p_NC).sum(dim=1).numpy()
        retrieval = retrieve(embedding_ND.numpy(), drawn.label_N.numpy())
        scores[split] = {
            "images": len(dataset),
            "recall_at_1": float(retrieval.correct_N[retrieval.counted_N].mean()),
            "r_auroc_entropy": r_auroc(entropy_N, retrieval),
            "r_auroc_max_probability": r_auroc(-log_p_NC.max(dim=1).values.numpy(), retrieval),
        }
        if split == "seen":
            correct_N = (log_p_NC.argmax(dim=1) == drawn.label_N).numpy()
            scores[split]["accuracy"] = float(correct_N.mean())
            scores[split]["auroc_entropy_of_wrong_class"] = auroc(entropy_N, ~correct_N)
    return scores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--output", type=Path, default=OURS, help="folder of the two files")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    started = time.time()
    model = train(arguments.seed, arguments.steps)
    path = arguments.output / f"{NAME}.safetensors"
    write_bytes(path, safetensors.torch.save({name: value.contiguous() for name, value in model.state_dict().items()}))
    record = {
        "command": f"python -m benchmarks.train_digit_vit --seed {arguments.seed} --steps {arguments.steps}",
        "seed": arguments.seed,
        "date": time.strftime("%Y-%m-%d"),
        "seconds": round(time.time() - started),
        "torch": torch.__version__,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "architecture": ARCHITECTURE,
        "preprocessing": PREPROCESSING,
        "class_names": pairs("backbone", 1).class_names(),
        "scores": judge(model),
        "sha256": sha256_file(path),
    }
    write_json(arguments.output / f"{NAME}.json", record)
    print(json.dumps({key: record[key] for key in ("command", "date", "seconds", "scores", "sha256")}))


if __name__ == "__main__":
    main()
