"""What a head says of every row, and the neighbours in its embedding.

Neighbours are searched once for each distinct embedding. Heads that leave the backbone alone return the representation
itself, so they share the backbone's neighbours; that they do is found by comparing bytes, never assumed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256

import numpy as np
import torch
from numpy.typing import NDArray

from pipeline.evaluation.rows import Rows
from pipeline.heads.base import Head
from pipeline.metrics.checks import refuse_non_finite
from pipeline.metrics.nearest import Metric
from pipeline.metrics.retrieval import Retrieval, retrieve

BATCH_ROWS = 8192


@dataclass(frozen=True, kw_only=True)
class SeedScores:
    """One trained head on the rows.

    Attributes:
        uncertainty: name → (N,) float64, higher = less sure.
        primary: the name that stands for the head.
        embedding_sha256: of the bytes of its float32 embedding of all rows.
        retrieval: neighbours in its embedding.
    """

    uncertainty: Mapping[str, NDArray[np.float64]]
    primary: str
    embedding_sha256: str
    retrieval: Retrieval


class Scorer:
    """Scores heads on the same rows, one after another.

    Attributes:
        backbone: retrieval by the representation alone, without any head.
        representation_sha256: of the representation's bytes.
    """

    def __init__(self, rows: Rows, *, metric: Metric = "cosine", device: torch.device | str = "cpu") -> None:
        self.rows = rows
        self.metric: Metric = metric
        self.device = torch.device(device)
        self._retrievals: dict[str, Retrieval] = {}
        self.representation_sha256 = _hash([rows.representation_ND])
        self.backbone = self._retrieve(self.representation_sha256, [rows.representation_ND])

    @torch.inference_mode()
    def score(self, head: Head) -> SeedScores:
        """Run a head that is ready (prepared, trained) over all rows.

        Raises:
            UserError: an uncertainty is NaN or infinite.
        """
        head = head.to(self.device).eval()
        embeddings: list[NDArray[np.float32]] = []
        parts: list[Mapping[str, torch.Tensor]] = []
        for start in range(0, len(self.rows.keys), BATCH_ROWS):
            batch_BD = torch.from_numpy(self.rows.representation_ND[start : start + BATCH_ROWS]).to(self.device)
            output = head(batch_BD)
            primary = output.primary
            embeddings.append(output.embedding_BE.float().cpu().numpy())
            parts.append({name: value_B.double().cpu() for name, value_B in output.uncertainty.items()})
        uncertainty = {name: torch.cat([part[name] for part in parts]).numpy() for name in parts[0]}
        for name, value_N in uncertainty.items():
            refuse_non_finite(value_N, f"uncertainty '{name}'")
        embedding_sha256 = _hash(embeddings)
        return SeedScores(
            uncertainty=uncertainty,
            primary=primary,
            embedding_sha256=embedding_sha256,
            retrieval=self._retrieve(embedding_sha256, embeddings),
        )

    def _retrieve(self, digest: str, embeddings: list[NDArray[np.float32]]) -> Retrieval:
        if digest not in self._retrievals:
            embedding_NE = np.concatenate(embeddings)
            self._retrievals[digest] = retrieve(embedding_NE, self.rows.label_N, metric=self.metric, device=self.device)
        return self._retrievals[digest]


def _hash(parts: list[NDArray[np.float32]]) -> str:
    """Hex SHA-256 of the width and the bytes of all rows, however they are cut into parts."""
    mark = sha256(str(parts[0].shape[1]).encode())
    for part in parts:
        mark.update(np.ascontiguousarray(part).data)
    return mark.hexdigest()
