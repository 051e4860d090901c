"""Every key of a tar comes out once: as a sample, or as a fault with its reason."""

import json
import tarfile
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.faults import BadLabel, Quarantined
from pipeline.images.archive import BrokenTar, Member
from pipeline.images.grouping import MAX_IMAGE_BYTES, grouped
from pipeline.images.tars import TarSample, index_tar, label_of, read_tar

CLASSES = {"ant": 0, "bee": 1, "cat": 2}


def outcome(path):
    """key → extension of a sample, or the reason of its quarantine; a key that came twice would be seen."""
    found = list(read_tar(path))
    keys = [item.key for item in found]
    assert len(set(keys)) == len(keys)
    return {item.key: item.extension if isinstance(item, TarSample) else item.reason for item in found}


def test_samples_come_whole_and_in_order(make_tar):
    path = make_tar(
        [("x/b.jpg", b"B"), ("x/b.cls", b"1\n"), ("x/b.npy", b"?"), ("a.json", b"{}"), ("a.PNG", b"A"), ("c.webp", b"")]
    )
    assert list(read_tar(path)) == [
        TarSample(key="x/b", data=b"B", extension="jpg", fields={"cls": b"1\n"}),
        TarSample(key="a", data=b"A", extension="png", fields={"json": b"{}"}),
        TarSample(key="c", data=b"", extension="webp"),
    ]


def test_an_empty_tar_is_legal(make_tar):
    path = make_tar([])
    assert list(read_tar(path)) == []
    assert index_tar(path).samples == 0


def test_a_broken_tar_gives_no_sample_at_all(make_tar):
    path = make_tar([(f"{i}.png", b"x" * 600) for i in range(20)])
    path.write_bytes(path.read_bytes()[:20000])
    with pytest.raises(BrokenTar):
        next(read_tar(path))


@pytest.mark.parametrize(
    ("members", "key", "reason"),
    [
        ([("a.jpg", b"1"), ("a.png", b"2")], "a", "several images for one key: jpg, png"),
        ([("a.jpg", b"1"), ("a.JPG", b"2")], "a", "two members of this key end in .jpg"),
        ([("a.jpg", b"1"), ("a.jpg", b"1")], "a", "two members of this key end in .jpg"),
        ([("a.cls", b"1"), ("a.json", b"{}")], "a", "no image among its members: cls, json"),
        ([("a.v2.pdf", b"1")], "a", "no image among its members: v2.pdf"),
        ([("a.l.png", b"1"), ("a.r.png", b"1"), ("a.cls", b"1")], "a", "several images for one key: l.png, r.png"),
        ([("a.l.png", b"1"), ("a.l.jpg", b"1")], "a.l", "several images for one key: jpg, png"),
        ([("a.l.cls", b"1"), ("a.npy", b"1")], "a", "no image among its members: l.cls, npy"),
        ([("README", b"1")], "README", "its name has no extension"),
        ([("/etc/a.jpg", b"1")], "/etc/a", "absolute path"),
        ([("x/../../a.jpg", b"1")], "x/../../a", "leads out of the tar"),
        ([("../a.jpg", b"1")], "../a", "leads out of the tar"),
        ([("..", b"1")], "", "leads out of the tar"),
        ([("a\n.jpg", b"1")], "a\n", "control characters"),
        ([("caf\udce9.jpg", b"1")], r"caf\xe9", "not UTF-8"),
    ],
)
def test_faults_are_stated_and_spare_the_others(make_tar, members, key, reason):
    path = make_tar([("first.png", b"1"), *members, ("last.png", b"2")])
    found = outcome(path)
    assert list(found) == ["first", key, "last"]
    assert reason in found[key]
    assert found["first"] == found["last"] == "png"
    assert (index_tar(path).samples, index_tar(path).faulty) == (3, 1)


@pytest.mark.parametrize(
    "names",
    [
        ["a.jpg", "a.cls", "b.jpg", "b.cls", "a.jpg", "a.cls"],  # a key twice
        ["a.jpg", "b.jpg", "a.cls"],  # interleaved
    ],
)
def test_members_that_lie_apart(make_tar, names):
    found = outcome(make_tar([(name, b"0") for name in names]))
    assert "do not lie together" in found["a"]
    assert found["b"] == "jpg"


def test_hidden_files_and_dot_slash(make_tar):
    found = outcome(make_tar([("./._a.jpg", b"mac"), ("./a.jpg", b"1"), ("./a.cls", b"0"), (".DS_Store", b"mac")]))
    assert found == {"a": "jpg"}


def test_names_with_more_dots(make_tar):
    """Read up to the last dot only where nothing is an image by WebDataset's own rule."""
    path = make_tar(
        [
            *((f"n01/00.5/img.left.{extension}", extension.encode()) for extension in ("JPG", "cls")),
            *((f"n01/00.5/x.{name}", name.encode()) for name in ("A.png", "a.png", "A.json", "a.cls", "txt.npy")),
            *((f"y.{name}", name.encode()) for name in ("png", "seg.png", "old.cls", "cls")),
            *((f"z.{name}", name.encode()) for name in ("2.5.webp", "cls", "npy")),
            *((f"w.{name}", name.encode()) for name in ("1.png", "2.cls")),
        ]
    )
    found = [(i.key, i.data, dict(i.fields)) if isinstance(i, TarSample) else (i.key, i.reason) for i in read_tar(path)]
    assert found == [
        ("n01/00.5/img.left", b"JPG", {"cls": b"cls"}),
        ("n01/00.5/x.A", b"A.png", {"json": b"A.json"}),
        ("n01/00.5/x.a", b"a.png", {"cls": b"a.cls"}),
        ("y", b"png", {"cls": b"cls"}),
        ("z.2.5", b"2.5.webp", {"cls": b"cls"}),
        ("w.1", b"1.png", {}),
        ("w.2", "no image among its members: cls"),
    ]
    assert (index_tar(path).samples, index_tar(path).faulty) == (7, 1)


