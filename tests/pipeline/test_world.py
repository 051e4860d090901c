"""What several processes tell each other, and that none waits for one that cannot go on."""

from __future__ import annotations

import pytest
import torch

from pipeline.errors import LostError, UserError
from pipeline.interruption import Interrupted
from pipeline.world import World, current_world
from tests.ranks import Ranks, die

pytestmark = pytest.mark.xdist_group("ranks")


def exchange() -> tuple[object, ...]:
    world = current_world()
    mine = torch.tensor([0.1 * (world.rank + 1), 1e8 * world.rank])
    world.add_up(mine)
    handed = torch.full((2,), float(world.rank + 7))
    world.hand_out(handed)
    passed = torch.tensor([float(world.rank)])
    if world.rank == 1:
        world.send(passed, 0)
    elif world.rank == 0:
        world.receive(passed, 1)
    data = world.share(b"of the first" if world.first else None)
    return world.rank, world.size, mine.tolist(), handed.tolist(), passed.tolist(), data


def test_exchange(ranks: Ranks) -> None:
    for size in (2, 3):
        results = ranks.run(size, exchange)
        assert [result[:2] for result in results] == [(rank, size) for rank in range(size)]
        sums = [result[2] for result in results]
        assert all(one == sums[0] for one in sums)
        assert sums[0] == pytest.approx([0.1 * size * (size + 1) / 2, 1e8 * size * (size - 1) / 2])
        assert [result[3] for result in results] == [[7.0, 7.0]] * size
        assert [result[4] for result in results] == [[1.0], [1.0], [2.0]][:size]
        assert [result[5] for result in results] == [b"of the first"] * size


def end(errors: dict[int, BaseException]) -> str:
    world = current_world()
    with world.together():
        if world.rank in errors:
            raise errors[world.rank]
    world.agree(None)
    return "went on"


def test_all_go_on_or_all_end_with_the_reason(ranks: Ranks) -> None:
    assert ranks.run(3, end, {}) == ["went on"] * 3
    failed = ranks.run(3, end, {1: KeyError("no such chunk"), 2: Interrupted()})
    assert failed == [
        "UserError: process 1 of 3 failed: 'no such chunk'",
        "KeyError: 'no such chunk'",
        "UserError: process 1 of 3 failed: 'no such chunk'",
    ]
    assert ranks.run(2, end, {1: Interrupted()}) == ["Interrupted: "] * 2


def lose() -> str:
    world = current_world()
    if world.rank == 1:
        die()
    try:
        for _ in range(3):  # what is lost may be noticed when the next thing is said
            world.add_up(torch.ones(1 << 16))
    except LostError as error:
        return str(error)
    return "nothing"


def test_a_process_that_dies_is_noticed(ranks: Ranks) -> None:
    first, dead, last = ranks.run(3, lose)
    assert dead == -9
    assert "process 0 of 3 cannot reach the others" in first
    assert "process 2 of 3 cannot reach the others" in last
    assert [result[0] for result in ranks.run(2, exchange)] == [0, 1]


def test_alone_there_is_nobody_to_tell() -> None:
    world = current_world()
    assert world == World(rank=0, size=1)
    assert world.first
    value = torch.ones(2)
    world.add_up(value)
    world.hand_out(value)
    assert value.tolist() == [1.0, 1.0]
    assert world.share(b"x") == b"x"
    world.agree(None)
    with pytest.raises(UserError, match="torn"), world.together():
        raise UserError("torn")
    with pytest.raises(Interrupted), world.together():
        raise Interrupted
