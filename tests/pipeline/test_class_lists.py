"""Lists by name, file and value; matching by name."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.class_lists import TIMM_SUBSETS, WNID, Mismatch, class_list, match_classes
from pipeline.errors import UserError

WHERE = "dataset.class_list"
SIZES = {  # as their makers state them
    "imagenet1k": 1000,
    "imagenet12k": 11821,
    "imagenet21k_google": 21843,
    "imagenet21k_fall11": 21841,
    "imagenet21k_p_fall11": 11221,
    "imagenet22k_microsoft": 21842,
}


@pytest.mark.parametrize("name", TIMM_SUBSETS)
def test_known_lists(name: str) -> None:
    names = class_list(name, WHERE)
    assert len(set(names)) == len(names) == SIZES[name]
    assert all(WNID.fullmatch(wnid) for wnid in names)
    assert names == class_list(TIMM_SUBSETS[name], WHERE)


def test_of_imagenet() -> None:
    """The first of the 1,000 is the tench; all 1,000 but one renamed synset are among the 21,843."""
    thousand, google = class_list("imagenet1k", WHERE), class_list("imagenet21k_google", WHERE)
    assert (thousand[0], thousand[-1]) == ("n01440764", "n15075141")  # tench, toilet tissue
    result = match_classes(thousand, google)
    assert isinstance(result, Mismatch)
    assert result.missing == ((850, "n04399382"),)  # teddy
    assert isinstance(match_classes(class_list("imagenet12k", WHERE), google), tuple)


def test_a_list_that_nobody_ships() -> None:
    with pytest.raises(UserError, match=r"dataset\.class_list: 'imagenet21k_w21': the 19,167 classes .*to that file\."):
        class_list("imagenet21k_w21", WHERE)


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "classes.txt"
    path.write_text("oak\n ash \r\nyew\n", encoding="utf-8-sig")  # as some editors begin a file
    assert class_list(str(path), WHERE) == class_list(path, WHERE) == class_list(["oak", "ash", "yew"], WHERE)
    path.write_text("")
    assert class_list(path, WHERE) == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"oak\n\nash\n", r"classes\.txt: the name at position 1 \(counted from 0\) is empty"),
        (b"oak\nash\noak\n", r"classes\.txt: 'oak' stands at position 0 and again at 2"),
        (b"\xff\xfe", r"classes\.txt is not UTF-8 text"),
    ],
)
def test_a_bad_file(tmp_path: Path, text: bytes, message: str) -> None:
    (tmp_path / "classes.txt").write_bytes(text)
    with pytest.raises(UserError, match=message):
        class_list(tmp_path / "classes.txt", WHERE)


def test_an_unknown_name() -> None:
    with pytest.raises(
        UserError, match=r"no file there, .*Did you mean 'imagenet21k_google'\? Valid: .*imagenet21k_w21"
    ):
        class_list("imagenet21k_goggle", WHERE)


@given(st.lists(st.text(min_size=1, max_size=3), unique=True, min_size=1), st.data())
def test_matches_by_name(theirs: list[str], data: st.DataObject) -> None:
    ours = data.draw(st.lists(st.sampled_from(theirs), unique=True))
    indices = match_classes(ours, theirs)
    assert isinstance(indices, tuple)
    assert [theirs[i] for i in indices] == ours


def test_what_does_not_match() -> None:
    result = match_classes(["oak", "elm", "ash", "fir"], ["ash", "oak", "yew"])
    assert result == Mismatch(ours=4, theirs=3, missing=((1, "elm"), (3, "fir")))
    assert not result.disjoint
    assert str(result) == (
        "2 of the 4 classes of the labels are not among the 3 classes of the classifier; "
        "by position in the labels' list: 1: 'elm', 3: 'fir'."
    )


@pytest.mark.parametrize(
    ("ours", "theirs", "note"),
    [
        (["oak", "ash"], ["n01440764"], "The classifier's classes are WordNet ids (n01440764), the labels' are not."),
        (["n01440764"], ["oak", "ash"], "The labels' classes are WordNet ids (n01440764), the classifier's are not."),
        ([f"c{i}" for i in range(9)], ["a"], "0: 'c0', 1: 'c1', 2: 'c2', 3: 'c3', 4: 'c4', …."),
        (["oak"], [], "1 of the 1 classes of the labels are not among the 0 classes"),
    ],
)
def test_disjoint(ours: list[str], theirs: list[str], note: str) -> None:
    result = match_classes(ours, theirs)
    assert isinstance(result, Mismatch)
    assert result.disjoint
    assert note in str(result)
