"""Held-out classes: exact shares, whatever the order, and no row on both sides."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.errors import UserError
from pipeline.representation_store.selection import of_classes
from pipeline.tuning.classes import held_out_classes, split
from tests.pipeline.training.conftest import make_store


@settings(max_examples=30)
@given(st.sets(st.text(min_size=1), min_size=5, max_size=30), st.integers(0, 5))
def test_a_share_of_the_classes_by_name_alone(names: set[str], seed: int) -> None:
    ordered = sorted(names)
    shuffled = sorted(names, key=lambda name: hash(name))
    chosen = {ordered[place] for place in held_out_classes(ordered, 0.4, seed)}
    assert chosen == {shuffled[place] for place in held_out_classes(shuffled, 0.4, seed)}
    assert len(chosen) == round(0.4 * len(names))


def test_other_seeds_choose_others() -> None:
    names = [str(number) for number in range(40)]
    assert len({held_out_classes(names, 0.3, seed) for seed in range(5)}) == 5


@pytest.mark.parametrize(("classes", "share"), [(3, 0.3), (3, 0.7), (6, 0.1), (6, 0.9), (1, 0.5)])
def test_two_classes_at_least_on_either_side(classes: int, share: float) -> None:
    with pytest.raises(UserError, match=r"tune\.validation_classes: .* of \d classes"):
        held_out_classes([str(number) for number in range(classes)], share, 0)


def test_a_row_is_trained_on_or_validated_or_neither(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store", [60, 40], labels=(-1, 0, 1, 2, 3, 4), classes="abcdef")
    some_N = np.arange(100) % 3 > 0
    limited, held_N = split(store.limited(some_N), 0.4, 0)
    assert limited.takes_part is not None
    assert not (limited.takes_part & held_N).any()
    labelled_N = of_classes(store, range(6))
    np.testing.assert_array_equal(limited.takes_part | held_N, labelled_N & some_N)
    label_N = np.concatenate([label_R for _, label_R in store.column("label")])
    assert len(np.unique(label_N[held_N])) == 2, "of the five classes that have rows"
    assert not set(label_N[held_N]) & set(label_N[limited.takes_part])
