"""A tar is whole or broken at a stated byte; nothing in between."""

import contextlib
import gzip
import re
import tarfile
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.errors import UserError
from pipeline.images.archive import BrokenTar, members

THREE = [("a.png", b"A" * 700), ("a.cls", b"0"), ("b.png", b"B" * 100)]
# headers and data in blocks of 512: a.png 0 | 512, a.cls 1536 | 2048, b.png 2560 | 3072, end 3584
END = 3584


def broken_at(path):
    with pytest.raises(BrokenTar) as caught:
        members(path)
    assert str(path) in str(caught.value)
    return int(re.search(r"at byte (\d+)", str(caught.value)).group(1)), str(caught.value)


def test_members_are_where_they_lie(make_tar):
    path = make_tar(THREE)
    found = members(path)
    assert [(m.name, m.start, m.size, m.fault) for m in found] == [
        ("a.png", 512, 700, ""),
        ("a.cls", 2048, 1, ""),
        ("b.png", 3072, 100, ""),
    ]
    data = path.read_bytes()
    assert [data[m.start : m.start + m.size] for m in found] == [data for _, data in THREE]


@pytest.mark.parametrize("format_", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_long_and_foreign_names(make_tar, format_):
    names = ["d" * 90 + "/" + "e" * 120 + ".png", "größe.png"]
    found = members(make_tar([(name, b"x") for name in names], format_=format_))
    assert [m.name for m in found] == names


def test_an_empty_archive_is_whole(make_tar):
    assert members(make_tar([])) == []


def test_an_empty_file_is_not(tmp_path):
    (tmp_path / "a.tar").write_bytes(b"")
    byte, _ = broken_at(tmp_path / "a.tar")
    assert byte == 0


def test_a_missing_file_is_said_so(tmp_path):
    with pytest.raises(UserError, match=r"no tar at .*b\.tar"):
        members(tmp_path / "b.tar")


@pytest.mark.parametrize(
    ("cut", "byte", "what"),
    [
        (900, 900, r"inside 'a\.png' \(bytes 512 to 1212\)"),  # in a member's data
        (3100, 3100, r"inside 'b\.png'"),  # in the last member's data
        (2560, 2560, "without the two end-of-archive blocks"),  # exactly between two members
        (2600, 2600, "inside a header"),
        (END, END, "without the two end-of-archive blocks"),
        (END + 512, END + 512, "without the two end-of-archive blocks"),  # a lone block of zeros
        (300, 0, "no readable tar header"),
    ],
)
def test_cut_off(make_tar, cut, byte, what):
    path = make_tar(THREE)
    path.write_bytes(path.read_bytes()[:cut])
    at, text = broken_at(path)
    assert at == byte
    assert re.search(what, text)


def test_every_cut_before_the_end_is_noticed(make_tar):
    """The stdlib reader takes many of these for a shorter archive."""
    path = make_tar(THREE)
    data = path.read_bytes()
    for cut in range(0, END + 1024, 97):
        path.write_bytes(data[:cut])
        with pytest.raises(BrokenTar):
            members(path)
    path.write_bytes(data[: END + 1024])
    assert len(members(path)) == 3


@pytest.mark.parametrize("header", [0, 1536, 2560])
def test_a_damaged_header_is_named_by_its_byte(make_tar, header):
    path = make_tar(THREE)
    data = bytearray(path.read_bytes())
    data[header + 150] ^= 0x11  # the checksum
    path.write_bytes(data)
    assert broken_at(path)[0] == header


def test_two_tars_joined(make_tar):
    path = make_tar(THREE)
    one = path.read_bytes()
    path.write_bytes(one + one)
    byte, text = broken_at(path)
    assert byte >= END + 1024
    assert "joined" in text


def test_a_gzipped_tar_is_named(make_tar):
    path = make_tar(THREE)
    path.write_bytes(gzip.compress(path.read_bytes()))
    assert "unpack it first" in broken_at(path)[1]


def test_links_and_folders(tmp_path):
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as tar:
        folder, link = tarfile.TarInfo("d"), tarfile.TarInfo("d/a.png")
        folder.type, link.type, link.linkname = tarfile.DIRTYPE, tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(folder)
        tar.addfile(link)
    (only,) = members(path)
    assert only.name == "d/a.png"
    assert "link" in only.fault


def test_a_negative_size_does_not_loop(make_tar):
    path = make_tar(THREE)
    data = bytearray(path.read_bytes())
    header = bytearray(data[1536:2048])
    header[124:136] = b"\xff" * 10 + (-512 & 0xFFFF).to_bytes(
        2, "big"
    )  # base-256: -512, so the next header is this one
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    data[1536:2048] = header
    path.write_bytes(data)
    started = time.monotonic()
    with pytest.raises(BrokenTar):
        members(path)
    assert time.monotonic() - started < 5


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 10239), st.integers(1, 255)), min_size=1, max_size=4))
def test_flipped_bytes_give_members_or_broken_tar(make_tar, flips):
    """Whatever the damage: an answer, and never another kind of error."""
    path = make_tar(THREE, format_=tarfile.PAX_FORMAT)
    data = bytearray(path.read_bytes())
    for place, mask in flips:
        data[place] ^= mask
    path.write_bytes(data)
    with contextlib.suppress(BrokenTar):
        assert len(members(path)) <= 3
