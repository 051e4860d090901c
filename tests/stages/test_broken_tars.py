"""Tars of someone else, some of them missing or broken: each fails alone with its reason, through the command."""

import json

import numpy as np
import pytest

from cluster.submit import main
from pipeline.representation_store import RepresentationStore
from tests.pipeline.images.dirt import broken_tar, clean_sample, dirty_sample, tar_bytes

DIRTY = ("cut_jpeg", "label_negative", "gzipped")


def clean(tar, count=4):
    rng = np.random.default_rng(tar)
    return [member for i in range(count) for member in clean_sample(rng, f"s{tar}{i}")]


@pytest.fixture
def words(tmp_path):
    """The command that caches ``0.tar`` (missing), ``1.tar`` (cut), ``2.tar`` (dirty) and ``3.tar`` (good)."""
    root = tmp_path / "tars"
    root.mkdir()
    (root / "1.tar").write_bytes(broken_tar("cut_in_member", tar_bytes(clean(1)))[0])
    rng = np.random.default_rng(0)
    dirty = [member for kind in DIRTY for member in dirty_sample(kind, rng, f"d-{kind}").members]
    (root / "2.tar").write_bytes(tar_bytes([*clean(2), *dirty]))
    (root / "3.tar").write_bytes(tar_bytes(clean(3)))
    (tmp_path / "classes.txt").write_text("ant\nbee\ncat\n")
    return [
        "stage=cache",
        "dataset=webdataset",
        f"dataset.root={root}",
        "dataset.tars='{0..3}.tar'",
        f"dataset.class_list={tmp_path}/classes.txt",
        "backbone=vit_small_random",
        "backbone.model=resnet10t",
        "backbone.size=32",
        "backbone.device=cpu",
        "cache.workers=2",
        "cache.max_quarantined=0.5",
        f"cache.output={tmp_path}/out",
        f"runs_root={tmp_path}/runs",
    ]


def rows(tmp_path):
    store = RepresentationStore.open(tmp_path / "out" / "store")
    return {store.layout.units[unit].name: count for unit, count in store.counts().items()}


def test_each_fails_alone_and_a_mended_tar_is_taken_up(tmp_path, words, capsys):
    assert main(words) == 1
    error = capsys.readouterr().err
    assert "unit 000000 (0.tar): no tar at" in error
    assert "unit 000001 (1.tar): " in error
    assert "the file ends inside 's10.png'" in error
    assert "Traceback" not in error
    assert rows(tmp_path) == {"2.tar": 4, "3.tar": 4}
    assert main(["status", *words, "--json"]) == 0
    (status,) = json.loads(capsys.readouterr().out)["stages"]
    assert (status["done"], status["total"], status["quarantined"]) == (2, 4, 3)
    assert set(status["failed"]) == {"000000", "000001"}
    assert main(["quarantine", *words]) == 0
    listed = [line.split("\t")[:3] for line in capsys.readouterr().out.splitlines() if "\t" in line]
    assert listed == [["000002", "2.tar", f"d-{kind}"] for kind in DIRTY]

    (tmp_path / "tars" / "0.tar").write_bytes(tar_bytes(clean(0, count=12)))  # fuller than the others
    (tmp_path / "tars" / "3.tar").unlink()  # done, and not needed any more
    assert main(words) == 1
    assert "unit 000000" not in capsys.readouterr().err
    assert rows(tmp_path) == {"0.tar": 12, "2.tar": 4, "3.tar": 4}
    (tmp_path / "tars" / "1.tar").write_bytes(tar_bytes(clean(1)))
    assert main(words) == 0
    assert rows(tmp_path) == {"0.tar": 12, "1.tar": 4, "2.tar": 4, "3.tar": 4}


def test_no_tar_at_all_begins_nothing(tmp_path, words, capsys):
    for path in (tmp_path / "tars").iterdir():
        path.unlink()
    assert main(words) == 1
    assert "all 4 tars are missing" in capsys.readouterr().err
    assert not (tmp_path / "out" / "store").exists()
