"""A process that is alone can have a process group, and has none afterwards."""

from __future__ import annotations

import os

import pytest
import torch
from torch import distributed

from cluster.process_groups import LOCAL_RANK, group_of_one
from pipeline.world import World, current_world


@pytest.mark.parametrize("before", [None, "3"])
def test_a_group_of_one_is_there_inside(monkeypatch, before):
    monkeypatch.delenv(LOCAL_RANK, raising=False)
    if before:
        monkeypatch.setenv(LOCAL_RANK, before)
    with group_of_one():
        value = torch.ones(2)
        distributed.all_reduce(value)
        assert value.tolist() == [1, 1]
        assert (current_world(), os.environ[LOCAL_RANK]) == (World(), "0")
    assert os.environ.get(LOCAL_RANK) == before
    assert not distributed.is_initialized()


def test_where_it_is_not_wanted_there_is_none():
    with group_of_one(wanted=False):
        assert not distributed.is_initialized()
