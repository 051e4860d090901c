"""Packing: lossless, the same bytes on every run and after every interruption, readable without code of ours."""

import hashlib
import io
import json
import os
import shutil
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from webdataset.tariterators import group_by_keys, tar_file_expander

from pipeline.config import config
from pipeline.datasets.base import About, Dataset, LabelledImage
from pipeline.errors import UserError
from pipeline.files import read_json
from pipeline.images.packing import PackJob, PackPlan, open_packed, plan_tars
from pipeline.images.tars import TarSample, label_of, read_tar
from pipeline.interruption import Interrupted, forget
from pipeline.progress import Silent
from tests.asking import AskAfter

NAMES = ["ant", "bee", "cat/wild"]


class Made(Dataset):
    """``count`` images of a few bytes; ``trip`` = the number of the image at which the machine fails."""

    about = About(title="Made", source="here", licence="none", citation="nobody")

    @config
    class Config:
        name: str = "made"
        root: Path = Path("/nowhere")

    def __init__(self, count=50, trip=None):
        super().__init__(self.Config())
        self.count, self.trip = count, trip

    def check(self):
        pass

    def class_names(self):
        return NAMES

    def __len__(self):
        return self.count

    def images(self) -> Iterator[LabelledImage]:
        for i in range(self.count):
            if i == self.trip:
                raise OSError("the cable was pulled")
            yield LabelledImage(
                key=f"{'deep/' * (i % 3)}{'long' * (i % 40)}{i}",
                class_name=None if i == 7 else NAMES[i % 3],
                data=hashlib.blake2b(b"%d" % i).digest() * (1 + i % 20),
                extension=("png", "jpg")[i % 2],
                source=f"there/{i}",
            )

    def left_out(self):
        return {"ugly": 3}


def job(folder, **options):
    return PackJob(Made(**options), folder, kind="made", samples_per_tar=20, min_tars=4)


def pack(folder, **options):
    packing = job(folder, **options)
    packing.prepare()
    for index in packing.missing():
        packing.run(index, Silent())
    packing.finish()
    return packing


