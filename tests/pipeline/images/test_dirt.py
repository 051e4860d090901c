"""Every kind of dirt of ``dirt.py`` becomes what it says, beside clean samples, and spares them."""

import numpy as np
import pytest

from pipeline.faults import BadSample
from pipeline.images.archive import BrokenTar
from pipeline.images.decode import decode
from pipeline.images.tars import TarSample, index_tar, label_of, read_tar
from tests.pipeline.images.dirt import (
    BAD_KINDS,
    BROKEN_KINDS,
    CLASSES,
    KINDS,
    ODD_KINDS,
    agrees,
    broken_tar,
    clean_sample,
    dirty_sample,
    tar_bytes,
)


def outcome(path):
    """key → None, or why the sample cannot be used; no key comes twice."""
    found = {}
    for item in read_tar(path):
        assert item.key not in found
        found[item.key] = _fault(item)
    return found


def _fault(item):
    if not isinstance(item, TarSample):
        return item.reason
    try:
        label_of(item, {f"class {i}": i for i in range(CLASSES)})
        assert decode(item.data).mode == "RGB"
    except BadSample as error:
        return str(error)
    return None


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind(tmp_path, kind):
    rng = np.random.default_rng(0)
    dirty = dirty_sample(kind, rng, "x")
    assert dirty == dirty_sample(kind, np.random.default_rng(0), "x")  # the same for the same generator
    path = tmp_path / "a.tar"
    path.write_bytes(tar_bytes([*clean_sample(rng, "first"), *dirty.members, *clean_sample(rng, "last")]))
    found = outcome(path)
    assert not agrees(found, {"first": None, **dirty.expected, "last": None})
    assert index_tar(path).samples == len(found)


def test_all_kinds_in_one_tar_in_any_order(tmp_path):
    rng = np.random.default_rng(1)
    members, expected = [], {}
    for number, kind in enumerate(rng.permutation([*KINDS, *KINDS])):
        dirty = dirty_sample(kind, rng, f"s{number:03d}-{kind}")
        members += dirty.members
        expected |= dirty.expected
    path = tmp_path / "a.tar"
    path.write_bytes(tar_bytes(members))
    assert not agrees(outcome(path), expected)


def test_the_catalogue_is_rich():
    assert len(BAD_KINDS) >= 24
    assert len(ODD_KINDS) >= 18
    assert len(KINDS) == len(BAD_KINDS) + len(ODD_KINDS) + 1  # "repeated" has one of both


@pytest.mark.parametrize("kind", BROKEN_KINDS)
def test_broken_tars(tmp_path, kind):
    rng = np.random.default_rng(0)
    whole = tar_bytes([*clean_sample(rng, "a"), *clean_sample(rng, "b")])
    data, said = broken_tar(kind, whole)
    path = tmp_path / "a.tar"
    path.write_bytes(data)
    with pytest.raises(BrokenTar, match=said):
        next(read_tar(path))
    path.write_bytes(whole)
    assert outcome(path) == {"a": None, "b": None}
