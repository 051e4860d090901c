from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pipeline.errors import UserError
from pipeline.evaluation import read_rows


@pytest.fixture
def store(make_store: Callable[..., Any]) -> Any:
    rng = np.random.default_rng(0)
    sizes = (7, 1, 9)
    keys = [[f"k{unit}-{row}" for row in range(size)] for unit, size in enumerate(sizes)]
    labels = [[row % 3 - 1 for row in range(size)] for size in sizes]
    return make_store([rng.normal(size=(size, 2, 5)) for size in sizes], labels, keys)


def test_all_rows_of_the_view_in_order(store: Any) -> None:
    rows = read_rows(store)
    assert rows.keys == store.keys()
    assert rows.representation_ND.dtype == np.float32
    assert (rows.representation_ND == store.load("embedding", view=0).astype(np.float32)).all()
    assert (rows.label_N == store.load("label")).all()
    assert rows.unit_N.tolist() == [0] * 7 + [1] + [2] * 9
    assert (rows.stored, rows.quarantined) == (17, 1)
    assert rows.class_names == ("ant", "bee", "cow")
    assert (read_rows(store, view="random0").representation_ND != rows.representation_ND).any()


def test_a_part_is_chosen_by_keys_and_nested(store: Any) -> None:
    everything = read_rows(store)
    place = {key: index for index, key in enumerate(everything.keys)}
    before: set[str] = set()
    for most in (1, 4, 9, 17, 50):
        rows = read_rows(store, most=most)
        assert len(rows.keys) == min(most, 17)
        assert before <= set(rows.keys)
        assert rows.stored == 17
        picked = [place[key] for key in rows.keys]
        assert picked == sorted(picked)
        assert (rows.representation_ND == everything.representation_ND[picked]).all()
        assert (rows.label_N == everything.label_N[picked]).all()
        assert (rows.unit_N == everything.unit_N[picked]).all()
        before = set(rows.keys)


def test_the_choice_is_not_the_first_rows(store: Any) -> None:
    assert read_rows(store, most=5).keys != store.keys()[:5]


def test_a_view_that_is_not_there(store: Any) -> None:
    with pytest.raises(UserError, match=r"no view 'blur', only center, random0.*cache.views=\[blur\]"):
        read_rows(store, view="blur")


def test_an_empty_store(make_store: Callable[..., Any]) -> None:
    with pytest.raises(UserError, match="has no rows"):
        read_rows(make_store([np.zeros((0, 2, 5))], [[]], [[]]))
