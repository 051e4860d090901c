"""Results of made-up collections, as evaluation gives them, with thumbnails on disk."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from pipeline.config import config
from pipeline.evaluation import Contender, Rows, Scorer, collection_results, score_all
from pipeline.heads.base import Head, HeadOutput, Needs, Summary
from pipeline.progress import Silent
from pipeline.report.thumbnails import thumbnail


@config
class NoConfig:
    pass


class Column(Head):
    """Says what stands in one column of the representation, with noise that depends on the seed."""

    Config = NoConfig

    def __init__(self, column: int, noise: float, seed: int) -> None:
        super().__init__(NoConfig(), seed=seed)
        self.column, self.noise = column, noise

    @property
    def needs(self) -> Needs:
        return Needs(training=False)

    def prepare(self, summary: Summary) -> None:
        pass

    def forward(self, representation_BD: torch.Tensor) -> HeadOutput:
        generator = torch.Generator().manual_seed(self.seed)
        noise_B = self.noise * torch.randn(len(representation_BD), generator=generator)
        score_B = representation_BD[:, self.column].abs() + noise_B
        return HeadOutput(embedding_BE=representation_BD, uncertainty={"score": score_B}, primary="score")


def contenders() -> list[Contender]:
    def make(name: str, role: Any, column: int, noise: float, seeds: int) -> Contender:
        heads = {seed: Column(column, noise, seed) for seed in range(seeds)}
        return Contender(name=name, role=role, config={"kind": name}, heads=heads)

    return [
        make("loss_prediction", "head", 0, 0.3, 3),
        make("loss_prediction_l2", "compare", 0, 0.5, 3),
        make("classifier_entropy", "baseline", 0, 0.9, 1),
        make("inverse_norm", "baseline", 1, 0.0, 1),
        make("random", "baseline", 2, 5.0, 3),
    ]


def made_up_rows(rows: int, classes: int, seed: int) -> Rows:
    """Column 0 grows with the distance from the class centre, so it is a good uncertainty."""
    rng = np.random.default_rng(seed)
    label_N = rng.integers(0, classes, rows).astype(np.int32)
    label_N[0], label_N[1] = classes, -1  # one alone, one unlabelled
    spread_N1 = rng.gamma(1.5, 0.55, size=(rows, 1))
    centre_CD = rng.normal(size=(classes + 1, 12))
    representation_ND = centre_CD[label_N] + spread_N1 * rng.normal(size=(rows, 12))
    representation_ND[:, 0] = 0.6 * spread_N1[:, 0]
    return Rows(
        representation_ND=representation_ND.astype(np.float32),
        label_N=label_N,
        unit_N=np.zeros(rows, dtype=np.int32),
        keys=[f"image/{i:05d}" for i in range(rows)],
        class_names=tuple(f"class <{i}>" for i in range(classes + 1)),
        stored=3 * rows,
        quarantined=4,
    )


@pytest.fixture(scope="module", autouse=True)
def coarse_plots() -> Iterator[None]:
    """Fewer dots an inch: the tests look at what is drawn, not at how fine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipeline.report.style.DOTS", 40)
        yield


@pytest.fixture(scope="session")
def make_results() -> Callable[..., list[dict[str, Any]]]:
    def make(folder: Path, names: dict[str, str], *, rows: int = 300, extremes: int = 4) -> list[Any]:
        rng = np.random.default_rng(9)
        results = []
        for place, (name, role) in enumerate(names.items()):
            scorer = Scorer(made_up_rows(rows, 20, place))
            scored = score_all(scorer, contenders(), Silent())
            result = collection_results(scorer, scored, extremes=extremes)
            for kind in ("most_certain", "least_certain"):
                for rank, item in enumerate(result["extremes"][kind]):
                    file = f"thumbnails/{name}/{kind}_{rank}.jpg"
                    (folder / file).parent.mkdir(parents=True, exist_ok=True)
                    pixels = np.kron(rng.integers(0, 255, (5, 7, 3)), np.ones((30, 30, 1))).astype(np.uint8)
                    (folder / file).write_bytes(thumbnail(Image.fromarray(pixels)))
                    item["thumbnail"] = file
            about = {"title": f"Made-up {name}", "source": "a generator", "licence": "none", "citation": ""}
            results.append({"id": name, "dataset": name, "role": role, "about": about, **result})
        return results

    return make
