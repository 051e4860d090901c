"""What a head gives is looked at when it is given, not where it is first used: after training, in the evaluation."""

import pytest
import torch

from pipeline.heads.base import HeadOutput


def test_one_number_a_row_and_a_primary_score_that_is_there():
    embedding_BE = torch.zeros(3, 2)
    given = HeadOutput(embedding_BE=embedding_BE, uncertainty={"loss": torch.arange(3)}, primary="loss")
    assert given.uncertainty_B.tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match=r"uncertainty 'loss' has shape \(3, 1\), not one number a row: \(3,\)"):
        HeadOutput(embedding_BE=embedding_BE, uncertainty={"loss": torch.zeros(3, 1)}, primary="loss")
    with pytest.raises(ValueError, match=r"primary='los' is none of the uncertainties: loss, entropy"):
        HeadOutput(
            embedding_BE=embedding_BE, uncertainty={"loss": torch.zeros(3), "entropy": torch.zeros(3)}, primary="los"
        )
