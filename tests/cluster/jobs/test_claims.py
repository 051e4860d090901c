"""A claim belongs to one at a time; one whose holder is dead belongs to whoever takes it over, once."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import pytest

from cluster.jobs.claims import FOLDER, Claim, Claims, Held, held_now, read_claim
from pipeline.processes import machine


@pytest.fixture
def claims(tmp_path: Path) -> Iterator[Claims]:
    found = Claims(tmp_path, task="7_1", restart=1, watch_seconds=0)
    yield found
    found.close()


def left_behind(jobs: Path, **fields: object) -> Claim:
    """A claim of somebody else."""
    values = {"unit": "u", "task": "9", "restart": 0, "host": "n3", "machine": "another", "pid": 1, "token": "t"}
    claim = Claim(**{**values, **fields})  # type: ignore[arg-type]
    (jobs / FOLDER).mkdir(exist_ok=True)
    (jobs / FOLDER / f"{claim.unit}.0").write_text(json.dumps(asdict(claim)))
    return claim


def test_held_by_another_until_it_is_given_back(tmp_path: Path, claims: Claims) -> None:
    other = Claims(tmp_path, task="7_2")
    mine = claims.take("u")
    assert isinstance(mine, Claim)
    held = other.take("u")
    assert isinstance(held, Held)
    assert held.claim == mine
    assert 0 <= held.age < 5
    claims.give_back("u")
    assert isinstance(other.take("u"), Claim)
    other.close()
    assert list((tmp_path / FOLDER).iterdir()) == []


def test_of_many_at_once_one_gets_it(tmp_path: Path) -> None:
    everyone = [Claims(tmp_path, task=str(i)) for i in range(8)]
    for unit in map(str, range(30)):
        left_behind(tmp_path, unit=unit, machine=machine(), pid=dead_pid())  # to be taken over, even
        with ThreadPoolExecutor(len(everyone)) as pool:
            results = list(pool.map(Claims.take, everyone, [unit] * len(everyone)))
        [claim] = [result for result in results if isinstance(result, Claim)]
        assert claim.death == "task 9 on n3 died"
    for one in everyone:
        one.close()


def dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_who_died_is_told_apart_from_who_works(tmp_path: Path, claims: Claims) -> None:
    """By its process on this machine, by its task that was started anew, and by silence on another machine."""
    left_behind(tmp_path, machine=machine(), pid=os.getpid())
    assert isinstance(claims.take("u"), Held), "it runs"
    left_behind(tmp_path, machine=machine(), pid=dead_pid(), task="9", host="n3")
    assert taken(claims, "u").death == "task 9 on n3 died"
    claims.give_back("u")
    left_behind(tmp_path, task="7_1", restart=0)
    assert "started anew" in taken(claims, "u").death
    claims.give_back("u")
    left_behind(tmp_path, task="7_1", restart=1)
    assert isinstance(claims.take("u"), Held), "another rank of the same task"
    left_behind(tmp_path, machine="another", pid=dead_pid())
    assert isinstance(claims.take("u"), Held), "a process id of another machine says nothing"
    old = time.time() - 61
    os.utime(tmp_path / FOLDER / "u.0", (old, old))
    assert "not been heard of for 6" in taken(claims, "u").death


@pytest.mark.parametrize("skew", [-600, 600])
def test_whose_clock_is_wrong_is_told_apart_from_the_dead_by_its_heartbeat(tmp_path: Path, skew: float) -> None:
    """Some file systems have times from the machines: one's heartbeats may seem to be old, or to come."""
    claims = Claims(tmp_path, stale_seconds=1.0)
    left_behind(tmp_path)
    path = tmp_path / FOLDER / "u.0"
    alive = time.monotonic() + 2.5
    while time.monotonic() < alive:
        os.utime(path, (time.time() + skew,) * 2)
        assert isinstance(claims.take("u"), Held), "its heart beats"
        time.sleep(0.15)
    last = time.monotonic()  # that its heart was seen to beat, or a little later
    while isinstance(claims.take("u"), Held):
        time.sleep(0.05)
    assert (0.1 if skew < 0 else 0.7) < time.monotonic() - last < 9
    claims.close()


def test_a_claim_that_goes_while_it_is_read_is_gone(
    tmp_path: Path, claims: Claims, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a network disk reading ends with ESTALE then, opening it again with its absence."""
    left_behind(tmp_path)
    real = os.fstat

    def fstat(number: int) -> os.stat_result:
        monkeypatch.setattr(os, "fstat", real)
        (tmp_path / FOLDER / "u.0").unlink()
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    monkeypatch.setattr(os, "fstat", fstat)
    assert isinstance(claims.take("u"), Claim)


def test_a_link_that_was_made_although_the_answer_was_lost(
    tmp_path: Path, claims: Claims, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client of a network disk asks again then, and hears that the name is there."""
    real = os.link

    def link(*names: Path) -> None:
        real(*names)
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))

    monkeypatch.setattr(os, "link", link)
    assert isinstance(claims.take("u"), Claim)


def taken(claims: Claims, unit: str) -> Claim:
    claim = claims.take(unit)
    assert isinstance(claim, Claim)
    return claim


def test_a_damaged_claim_belongs_to_nobody(tmp_path: Path, claims: Claims) -> None:
    for damage in (b"", b"{", b"[]", b'{"unit": 1}'):
        (tmp_path / FOLDER / "u.0").write_bytes(damage)
        taken(claims, "u")
        claims.give_back("u")


def test_a_heart_beats_while_it_is_held(tmp_path: Path) -> None:
    claims = Claims(tmp_path, stale_seconds=0.6)
    taken(claims, "u")
    path = tmp_path / FOLDER / "u.0"
    before = path.stat().st_mtime
    end = time.monotonic() + 10
    while path.stat().st_mtime == before and time.monotonic() < end:
        time.sleep(0.02)
    assert path.stat().st_mtime > before
    [held] = held_now(tmp_path, time.time())
    assert held.claim.unit == "u"
    claims.close()
    assert read_claim(path, 0) is None


def test_what_another_took_over_is_not_given_back(tmp_path: Path, claims: Claims) -> None:
    """A process that was silent for too long, and comes back, leaves its successor alone."""
    taken(claims, "u")
    other = left_behind(tmp_path, token="successor")
    claims.give_back("u")
    held = read_claim(tmp_path / FOLDER / "u.0", 0)
    assert held is not None
    assert held.claim == other


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOTSUP, errno.ENOSYS])
def test_where_there_are_no_hard_links_one_gets_it_too(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(*names: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", link)
    one, other = Claims(tmp_path, task="1"), Claims(tmp_path, task="2")
    mine = one.take("u")
    assert isinstance(mine, Claim)
    held = other.take("u")
    assert isinstance(held, Held)
    assert held.claim == mine
    one.close()
    assert isinstance(other.take("u"), Claim)
    other.close()
    assert list((tmp_path / FOLDER).iterdir()) == []


def test_without_a_thread_for_the_heartbeat_it_can_still_be_closed(
    claims: Claims, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        claims.take("u")
    claims.close()
