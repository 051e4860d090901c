"""Points of a search: independent of each other, within their ranges, and settings that every head accepts."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import yaml

from pipeline.heads import check_head, make_head
from pipeline.tuning.space import RATE, RATES, Choice, Span, values_of
from pipeline.tuning.trial import space_of, trials_of

HEADS = sorted(Path("configs/head").glob("*.yaml"))


def mirrored(number: int, base: int) -> float:
    """The digits of a number in a base, behind the point and in reverse: what Halton's sequence is made of."""
    share, scale = 0.0, 1.0
    while number:
        scale /= base
        share += number % base * scale
        number //= base
    return share


def test_points_are_those_of_halton_and_the_first_is_what_stands() -> None:
    space = {"a": Span(low=0.0, high=1.0, log=False), "b": Span(low=0.0, high=1.0, log=False)}
    assert values_of(space, 0) == {}
    for trial in range(1, 30):
        expected = {"a": mirrored(trial, 2), "b": mirrored(trial, 3)}
        assert values_of(space, trial) == pytest.approx(expected, rel=1e-3)


def test_orders_of_magnitude_get_equal_shares() -> None:
    rates = [values_of({RATE: RATES}, trial)[RATE] for trial in range(1, 64)]
    assert all(1e-4 <= rate < 1e-2 for rate in rates)
    shares = sorted((math.log10(rate) + 4) / 2 for rate in rates)
    assert shares == pytest.approx([place / 64 for place in range(1, 64)], abs=2e-4)


def test_choices_come_equally_often() -> None:
    found = [values_of({"a": Choice(("x", "y"))}, trial)["a"] for trial in range(1, 65)]
    assert found.count("x") == 32


@pytest.mark.parametrize("path", HEADS, ids=lambda path: path.stem)
def test_every_head_accepts_what_is_tried(path: Path) -> None:
    head = check_head(yaml.safe_load(path.read_text(encoding="utf-8").replace("${recipe.group}", "2")))
    space = space_of(head)
    assert (RATE in space) == make_head(head).needs.training
    assert trials_of(head, 10) == (10 if space else 1)
    tried = []
    for trial in range(10 if space else 0):
        values = values_of(space, trial)
        values.pop(RATE, None)
        tried.append(check_head({**head, **values}))
        assert set(values) <= set(head), "a setting that the head has"
    if len(space) > 1:
        assert len({str(one) for one in tried}) >= 2
