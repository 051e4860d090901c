"""A small model of every part: a random ViT, an untrained head, a bundle that carries both."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from pipeline.backbones import make_backbone, parse_backbone
from pipeline.heads import make_head
from pipeline.heads.base import Summary
from pipeline.release.assemble import assemble
from pipeline.release.bundle import write_bundle
from pipeline.release.licence import backbone_licence
from pipeline.training.checkpoints import read_checkpoint, save_head

BACKBONE = {
    "model": "test_vit",
    "weights": "random",
    "num_classes": 5,
    "size": 32,
    "crop": 0.9,
    "class_list": None,
    "compute": "fp32",
    "device": "cpu",
}
HEAD = {"kind": "loss_prediction", "hidden": 16}


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def release(tmp_path: Path) -> Callable[..., Path]:
    """Releases a head on a backbone into ``tmp_path/name``."""

    def make(
        name: str = "model", *, backbone: dict[str, Any] = BACKBONE, head: dict[str, Any] = HEAD, carried: bool = True
    ) -> Path:
        network = make_backbone(backbone)
        summary = Summary(
            width=network.width,
            rows=10,
            num_classes=5,
            class_names=("a", "b", "c", "d", "e"),
            mean_D=torch.full((network.width,), 0.25),
            scale=2.0,
            classifier=network.classifier(),
        )
        prepared = make_head(head, seed=3)
        prepared.prepare(summary)
        checkpoint = tmp_path / f"{name}-head"
        save_head(checkpoint, prepared, summary, store="0", training={}, metrics={})
        bundle = assemble(
            read_checkpoint(checkpoint),
            network,
            backbone,
            licence=backbone_licence(parse_backbone(backbone)),
            carried=carried,
            about={"name": name},
        )
        write_bundle(tmp_path / name, bundle, "# Card\n")
        return tmp_path / name

    return make


@pytest.fixture
def images(tmp_path: Path) -> list[Path]:
    """Five PNGs of different sizes and modes."""
    rng = np.random.default_rng(0)
    paths = []
    for i, mode in enumerate(("RGB", "L", "RGBA", "P", "RGB")):
        pixels = rng.integers(0, 256, (40 + i, 60 - 7 * i, 4), dtype=np.uint8)
        paths.append(tmp_path / f"{i}.png")
        Image.fromarray(pixels).convert(mode).save(paths[-1])
    return paths