def test_a_sample_of_a_gigabyte_is_not_read(tmp_path):
    """The tar is sparse: it has 1 GB, but takes no room on the disk."""
    path, size = tmp_path / "a.tar", 1 << 30
    with path.open("wb") as file:
        for name, content in (("a.png", b"1"), ("b.png", None), ("c.png", b"3"), ("c.txt", b"x" * ((1 << 20) + 1))):
            info = tarfile.TarInfo(name)
            info.size = size if content is None else len(content)
            file.write(info.tobuf(tarfile.GNU_FORMAT))
            file.write(content or b"")
            file.truncate(file.tell() + (size if content is None else 0))
            file.seek(0, 2)
            file.truncate(-(-file.tell() // 512) * 512)
            file.seek(0, 2)
        file.write(bytes(1024))
    tracemalloc.start()
    found = {item.key: item for item in read_tar(path)}
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found["b"] == Quarantined(key="b", reason=f"its png has {size} bytes, at most {MAX_IMAGE_BYTES} are read")
    assert found["c"] == Quarantined(key="c", reason="its txt has 1048577 bytes, at most 1048576 are read")
    assert found["a"].data == b"1"
    assert peak < 10 << 20


def test_index(make_tar):
    path = make_tar([("kö/lang.jpg", b"1"), ("kö/lang.cls", b"1"), ("b.png", b"1"), ("longer-but-bad.cls", b"1")])
    index = index_tar(path)
    assert (index.samples, index.faulty, index.longest_key, index.bytes) == (
        3,
        1,
        len("kö/lang".encode()),
        path.stat().st_size,
    )


NAMES = st.builds(
    "{}{}.{}".format, st.sampled_from(["", "x/"]), st.sampled_from("abc"), st.sampled_from(["jpg", "png", "cls", "JPG"])
)


@settings(max_examples=300)
@given(st.lists(NAMES, max_size=12))
def test_grouping_against_a_plain_statement_of_the_rules(names):
    """A key is a sample if and only if its members are one run, of different extensions, with exactly one image."""
    keys = [name.split(".")[0] for name in names]
    expected = {}
    for key in dict.fromkeys(keys):
        places = [i for i, other in enumerate(keys) if other == key]
        extensions = [names[i].split(".")[1].lower() for i in places]
        together = places == list(range(places[0], places[-1] + 1))
        images = [e for e in extensions if e != "cls"]
        expected[key] = together and len(set(extensions)) == len(extensions) and len(images) == 1
    found = grouped([Member(name, 512 * i, 1) for i, name in enumerate(names)])
    assert [(item.key, not isinstance(item, Quarantined)) for item in found] == list(expected.items())


# -- labels


def sample(**fields):
    return TarSample(key="k", data=b"", extension="png", fields=fields)


@pytest.mark.parametrize(
    ("fields", "label"),
    [
        ({"cls": b"2"}, 2),
        ({"cls": b" 0\n"}, 0),
        ({"cls": b"1", "json": b'{"label": 2}', "txt": b"a caption"}, 1),
        ({"json": b'{"label": 2}'}, 2),
        ({"json": b'{"cls": 1, "url": "x"}'}, 1),
        ({"json": b'{"label": "bee"}'}, 1),
        ({"json": b'{"class": "cat"}'}, 2),
        ({"json": b'{"width": 3}', "txt": b"cat\n"}, 2),
        ({"json": b'{"class": null}'}, -1),
    ],
)
def test_labels(fields, label):
    assert label_of(sample(**fields), CLASSES) == label


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"cls": b"3"}, "cls says 3, but labels run from 0 to 2"),
        ({"cls": b"-1"}, "cls says -1, but labels run from 0 to 2"),
        ({"cls": b"1.0"}, "not a whole number"),
        ({"cls": b"cat"}, "not a whole number"),
        ({"cls": b""}, "not a whole number"),
        ({"cls": "٣".encode()}, "not a whole number"),  # a digit, but not a decimal one of ours
        ({"cls": b"9" * 5000}, "not a whole number"),
        ({"cls": b"\xff"}, "not UTF-8"),
        ({"json": b'{"label": true}'}, "not a whole number"),
        ({"json": b'{"label": 1.5}'}, "not a whole number"),
        ({"json": b'{"label": [1]}'}, "not a whole number"),
        ({"json": b'{"label": 7}'}, "json label says 7"),
        ({"json": b"{"}, "json cannot be read"),
        ({"json": b"[" * 100_000}, "json cannot be read"),
        ({"json": b"[1]"}, "json is not an object"),
        ({"txt": b"dog"}, "txt says 'dog', which is none of the 3 classes"),
        ({"json": json.dumps({"class": "x" * 500}).encode()}, "none of the 3 classes"),
        ({}, "label missing"),
        ({"json": b"{}"}, "label missing"),
    ],
)
def test_labels_that_name_no_class(fields, reason):
    with pytest.raises(BadLabel, match=reason) as caught:
        label_of(sample(**fields), CLASSES)
    assert len(str(caught.value)) < 200


def test_an_absent_label_can_be_allowed_but_a_wrong_one_cannot():
    assert label_of(sample(), CLASSES, absent="unlabelled") == -1
    with pytest.raises(BadLabel):
        label_of(sample(cls=b"3"), CLASSES, absent="unlabelled")
