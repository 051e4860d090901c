"""A store on an object store is the store on a disk, object by object."""

from __future__ import annotations

import boto3
import numpy as np
import pytest
import torch

import hedgerow
from pipeline.errors import UserError
from pipeline.heads.base import Needs
from pipeline.places import Place, RemotePath, as_place
from pipeline.progress import Silent
from pipeline.representation_store import RepresentationStore, StoreLayout, tally
from pipeline.representation_store.reader import BatchReader, Reading
from pipeline.representation_store.verify import discard, verify
from tests.pipeline.representation_store.conftest import make_layout, make_rows
from tests.remote.conftest import files, objects

pytestmark = pytest.mark.xdist_group("s3")
LAYOUT = make_layout()
RUN = {"class_names": ["a", "b", "c"]}


def filled(place: Place, layout: StoreLayout = LAYOUT) -> RepresentationStore:
    store = RepresentationStore.create(place, layout, RUN)
    for unit, count in enumerate([30, 0, 17]):
        store.write_unit(unit, make_rows(layout, count, unit))
    return RepresentationStore.open(place)


@pytest.fixture(scope="module")
def remote(s3: boto3.client) -> RepresentationStore:
    """A filled store that is only read."""
    s3.create_bucket(Bucket="read-only")
    return filled(as_place("s3://read-only/run/store"))


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> RepresentationStore:
    return filled(tmp_path_factory.mktemp("local") / "store")


def test_objects_are_the_files(s3: boto3.client, remote: RepresentationStore, local: RepresentationStore) -> None:
    assert objects(s3, remote.path) == files(local.path)
    assert remote.commit(0) == local.commit(0)
    for array in remote.specs:
        np.testing.assert_array_equal(remote.load(array), local.load(array))


def test_what_goes_wrong_is_found_and_mended(s3: boto3.client, bucket: RemotePath, local: RepresentationStore) -> None:
    store = filled(bucket / "store")
    assert verify(store.path, Silent()) == []
    flipped = store.shard_path("embedding", 2)
    data = bytearray(flipped.read_bytes())
    data[100] ^= 1
    s3.put_object(
        Bucket=str(bucket).removeprefix("s3://").strip("/"),
        Key=f"store/{flipped.path.partition('store/')[2]}",
        Body=bytes(data),
    )
    store.shard_path("label", 0).unlink()
    assert {(problem.unit, problem.what.split("'")[1]) for problem in verify(store.path, Silent())} == {
        (0, "label"),
        (2, "embedding"),
    }
    with pytest.raises(UserError, match=r"unit 0 .*its object is missing"):
        store.read("label", 0)
    with pytest.raises(UserError, match=r"unit 2 .*verify stage=cache"):
        store.read("embedding", 2)
    store.withdraw(0)
    assert store.committed() == [1, 2]
    for unit, count in ((0, 30), (2, 17)):
        store.write_unit(unit, make_rows(LAYOUT, count, unit))
    assert objects(s3, store.path) == files(local.path)
    assert verify(store.path, Silent()) == []


def test_damaged_records_are_made_again(s3: boto3.client, bucket: RemotePath) -> None:
    store = filled(bucket / "store")
    before = objects(s3, store.path)
    for name in ("run.json", "embedding/zarr.json", "commits/000000.json"):
        path = store.path / name
        path.fs.pipe_file(path.path, path.read_bytes().replace(b"a", b"b", 1))
    problems = verify(store.path, Silent())
    assert {(problem.unit, problem.path) for problem in problems} == {
        (None, store.path / "run.json"),
        (None, store.path / "embedding" / "zarr.json"),
        (0, None),
    }
    discard(store.path, problems)
    RepresentationStore.create(store.path, LAYOUT, RUN).write_unit(0, make_rows(LAYOUT, 30, 0))
    assert objects(s3, store.path) == before


@pytest.mark.parametrize("memory", [0, 1 << 30])
def test_batches(remote: RepresentationStore, local: RepresentationStore, memory: int) -> None:
    reading = Reading(batch_size=8, seed=3, window=16, memory=memory)
    needs = Needs(views=2, task_loss=True, labels=True)
    readers = [BatchReader(store, needs, reading) for store in (remote, local)]
    assert readers[0].resident == bool(memory)
    for ours, theirs in zip(*(reader.batches(0, 9) for reader in readers), strict=True):
        assert torch.equal(ours.representation_BVD, theirs.representation_BVD)
        assert torch.equal(ours.row_B, theirs.row_B)
        assert ours.task_loss_BV is not None
        assert theirs.task_loss_BV is not None
        assert torch.equal(ours.task_loss_BV, theirs.task_loss_BV)
        assert ours.label_B is not None
        assert theirs.label_B is not None
        assert torch.equal(ours.label_B, theirs.label_B)


def test_another_run_is_refused(remote: RepresentationStore) -> None:
    with pytest.raises(UserError, match="another config"):
        RepresentationStore.create(remote.path, make_layout(width=8), RUN)
    with pytest.raises(UserError, match="no representation store at s3://"):
        RepresentationStore.open(remote.path / "elsewhere")


def test_open_store(remote: RepresentationStore) -> None:
    for url in ("s3://read-only/run", "s3://read-only/run/store/"):
        assert hedgerow.open_store(url).keys() == remote.keys()


def test_of_a_large_store_only_new_records_are_asked_for(
    bucket: RemotePath, s3: boto3.client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tally, "FEW", 0)
    store = filled(bucket / "store")
    assert tally.tally(store.path).rows == 47
    assert str(tally.TALLY) in objects(s3, store.path)
    read: list[str] = []
    original = RemotePath.read_bytes

    def reading(path: RemotePath) -> bytes:
        read.append(path.name)
        return original(path)

    monkeypatch.setattr(RemotePath, "read_bytes", reading)
    again = tally.tally(store.path)
    assert (sorted(again.done), again.rows) == (["000000", "000001", "000002"], 47)
    assert [name for name in read if name[0].isdigit()] == []
    store.write_unit(1, make_rows(LAYOUT, 5, 1))
    assert tally.tally(store.path).rows == 52
    assert [name for name in read if name[0].isdigit()] == ["000001.json"]
