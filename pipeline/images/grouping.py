"""Members of a WebDataset tar → samples: which members belong together, and which of them is the image.

The rule is WebDataset's: a sample is a run of members whose names agree up to the first dot of the base name
(``animals/cat_01.png``, ``animals/cat_01.cls``). Dots of folders mean nothing.

Names with more dots (``cat.v2.png``, ``cat.v2.cls``) are not lost: where no member of a run is an image by that rule,
names are read up to their last dot, and every image with the label of the same stem is a sample of its own, whose key
is that stem (``cat.v2``). A label that stands for several such images (``cat.left.png``, ``cat.right.png``,
``cat.cls``) does not say which is meant: that run is set aside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipeline.faults import Quarantined
from pipeline.images.archive import Member, printable

#: Extensions of members and files that are images, in lower case; what they hold is decided by their content.
IMAGE_EXTENSIONS = frozenset({"jpg", "jpeg", "png", "webp", "gif", "bmp", "tif", "tiff"})
LABEL_EXTENSIONS = ("cls", "json", "txt")
#: Larger members are not read: an uncompressed image of that size has more pixels than are decoded, mostly.
MAX_IMAGE_BYTES = 256 << 20
MAX_LABEL_BYTES = 1 << 20
#: Why a sample is set aside whose members have others between them.
APART = "its members do not lie together: the key repeats, or samples are interleaved"


@dataclass(frozen=True, kw_only=True)
class Group:
    """One sample: its image, and its label members by extension."""

    key: str
    image: Member
    extension: str
    labels: Mapping[str, Member]


def grouped(found: Sequence[Member]) -> list[Group | Quarantined]:
    """Members → samples, in the order in which their keys first appear; every key comes out exactly once.

    Hidden files (base name begins with a dot: ``.DS_Store``, ``._a.jpg``) belong to no sample and are passed over.
    """
    runs: dict[str, dict[str, Member]] = {}
    faults: dict[str, str] = {}
    previous: str | None = None
    for member in found:
        name = member.name.removeprefix("./")
        if name.rpartition("/")[2].startswith(".") and ".." not in name.split("/"):
            continue
        key, extension = _key_of(name)
        key = printable(key)
        fault = _name_fault(name) or member.fault
        if not extension:
            fault = fault or "its name has no extension"
        if key in runs and key != previous:
            fault = fault or APART
        elif extension in runs.get(key, {}):
            fault = fault or f"two members of this key end in .{printable(extension)}"
        if fault:
            faults.setdefault(key, fault)
        runs.setdefault(key, {})[extension] = member
        previous = key
    samples: list[Group | Quarantined] = []
    for key, parts in runs.items():
        samples += [Quarantined(key=key, reason=faults[key])] if key in faults else _samples(key, parts)
    return samples


def _key_of(name: str) -> tuple[str, str]:
    """Key and extension of a member's name, the last part of it in lower case; no extension gives ""."""
    folder, slash, base = name.rpartition("/")
    stem, _, extension = base.partition(".")
    inner, dot, last = extension.rpartition(".")
    return f"{folder}{slash}{stem}", f"{inner}{dot}{last.lower()}"


def _name_fault(name: str) -> str:
    if printable(name) != name:
        return "its name is not UTF-8"
    if not name.isprintable():
        return "its name has control characters"
    if name.startswith("/"):
        return "its name is an absolute path"
    if ".." in name.split("/"):
        return "its name leads out of the tar (..)"
    return ""


def _samples(key: str, parts: Mapping[str, Member]) -> list[Group | Quarantined]:
    """The samples of one run; only names with further dots make more than one."""
    images = [extension for extension in parts if _last(extension) in IMAGE_EXTENSIONS]
    shared = {name: parts[name] for name in LABEL_EXTENSIONS if name in parts}
    if any(extension in IMAGE_EXTENSIONS for extension in images):
        return [_sample(key, parts)]
    if not images or (len(images) > 1 and shared):
        return [_no_one_image(key, images, parts)]
    stems: dict[str, dict[str, Member]] = {}
    for extension, member in parts.items():
        stem, _, last = extension.rpartition(".")
        if stem and last in (*IMAGE_EXTENSIONS, *LABEL_EXTENSIONS):
            stems.setdefault(stem, dict(shared))[last] = member
    return [_sample(f"{key}.{stem}", of_stem) for stem, of_stem in stems.items()]


def _last(extension: str) -> str:
    return extension.rpartition(".")[2]


def _sample(key: str, parts: Mapping[str, Member]) -> Group | Quarantined:
    images = [extension for extension in parts if extension in IMAGE_EXTENSIONS]
    if len(images) != 1:
        return _no_one_image(key, images, parts)
    (extension,) = images
    labels = {name: parts[name] for name in LABEL_EXTENSIONS if name in parts}
    limits = {extension: MAX_IMAGE_BYTES, **dict.fromkeys(labels, MAX_LABEL_BYTES)}
    for name, limit in limits.items():
        if parts[name].size > limit:
            return Quarantined(key=key, reason=f"its {name} has {parts[name].size} bytes, at most {limit} are read")
    return Group(key=key, image=parts[extension], extension=extension, labels=labels)


def _no_one_image(key: str, images: Sequence[str], parts: Mapping[str, Member]) -> Quarantined:
    what, names = ("several images for one key", images) if images else ("no image among its members", [*parts])
    return Quarantined(key=key, reason=f"{what}: {', '.join(sorted(names))}")
