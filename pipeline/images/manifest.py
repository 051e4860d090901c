"""The manifest of packed tars: what each tar holds, the class names that the labels index, and where it came from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from pipeline.annotations import FILE as ANNOTATIONS
from pipeline.annotations import Annotations, load_annotations
from pipeline.config import config, parse, to_plain
from pipeline.errors import DamagedError, UserError
from pipeline.files import sha256_file
from pipeline.places import Place
from pipeline.sealed import read_open, write_sealed

FILE = "manifest.json"
TARS = "tars"  # folder of the tars, beside the manifest
FORMAT = 1


@config
class TarRecord:
    """One finished tar."""

    name: str  # file name
    samples: Annotated[int, Field(ge=0)]
    bytes: Annotated[int, Field(ge=0)]
    sha256: str  # hex, of the whole file
    longest_key: Annotated[int, Field(ge=0)]  # in bytes of UTF-8


@config
class Source:
    """Where the images come from; as :class:`pipeline.datasets.base.About` has it."""

    kind: str
    name: str
    title: str
    source: str
    licence: str
    citation: str


@config
class Manifest:
    """All of a packed collection. It depends on the images alone, not on where they lay: same images, same bytes."""

    format: Annotated[int, Field(ge=FORMAT, le=FORMAT)] = FORMAT
    dataset: Source
    class_names: tuple[str, ...]  # the index of a name is its label
    left_out: Mapping[str, int]  # images that the reader left out on purpose, by reason
    annotations: str | None = None  # sha256 of annotations.npz beside the manifest; none: there is no such file
    tars: tuple[TarRecord, ...]

    @property
    def samples(self) -> int:
        """Number of samples in all tars."""
        return sum(tar.samples for tar in self.tars)


def load_manifest(folder: Place) -> Manifest:
    """Read ``<folder>/manifest.json``.

    Raises:
        UserError: there is none, it is damaged, or it is of another format.
    """
    path = folder / FILE
    if not path.is_file():
        raise UserError(f"no {FILE} in {folder}: packing is not finished there. Run: submit stage=pack")
    return parse(Manifest, read_open(path), str(path))


def save_manifest(manifest: Manifest, folder: Place) -> None:
    """Write ``<folder>/manifest.json``, atomically."""
    values = to_plain(manifest)
    write_sealed(folder / FILE, {name: value for name, value in values.items() if value is not None})


def packed_annotations(folder: Place) -> Annotations | None:
    """What packing kept of the images beyond labels; None if there was nothing.

    Raises:
        UserError: the file is missing or is not what was written.
    """
    digest = load_manifest(folder).annotations
    if digest is None:
        return None
    path = folder / ANNOTATIONS
    if not path.exists() or sha256_file(path) != digest:
        raise UserError(f"{path} is not what was written. Run: submit verify stage=pack, and then submit stage=pack")
    return load_annotations(folder)


def verify_manifest(folder: Place) -> str:
    """What is wrong with the manifest or the annotations beside it; "" if nothing is. A bad manifest is withdrawn."""
    manifest, annotations = folder / FILE, folder / ANNOTATIONS
    if not manifest.exists():
        return ""
    try:
        digest = load_manifest(folder).annotations
    except DamagedError:
        manifest.unlink()
        return f"{manifest} is damaged"
    if digest is None or (annotations.exists() and sha256_file(annotations) == digest):
        return ""
    manifest.unlink()
    return f"{annotations} is not what was written"
