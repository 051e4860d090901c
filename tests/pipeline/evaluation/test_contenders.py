"""Who is made ready at once, and who has to be fitted before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch

from pipeline.evaluation.contenders import Contender, line_up
from pipeline.heads import head_names, make_head
from pipeline.heads.base import LinearClassifier, Summary

SUMMARY = Summary(
    width=6, rows=10, num_classes=3, classifier=LinearClassifier(weight_CD=torch.ones(3, 6), bias_C=torch.zeros(3))
)


@pytest.mark.parametrize("kind", head_names())
def test_a_head_that_the_rows_make_is_taken_from_training_and_the_others_are_ready(kind: str) -> None:
    """One that takes no training but a pass over the store, as a Laplace posterior, would be its prior otherwise."""
    asked = []

    def trained_as(name: str, role: Any, values: Mapping[str, Any]) -> list[Contender]:
        asked.append(name)
        return [Contender(name=name, role=role, config=values, heads={})]

    found = line_up({"kind": "loss_prediction"}, {"beside": {"kind": kind}}, trained_as, lambda: SUMMARY, (0, 1))
    head = make_head({"kind": kind})
    assert asked == ["loss_prediction", *(["beside"] if head.fitted else [])]
    assert bool(found[1].heads) == (not head.fitted)
    assert head.fitted == (head.needs.training or kind == "analytic_laplace")
