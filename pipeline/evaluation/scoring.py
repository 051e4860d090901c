"""What a head says of every row, and the neighbours in its embedding.

Neighbours are searched once for each distinct embedding. Heads that leave the backbone alone return the representation
itself, so they share the backbone's neighbours; that they do is found by comparing bytes, never assumed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

import numpy as np
import torch
from numpy.typing import NDArray

from pipeline.evaluation.rows import Rows
from pipeline.heads.base import Head
from pipeline.metrics.checks import refuse_non_finite
from pipeline.metrics.nearest import Metric
from pipeline.metrics.r_auroc import r_auroc
from pipeline.metrics.retrieval import Retrieval, retrieve
from pipeline.metrics.undefined import Score

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

    def judged(self, name: str | None = None) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Uncertainty (the primary one, or ``name``) and wrongness of the C counted rows."""
        counted_N = self.retrieval.counted_N
        return self.uncertainty[name or self.primary][counted_N], ~self.retrieval.correct_N[counted_N]

    def r_auroc(self, name: str | None = None) -> Score:
        """R-AUROC of the primary uncertainty, or of ``name``."""
        return r_auroc(self.uncertainty[name or self.primary], self.retrieval)


@dataclass(frozen=True, kw_only=True)
class HeadScores:
    """What one head says of N rows.

    Attributes:
        embedding_NE: float32.
        uncertainty: name → (N,) float64.
        primary: the name that stands for the head.
    """

    embedding_NE: NDArray[np.float32]
    uncertainty: Mapping[str, NDArray[np.float64]]
    primary: str


@torch.inference_mode()
def run_head(
    head: Head, representation_ND: NDArray[np.float32], device: torch.device | str, keys: Sequence[str] | None = None
) -> HeadScores:
    """Run a head that is ready (prepared, trained) over rows, in batches; ``keys`` of the rows, for messages.

    Raises:
        UserError: an uncertainty or an embedding is NaN or infinite.
    """
    head = head.to(device).eval()
    embeddings: list[NDArray[np.float32]] = []
    parts: list[Mapping[str, torch.Tensor]] = []
    for start in range(0, len(representation_ND), BATCH_ROWS):
        batch_BD = torch.from_numpy(representation_ND[start : start + BATCH_ROWS]).to(device)
        output = head(batch_BD)
        primary = output.primary
        embeddings.append(output.embedding_BE.float().cpu().numpy())
        parts.append({name: value_B.double().cpu() for name, value_B in output.uncertainty.items()})
    uncertainty = {name: torch.cat([part[name] for part in parts]).numpy() for name in parts[0]}
    for name, value_N in uncertainty.items():
        refuse_non_finite(value_N, f"uncertainty '{name}'", keys)
    embedding_NE = np.concatenate(embeddings)
    refuse_non_finite(embedding_NE, "embedding", keys)
    return HeadScores(embedding_NE=embedding_NE, uncertainty=uncertainty, primary=primary)


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
        self.representation_sha256 = embedding_hash(rows.representation_ND)
        self.backbone = self._retrieve(self.representation_sha256, rows.representation_ND)

    def score(self, head: Head) -> SeedScores:
        """Run a head that is ready (prepared, trained) over all rows.

        Raises:
            UserError: an uncertainty or an embedding is NaN or infinite.
        """
        found = run_head(head, self.rows.representation_ND, self.device, self.rows.keys)
        digest = embedding_hash(found.embedding_NE)
        return SeedScores(
            uncertainty=found.uncertainty,
            primary=found.primary,
            embedding_sha256=digest,
            retrieval=self._retrieve(digest, found.embedding_NE),
        )

    def _retrieve(self, digest: str, embedding_NE: NDArray[np.float32]) -> Retrieval:
        if digest not in self._retrievals:
            self._retrievals[digest] = retrieve(
                embedding_NE,
                self.rows.label_N,
                metric=self.metric,
                device=self.device,
                relevance=self.rows.relevance,
            )
        return self._retrievals[digest]


def embedding_hash(embedding_NE: NDArray[np.float32]) -> str:
    """Hex SHA-256 of the width and the bytes of all rows."""
    mark = sha256(str(embedding_NE.shape[1]).encode())
    mark.update(np.ascontiguousarray(embedding_NE).data)
    return mark.hexdigest()
