"""The manifest of packed tars: what each tar holds, the class names that the labels index, and where it came from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from pipeline.config import config, parse, to_plain
from pipeline.errors import UserError
from pipeline.files import read_json, write_json
from pipeline.places import Place

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
    tars: tuple[TarRecord, ...]

    @property
    def samples(self) -> int:
        """Number of samples in all tars."""
        return sum(tar.samples for tar in self.tars)


def load_manifest(folder: Place) -> Manifest:
    """Read ``<folder>/manifest.json``.

    Raises:
        UserError: there is none, or it is of another format.
    """
    path = folder / FILE
    if not path.is_file():
        raise UserError(f"no {FILE} in {folder}: packing is not finished there. Run: submit stage=pack")
    return parse(Manifest, read_json(path), str(path))


def save_manifest(manifest: Manifest, folder: Place) -> None:
    """Write ``<folder>/manifest.json``, atomically."""
    write_json(folder / FILE, to_plain(manifest))