def contents(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# -- the plan


@given(st.integers(1, 3000), st.integers(1, 400), st.integers(1, 40))
def test_a_plan_divides_everything_evenly(samples, samples_per_tar, min_tars):
    plan = plan_tars(samples, samples_per_tar=samples_per_tar, min_tars=min_tars)
    bounds = [plan.bounds(index) for index in range(plan.tars)]
    assert [i for part in bounds for i in part] == list(range(samples))
    sizes = {len(part) for part in bounds}
    assert min(sizes) >= 1
    assert max(sizes) <= samples_per_tar
    assert max(sizes) - min(sizes) <= 1
    assert plan.tars >= min(min_tars, samples)


def test_plans_by_hand():
    assert plan_tars(5305) == PackPlan(samples=5305, tars=12)
    assert plan_tars(12_700_000) == PackPlan(samples=12_700_000, tars=1551)
    assert plan_tars(5) == PackPlan(samples=5, tars=5)
    with pytest.raises(UserError, match="no images"):
        plan_tars(0)


# -- what is written


def test_asked_to_stop_in_the_middle_of_a_tar_it_leaves_none(tmp_path):
    pack(tmp_path / "calm")
    packing = job(tmp_path / "cut")
    packing.prepare()
    packing.run(0, Silent())
    with pytest.raises(Interrupted):
        packing.run(1, AskAfter(3))
    assert sorted(path.name for path in (tmp_path / "cut" / "tars").iterdir()) == ["00000.tar"]
    assert packing.missing() == [1, 2, 3]
    forget()
    pack(tmp_path / "cut")
    assert contents(tmp_path / "cut") == contents(tmp_path / "calm")


def test_everything_comes_back(tmp_path):
    pack(tmp_path)
    packed = open_packed(tmp_path)
    assert packed.class_names == tuple(NAMES)
    assert sum(unit.samples for unit in packed.units) == 50
    found = [sample for path in packed.paths for sample in read_tar(path)]
    for sample, image in zip(found, Made().images(), strict=True):
        assert isinstance(sample, TarSample)
        assert (sample.key, sample.data, sample.extension) == (image.key, image.data, image.extension)
        assert label_of(sample, {name: i for i, name in enumerate(NAMES)}) == (
            -1 if image.class_name is None else NAMES.index(image.class_name)
        )
        assert json.loads(sample.fields["json"]) == {"class": image.class_name, "source": image.source}
    assert packed.longest_key == max(len(image.key) for image in Made().images())
    assert packed.max_samples == max(unit.samples for unit in packed.units)
    for unit, path in zip(packed.units, packed.paths, strict=True):
        assert (unit.name, unit.bytes) == (path.name, path.stat().st_size)
        assert unit.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_webdataset_library_reads_the_same(tmp_path):
    pack(tmp_path)
    images = {image.key: image for image in Made().images()}
    for path in open_packed(tmp_path).paths:
        with path.open("rb") as stream:
            for sample in group_by_keys(tar_file_expander([{"url": path.name, "stream": stream}])):
                image = images.pop(sample["__key__"])
                assert sample[image.extension] == image.data
                if image.class_name is not None:
                    assert NAMES[int(sample["cls"])] == image.class_name
    assert not images


def test_headers_tell_nothing_of_the_machine(tmp_path):
    pack(tmp_path)
    with tarfile.open(tmp_path / "tars/00001.tar") as tar:
        for member in tar:
            assert (member.mtime, member.uid, member.gid, member.uname, member.gname) == (0, 0, 0, "", "")
            assert member.mode == 0o644


def test_the_manifest(tmp_path):
    pack(tmp_path)
    manifest = read_json(tmp_path / "manifest.json")
    assert manifest["class_names"] == NAMES
    assert manifest["left_out"] == {"ugly": 3}
    assert manifest["dataset"] == {
        "kind": "made",
        "name": "made",
        "title": "Made",
        "source": "here",
        "licence": "none",
        "citation": "nobody",
    }
    assert [tar["name"] for tar in manifest["tars"]] == [f"{i:05d}.tar" for i in range(4)]
    assert [tar["samples"] for tar in manifest["tars"]] == [12, 13, 12, 13]
    assert str(tmp_path) not in (tmp_path / "manifest.json").read_text()


# -- again and again


def test_the_same_bytes_in_any_order_and_by_any_number_of_workers(tmp_path):
    pack(tmp_path / "one")
    other = job(tmp_path / "two")
    other.prepare()
    for index in (3, 0):
        other.run(index, Silent())
    threads = [threading.Thread(target=job(tmp_path / "two").run, args=(index, Silent())) for index in (2, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    job(tmp_path / "two").finish()
    assert contents(tmp_path / "two") == contents(tmp_path / "one")


@pytest.mark.parametrize("trip", [0, 11, 12, 30, 49])
def test_interrupted_and_taken_up_again(tmp_path, trip):
    pack(tmp_path / "one")
    with pytest.raises(OSError, match="cable"):
        pack(tmp_path / "two", trip=trip)
    assert not list((tmp_path / "two").rglob("*.partial"))
    again = job(tmp_path / "two")
    done = len(again.recorded())
    assert len(again.missing()) == 4 - done
    pack(tmp_path / "two")
    assert contents(tmp_path / "two") == contents(tmp_path / "one")


def test_leftovers_of_a_killed_writer_are_swept_and_unrecorded_tars_written_again(tmp_path):
    pack(tmp_path / "one")
    packing = job(tmp_path / "two")
    packing.prepare()
    tars = tmp_path / "two" / "tars"
    tars.mkdir()
    (tars / "00002.tar.0123.partial").write_bytes(b"half")
    os.utime(tars / "00002.tar.0123.partial", (0, 0))  # of some machine, long ago
    (tars / "00001.tar").write_bytes(b"renamed, but its record was never written")
    pack(tmp_path / "two")
    assert contents(tmp_path / "two") == contents(tmp_path / "one")


def test_a_second_run_has_nothing_to_do_and_needs_no_images(tmp_path):
    pack(tmp_path)
    before = contents(tmp_path)

    class Gone(Made):
        def check(self):
            raise AssertionError("the images are asked for")

    again = PackJob(Gone(), tmp_path, kind="made", samples_per_tar=20, min_tars=4)
    again.prepare()
    assert again.missing() == []
    again.finish()
    assert contents(tmp_path) == before


def test_images_that_changed_in_between_are_refused(tmp_path):
    with pytest.raises(OSError, match="cable"):
        pack(tmp_path, trip=20)
    with pytest.raises(UserError, match="50 images then, 51 now"):
        pack(tmp_path, count=51)


def test_a_dataset_that_gives_fewer_images_than_it_says_is_not_recorded(tmp_path):
    class Short(Made):
        def part(self, start, stop):
            return super().part(start, min(stop, 20))

    packing = PackJob(Short(), tmp_path, kind="made", samples_per_tar=20, min_tars=4)
    packing.prepare()
    with pytest.raises(AssertionError, match="gave 8 images"):
        packing.run(1, Silent())
    assert packing.recorded() == []


# -- verify


def test_verify_names_bad_tars_and_the_same_command_mends_them(tmp_path):
    packing = pack(tmp_path)
    before = contents(tmp_path)
    assert packing.verify(Silent()) == {}
    bad = tmp_path / "tars/00001.tar"
    data = bytearray(bad.read_bytes())
    data[700] ^= 1
    bad.write_bytes(data)
    (tmp_path / "tars/00003.tar").unlink()
    wrong = packing.verify(Silent())
    assert sorted(wrong) == [1, 3]
    assert "has changed" in wrong[1]
    assert "missing" in wrong[3]
    assert job(tmp_path).missing() == [1, 3]
    pack(tmp_path)
    assert contents(tmp_path) == before


# -- reading what is packed


def test_a_packed_folder_can_be_moved_and_given_as_webdataset(tmp_path):
    pack(tmp_path / "one")
    shutil.move(tmp_path / "one", tmp_path / "moved")
    packed = open_packed({"kind": "webdataset", "root": str(tmp_path / "moved")})
    assert packed == open_packed(tmp_path / "moved")
    assert all(path.is_file() for path in packed.paths)


def test_a_tar_that_is_not_the_one_of_the_manifest_is_refused(tmp_path):
    """Also one of as many samples and bytes; a copy of the right one is read."""
    pack(tmp_path)
    packed, tars = open_packed(tmp_path), tmp_path / "tars"
    right = (tars / "00001.tar").read_bytes()
    another = right.replace(b"class", b"klass")
    assert another != right
    (tars / "00001.tar").write_bytes(another)
    assert list(packed.samples(0))
    with pytest.raises(UserError, match=r"00001\.tar: not the tar that the manifest describes"):
        list(packed.samples(1))
    (tars / "00001.tar").write_bytes(right)
    assert len(list(packed.samples(1))) == packed.units[1].samples


def test_what_is_not_packed_is_said(tmp_path):
    with pytest.raises(UserError, match=r"packing is not finished there\. Run: submit stage=pack"):
        open_packed(tmp_path)
    with pytest.raises(UserError, match="is not tars yet"):
        open_packed({"kind": "image_folder", "root": str(tmp_path)})


def test_empty_tars_of_others_are_legal(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w"):
        pass
    with tarfile.open(tmp_path / "b.tar", "w") as tar:
        info = tarfile.TarInfo("key.png")
        tar.addfile(info, io.BytesIO())
    (tmp_path / "classes.txt").write_text("")
    packed = open_packed({"kind": "webdataset", "root": str(tmp_path), "class_list": str(tmp_path / "classes.txt")})
    assert [unit.samples for unit in packed.units] == [0, 1]
    assert packed.longest_key == 3
