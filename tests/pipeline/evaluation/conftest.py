"""Small heads that say what a test wants, and stores of made-up representations."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pipeline.config import config
from pipeline.faults import Quarantined
from pipeline.heads.base import Head, HeadOutput, Needs, Summary
from pipeline.representation_store import RepresentationStore, StoreLayout, UnitInfo, UnitRows


@config
class NoConfig:
    pass


class Says(Head):
    """``scores``: name → function of the representation; ``embedding``: function of it."""

    Config = NoConfig

    def __init__(self, embedding: Callable[..., Any] = lambda x: x, **scores: Callable[..., Any]) -> None:
        super().__init__(NoConfig())
        self.embedding, self.scores = embedding, scores

    @property
    def needs(self) -> Needs:
        return Needs(training=False)

    def prepare(self, summary: Summary) -> None:
        pass

    def forward(self, representation_BD: torch.Tensor) -> HeadOutput:
        uncertainty = {name: score(representation_BD) for name, score in self.scores.items()}
        embedding_BE = self.embedding(representation_BD)
        return HeadOutput(embedding_BE=embedding_BE, uncertainty=uncertainty, primary=next(iter(uncertainty)))


@pytest.fixture
def says() -> type[Says]:
    return Says


@pytest.fixture
def make_store(tmp_path: Path) -> Callable[..., RepresentationStore]:
    def make(embeddings: list[np.ndarray], labels: list[list[int]], keys: list[list[str]]) -> RepresentationStore:
        """Each unit's (R, V, D) embedding, labels and keys; views center, random0."""
        layout = StoreLayout(
            units=tuple(UnitInfo(name=f"{i}.tar", samples=len(part), bytes=1) for i, part in enumerate(keys)),
            rows=12,
            views=("center", "random0"),
            width=embeddings[0].shape[-1],
            view_params=("x",),
            key_bytes=16,
            dtype="float16",
            chunk_rows=4,
        )
        run = {"class_names": ["ant", "bee", "cow"], "backbone": {}, "classifier": False}
        store = RepresentationStore.create(tmp_path / "store", layout, run)
        for unit, (embedding_RVD, label, key) in enumerate(zip(embeddings, labels, keys, strict=True)):
            rows = UnitRows(
                embedding_RVD=embedding_RVD.astype(np.float32),
                view_params_RVP=np.zeros((len(key), 2, 1), dtype=np.float32),
                label_R=np.array(label, dtype=np.int32),
                keys=key,
                scores={},
            )
            store.write_unit(unit, rows, [Quarantined(key="bad", reason="torn")] if unit == 0 else [])
        return store

    return make
