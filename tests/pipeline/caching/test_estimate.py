"""What is said before caching is what comes of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.caching.estimate import SO_FAR, TIMED, estimate
from pipeline.caching.job import CacheJob
from pipeline.caching.settings import CacheSettings
from pipeline.errors import UserError
from pipeline.files import read_json, write_json
from pipeline.progress import Silent


def job(packed, folder: Path, *backbones: dict[str, object], **settings: object) -> CacheJob:
    stores = {folder / str(index): values for index, values in enumerate(backbones)}
    return CacheJob(tars=packed, stores=stores, settings=CacheSettings(**settings))


def files_of(folder: Path, names: set[str]) -> list[Path]:
    """Everything of units below a store: files, or folders."""
    return [path for name in names for path in (folder / name).rglob("*") if path.name != "zarr.json"]


def test_files_and_bytes_are_those_that_are_made(packed, backbone, tmp_path):
    settings = {"views": ("center",), "random_views": 1}
    told = estimate(job(packed, tmp_path, backbone, **settings))
    samples = sum(unit.samples for unit in packed.units)
    assert told.views == 2 * samples
    done = job(packed, tmp_path, backbone, **settings)
    assert not (tmp_path / "0").exists()  # nothing is begun by asking
    for unit in done.missing():
        done.run(unit, Silent())
    arrays = {path.parent.name for path in (tmp_path / "0").glob("*/zarr.json")}
    made = [path for name in arrays for path in (tmp_path / "0" / name / "c").rglob("*")]
    records = files_of(tmp_path / "0", {"commits", "telemetry"})
    # nothing is stored of a unit where no guess was right; then file and folders are missing
    absent = sum(not done.store.shard_path("top1_correct", unit).exists() for unit in range(len(packed.units)))
    assert told.files == sum(path.is_file() for path in made) + absent + len(records)
    assert told.inodes == len(made) + 3 * absent + len(records)
    stored = sum(path.stat().st_size for path in made if path.is_file())
    capacity = done.store.layout.rows * len(packed.units)  # shards hold whole chunks
    assert told.bytes == pytest.approx(stored * samples / capacity, rel=0.1)
    rest = estimate(done)
    assert (rest.views, rest.bytes, rest.files, rest.hours) == (0, 0, 0, {})


def test_hours_come_from_what_is_done_from_the_table_and_from_a_trial(packed, backbone, tmp_path):
    listed = {**backbone, "model": "resnet18", "size": 224, "num_classes": 0, "class_list": None}
    settings = {"views": ("center",), "random_views": 1, "batch_size": 8}
    table = estimate(job(packed, tmp_path, listed, **settings)).hours
    rates = read_json(Path("pipeline/caching/rates.json"))["rates"]["resnet18"]["224"]
    samples = sum(unit.samples for unit in packed.units)
    assert table == pytest.approx({device: 2 * samples / rate / 3600 for device, rate in rates.items()})
    both = estimate(job(packed, tmp_path, listed, {**listed, "model": "resnet50"}, **settings)).hours
    assert all(both[device] > table[device] for device in table)
    mixed = estimate(job(packed, tmp_path, listed, backbone, **settings)).hours
    assert mixed == {}  # one of them is not in the table

    begun = job(packed, tmp_path / "begun", backbone, **settings)
    begun.run(0, Silent())
    telemetry = tmp_path / "begun" / "0" / "telemetry" / "000000.json"
    write_json(telemetry, {**read_json(telemetry), "seconds": 36.0})
    told = estimate(begun, batches=1)
    first, *others = [unit.samples for unit in packed.units]
    assert told.hours[SO_FAR] == pytest.approx(sum(others) * 36.0 / first / 3600)
    assert 0 < told.hours[TIMED] < 1


def test_what_cannot_be_known_is_not_guessed(packed, backbone, tmp_path):
    unknown = replace(packed, units=tuple(replace(unit, samples=None) for unit in packed.units))
    told = estimate(job(unknown, tmp_path, backbone))
    assert (told.views, told.bytes, told.hours) == (None, None, {})
    tapped = estimate(job(packed, tmp_path, {**backbone, "layer": 1}))
    assert (tapped.bytes, tapped.files, tapped.inodes) == (None, None, None)
    assert tapped.views is not None
    one = replace(packed, units=packed.units[:1], paths=packed.paths[:1])  # 23 images
    with pytest.raises(UserError, match="too few images to time a batch of 32 views"):
        estimate(job(one, tmp_path, backbone), batches=1)
