"""Rows that are kept out of training, chosen by their keys, and what a head is worth on them."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray

from pipeline.errors import UserError
from pipeline.heads.base import Head, Needs
from pipeline.held_out import held_out
from pipeline.metrics.r_auroc import r_auroc
from pipeline.metrics.retrieval import Retrieval, retrieve
from pipeline.metrics.undefined import Undefined
from pipeline.representation_store import RepresentationStore
from pipeline.representation_store.reader import BatchReader, Reading


def training_rows(store: RepresentationStore, share: float) -> NDArray[np.bool_] | None:
    """(rows,) which rows are trained on; None = all that take part.

    Keys are looked at unit by unit: they are many bytes a row. Where the store is limited, the shares are of its part.

    Raises:
        UserError: nothing is left to train on, or nothing is held out.
    """
    if share == 0:
        return None
    keep = np.ones(sum(store.counts().values()), dtype=bool)
    for start, key_R in store.column("key"):
        keep[start : start + len(key_R)] = ~held_out(key_R, share)
    part = keep if store.takes_part is None else keep[store.takes_part]
    if part.all() or not part.any():
        raise UserError(
            f"train_head.validation_share: {share} holds out {int((~part).sum())} of {len(part)} rows. "
            "Take a share that leaves rows on both sides."
        )
    return keep


class Validation:
    """The same held-out rows for every look, and what a head is worth on them."""

    def __init__(
        self, store: RepresentationStore, keep: NDArray[np.bool_], needs: Needs, *, rows: int, device: torch.device
    ) -> None:
        """Read the rows.

        Args:
            store: that is trained on.
            keep: which of its rows are trained on; the others are held out.
            needs: of the head.
            rows: at most so many are looked at, so that the time it takes is bounded.
            device: where the head is.
        """
        self.device = device
        wanted = Needs(task_loss=needs.task_loss, labels=True)
        reader = BatchReader(store, wanted, Reading(batch_size=4096, window=1 << 14), keep=~keep)
        batches = list(reader.once(rows))
        self.representation_ND = torch.cat([batch.representation_BVD[:, 0] for batch in batches])
        self.label_N = torch.cat([batch.label_B for batch in batches if batch.label_B is not None]).numpy()
        losses = [batch.task_loss_BV[:, 0] for batch in batches if batch.task_loss_BV is not None]
        self.task_loss_N = torch.cat(losses).numpy() if losses else None
        self._retrieval: Retrieval | None = None  # of the representation

    @torch.no_grad()
    def look(self, head: Head) -> dict[str, float]:
        """What a head is worth; NaN where the rows do not say.

        Returns:
            ``validation_r_auroc``: see :func:`pipeline.metrics.r_auroc.r_auroc`, neighbours among these rows; and, for
            heads that learn from task losses, ``validation_rank_correlation``: Spearman's with them.
        """
        from scipy.stats import spearmanr  # here, because it takes a second or two to import

        head.eval()
        outputs = [head(part.to(self.device)) for part in self.representation_ND.split(4096)]
        uncertainty_N = torch.cat([output.uncertainty_B.double().cpu() for output in outputs]).numpy()
        retrieval = self._retrieval
        if retrieval is None or not head.keeps_representation:
            embedding_NE = torch.cat([output.embedding_BE.float().cpu() for output in outputs]).numpy()
            retrieval = self._retrieval = retrieve(embedding_NE, self.label_N, device=self.device)
        score = r_auroc(uncertainty_N, retrieval)
        found = {"validation_r_auroc": math.nan if isinstance(score, Undefined) else score}
        if self.task_loss_N is not None:
            constant = np.ptp(uncertainty_N) == 0 or np.ptp(self.task_loss_N) == 0
            statistic = math.nan if constant else spearmanr(uncertainty_N, self.task_loss_N).statistic
            found["validation_rank_correlation"] = float(statistic)
        return found
