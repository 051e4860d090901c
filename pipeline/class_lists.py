"""Class lists: their names for those of ImageNet, reading them, and matching the labels' with a classifier's by name.

Classes are compared by name, and ImageNet's names are WordNet ids (WNIDs, ``n01440764``), because several lists go by
"ImageNet-21k": 21,843 classes (Google's, of the AugReg and BiT heads), 21,841 (as published in fall 2011), 19,167 (as
published in winter 2021), 11,221 and 10,450 (the "processed" ones). A position in one of them means another class in
the next.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.discovery import unknown_name
from pipeline.errors import UserError
from pipeline.places import as_place
from pipeline.vision_packages import fitting_torch

# Name here → timm's name of it; timm carries the lists.
TIMM_SUBSETS = {
    "imagenet1k": "imagenet-1k",  # 1,000
    "imagenet12k": "imagenet-12k",  # 11,821: timm's own
    "imagenet21k_google": "imagenet-21k-goog",  # 21,843
    "imagenet21k_fall11": "imagenet-22k",  # 21,841
    "imagenet21k_p_fall11": "imagenet-21k-miil",  # 11,221
    "imagenet22k_microsoft": "imagenet-22k-ms",  # 21,842, the 1,000 first
}
# Lists that no library we use carries; a wrong guess at them would be worse than none.
ELSEWHERE = {
    "imagenet21k_w21": (
        "the 19,167 classes of ImageNet-21k as published in winter 2021 come with the data only: its folder holds one "
        "<WNID>.tar a class, so `ls winter21_whole | sed 's/\\.tar$//' > imagenet21k_w21.txt` writes the list"
    ),
}
WNID = re.compile(r"n\d{8}")
SHOWN = 5  # mismatches in a message


def class_list(choice: str | Path | Sequence[str], where: str) -> tuple[str, ...]:
    """The class names that ``choice`` stands for, in order.

    Args:
        choice: ``imagenet21k_google``, … (timm's names of them do as well), a text file with one name a line, or the
            names themselves. A known name goes before a file of that name.
        where: the key that holds it, for messages.

    Returns:
        The names; none for an empty file.

    Raises:
        UserError: neither a known name nor a file, a list that must be given as a file, a name that stands twice or is
            empty.
    """
    if not isinstance(choice, str | Path):
        return _checked(tuple(choice), where)
    name = str(choice)
    if name in TIMM_SUBSETS or name in TIMM_SUBSETS.values():
        return _of_timm(TIMM_SUBSETS.get(name, name))
    if name in ELSEWHERE:
        raise UserError(f"{where}: '{name}': {ELSEWHERE[name]}; then set {where} to that file.")
    if not as_place(choice).is_file():
        hint = unknown_name("class list", name, [*TIMM_SUBSETS, *ELSEWHERE])
        raise UserError(f"{where}: no file there, and {hint} Or a text file with one class name a line.")
    try:
        lines = as_place(choice).read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise UserError(f"{where}: {choice} is not UTF-8 text ({error}).") from error
    return _checked(tuple(line.strip() for line in lines), f"{where}: {choice}")


def _of_timm(subset: str) -> tuple[str, ...]:
    with fitting_torch():
        from timm.data.imagenet_info import ImageNetInfo  # brings torch along; readers of datasets do without

    return tuple(ImageNetInfo(subset).label_names())


def _checked(names: tuple[str, ...], where: str) -> tuple[str, ...]:
    seen: dict[str, int] = {}
    for position, name in enumerate(names):
        if not name:
            raise UserError(f"{where}: the name at position {position} (counted from 0) is empty.")
        if name in seen:
            raise UserError(f"{where}: '{name}' stands at position {seen[name]} and again at {position}.")
        seen[name] = position
    return names


@dataclass(frozen=True, kw_only=True)
class Mismatch:
    """Labels that a classifier has no class for.

    Attributes:
        ours: number of classes of the labels.
        theirs: number of classes of the classifier.
        missing: (position from 0, name) of each class of the labels that the classifier lacks.
        note: what may explain it; may be empty.
    """

    ours: int
    theirs: int
    missing: tuple[tuple[int, str], ...]
    note: str = ""

    @property
    def disjoint(self) -> bool:
        """Whether not one class is shared: then it is rather another task than a mistake."""
        return len(self.missing) == self.ours

    def __str__(self) -> str:
        shown = ", ".join(f"{position}: '{name}'" for position, name in self.missing[:SHOWN])
        more = ", …" if len(self.missing) > SHOWN else ""
        return (
            f"{len(self.missing):,} of the {self.ours:,} classes of the labels are not among the {self.theirs:,} "
            f"classes of the classifier; by position in the labels' list: {shown}{more}.{self.note}"
        )


def match_classes(ours: Sequence[str], theirs: Sequence[str]) -> tuple[int, ...] | Mismatch:
    """Label → class of a classifier, by name; the labels may know fewer classes, and in another order.

    Args:
        ours: class names of the labels.
        theirs: those of the classifier, no name twice.

    Returns:
        ``theirs.index(name)`` for each of ``ours``, or what is missing.
    """
    index = {name: i for i, name in enumerate(theirs)}
    missing = tuple((position, name) for position, name in enumerate(ours) if name not in index)
    if missing:
        return Mismatch(ours=len(ours), theirs=len(theirs), missing=missing, note=_note(missing, theirs))
    return tuple(index[name] for name in ours)


def _note(missing: Sequence[tuple[int, str]], theirs: Sequence[str]) -> str:
    ours_are, theirs_are = (
        [bool(WNID.fullmatch(name)) for name in names] for names in ((m[1] for m in missing), theirs)
    )
    if all(theirs_are) and theirs and not any(ours_are):
        return " The classifier's classes are WordNet ids (n01440764), the labels' are not."
    if all(ours_are) and not any(theirs_are) and theirs:
        return " The labels' classes are WordNet ids (n01440764), the classifier's are not."
    return ""
