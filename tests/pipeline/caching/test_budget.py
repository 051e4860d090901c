"""One bad sample stops nothing; a run that is really broken stops, in whatever order its units are done."""

import itertools
import math
import shutil
import subprocess

import numpy as np
import pydantic
import pytest

from pipeline.caching.budget import FEW_OF_A_RUN, GRACE, Budget, Share
from pipeline.errors import UserError
from pipeline.faults import Quarantined
from pipeline.images.tars import read_tar
from pipeline.representation_store.records import Commit, record_path, write_commit
from tests.pipeline.images.dirt import tar_bytes


def bad(count):
    return [Quarantined(key=f"k{i}", reason="empty file (0 bytes)") for i in range(count)]


def commit(folder, unit, rows, quarantined=0):
    write_commit(folder, Commit(unit=unit, name=f"{unit}.tar", run="", rows=rows, quarantined=tuple(bad(quarantined))))


@pytest.mark.parametrize("samples", [1, 2, 3, 10])
def test_one_bad_sample_fails_no_unit_however_small(tmp_path, samples):
    Budget(tmp_path, 0.01).check(0, "a.tar", bad(1), samples)


def test_a_rotten_unit_fails_alone_with_its_reason(tmp_path):
    for unit in range(1, 6):
        commit(tmp_path, unit, 10_000)
    budget = Budget(tmp_path, 0.01, samples=51_000)
    with pytest.raises(UserError, match=r"a\.tar: 300 of its 500 samples .* First: k0: empty file \(0 bytes\); k1: "):
        budget.check(0, "a.tar", bad(300), 500)
    budget.check(0, "a.tar", bad(250), 500)  # half, and less than 1 % of the run
    Budget(tmp_path, 0.7).check(0, "a.tar", bad(300), 500)
    with pytest.raises(UserError, match="8 of its 8"):
        budget.check(0, "a.tar", bad(8), 8)
    budget.check(0, "a.tar", bad(2), 2)


def test_a_tar_packed_in_the_order_of_its_folder_is_told_how_to_pack_it(tmp_path):
    members = [(f"k{i}.{extension}", b"x") for extension in ("jpg", "cls") for i in range(9)]
    members += [("good.jpg", b"x"), ("good.cls", b"1")]
    (tmp_path / "a.tar").write_bytes(tar_bytes(members))
    samples = list(read_tar(tmp_path / "a.tar"))
    set_aside = [sample for sample in samples if isinstance(sample, Quarantined)]
    assert (len(set_aside), len(samples)) == (9, 10)
    with pytest.raises(UserError, match=r"a\.tar: 9 of its 10 .*tar --sort=name -cf .*"):
        Budget(tmp_path, 0.01).check(0, "a.tar", set_aside, len(samples))
    with pytest.raises(UserError, match="Mend the images") as raised:
        Budget(tmp_path, 0.01).check(0, "a.tar", [*set_aside[:8], *bad(8)], 20)
    assert "--sort" not in str(raised.value)


@pytest.mark.skipif(not shutil.which("tar"), reason="the system has no tar")
@pytest.mark.parametrize(
    "command",
    ["tar --sort=name -cf ../a.tar -C . .", "find . -type f | LC_ALL=C sort | tar -cf ../a.tar -T -"],
)
def test_the_advice_makes_whole_samples(tmp_path, command):
    if "--sort" in command and b"--sort" not in subprocess.check_output(["tar", "--help"]):
        pytest.skip("the tar of this system has no --sort")
    folder = tmp_path / "folder"
    for key in ("k", "k-1", "k1", "K", "ü", "sub/k", "k 2"):
        (folder / key).parent.mkdir(parents=True, exist_ok=True)
        for extension in ("jpg", "json", "cls"):
            (folder / f"{key}.{extension}").write_bytes(b"x")
    subprocess.run(["bash", "-c", command], cwd=folder, check=True)
    samples = list(read_tar(tmp_path / "a.tar"))
    assert len(samples) == 7
    assert not [sample for sample in samples if isinstance(sample, Quarantined)]


def test_the_run_stops_past_its_share(tmp_path):
    commit(tmp_path, 0, 1_000_000 - 9_990, 9_990)
    budget = Budget(tmp_path, 0.01, samples=13_000_000)
    budget.check(1, "b.tar", bad(110), 10_000)  # 10,100 of 1,010,000
    with pytest.raises(UserError, match=r"10,101 of 1,010,000, more than the 10,100 that max_quarantined=0\.01 allows"):
        budget.check(1, "b.tar", bad(111), 10_000)
    commit(tmp_path, 2, 990_000)  # another worker's
    budget.check(1, "b.tar", bad(111), 10_000)
    record_path(tmp_path, 2).unlink()  # withdrawn
    with pytest.raises(UserError):
        budget.check(1, "b.tar", bad(111), 10_000)
    budget.check(0, "a.tar", bad(111), 10_000)  # a unit that is done again is not counted twice


def test_dirt_in_lumps_is_judged_by_the_first_hundred_thousand(tmp_path):
    Budget(tmp_path, 0.01, samples=13_000_000).check(0, "a.tar", bad(1000), 10_000)
    with pytest.raises(UserError):
        Budget(tmp_path, 0.01, samples=13_000_000).check(0, "a.tar", bad(1001), 10_000)


def test_a_few_are_always_allowed_but_not_when_none_is(tmp_path):
    Budget(tmp_path, 0.0001, samples=50).check(0, "a.tar", bad(FEW_OF_A_RUN), 50)
    with pytest.raises(UserError):
        Budget(tmp_path, 0, samples=50).check(0, "a.tar", bad(1), 50)
    Budget(tmp_path, 0).check(0, "a.tar", [], 50)
    Budget(tmp_path, 1).check(0, "a.tar", bad(50), 50)
    Budget(tmp_path, 0).check(0, "a.tar", [], 0)


@pytest.mark.parametrize(("total_bad", "passes"), [(30, True), (31, False)])
def test_the_order_of_the_units_does_not_matter(tmp_path, total_bad, passes):
    """Against the plain statement: of a run below the grace, at most the share of all may be bad."""
    units = [(1000, int(count)) for count in np.bincount(np.arange(total_bad) % 3)]
    assert passes == (total_bad <= math.ceil(0.01 * 3000))
    assert sum(samples for samples, _ in units) < GRACE
    for number, order in enumerate(itertools.permutations(range(3))):
        budget = Budget(tmp_path / str(number), 0.01, samples=3000)
        outcomes = []
        for unit in order:
            samples, count = units[unit]
            try:
                budget.check(unit, "a.tar", bad(count), samples)
            except UserError:
                outcomes.append(False)
            else:
                outcomes.append(True)
                commit(budget.commits, unit, samples - count, count)
        assert all(outcomes) == passes


@pytest.mark.parametrize(("written", "share"), [("1%", 0.01), ("0.5 %", 0.005), (0.01, 0.01), ("0.2", 0.2), (1, 1.0)])
def test_a_share_can_be_written_in_per_cent(written, share):
    assert pydantic.TypeAdapter(Share).validate_python(written) == pytest.approx(share)


@pytest.mark.parametrize("written", ["101%", "-1%", "x%", 1.5, "%"])
def test_what_is_no_share_is_refused(written):
    with pytest.raises(pydantic.ValidationError):
        pydantic.TypeAdapter(Share).validate_python(written)
