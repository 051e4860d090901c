"""A packed handful of digit pairs and a tiny backbone with random weights."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.datasets import make_dataset
from pipeline.images.packed import PackedTars, open_packed
from pipeline.images.packing import PackJob
from pipeline.progress import Silent

BACKBONE = {"model": "resnet10t", "weights": "random", "size": 32, "num_classes": 70, "device": "cpu"}


def pack(folder: Path, **values: object) -> PackedTars:
    dataset = make_dataset({"kind": "digit_pairs", "images_per_class": 1, **values})
    job = PackJob(dataset, folder, kind="digit_pairs", samples_per_tar=100, min_tars=3)
    job.prepare()
    for index in job.missing():
        job.run(index, Silent())
    job.finish()
    return open_packed(folder)


@pytest.fixture(scope="session")
def packed(tmp_path_factory: pytest.TempPathFactory) -> PackedTars:
    return pack(tmp_path_factory.mktemp("packed"))


@pytest.fixture
def backbone(packed: PackedTars) -> dict[str, object]:
    return {**BACKBONE, "class_list": list(packed.class_names)}
