"""What a source holds, as arrays: millions of images take some 60 bytes each and no Python object."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Entry:
    """One image of the source.

    Attributes:
        class_name: its class.
        source: where it lies below the root, for people; printable.
        extension: lower case, without the dot.
        place: two numbers by which the reader finds it, where ``source`` does not say enough.
        key: where the source has keys of its own (all its entries then have one); "" = made of ``source``.
    """

    class_name: str
    source: str
    extension: str
    place: tuple[int, int] = (0, 0)
    key: str = ""


class Texts(Sequence[str]):
    """N texts one behind the other: text i is bytes ``ends[i - 1]`` to ``ends[i]`` of ``text``, UTF-8."""

    def __init__(self, text: Array, ends: Array) -> None:
        self.text = text  # uint8
        self.ends = ends  # (N) int64

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, index: Any) -> Any:
        index = int(index)
        start = int(self.ends[index - 1]) if index else 0
        return self.text[start : int(self.ends[index])].tobytes().decode()


class _Growing:
    """Texts while they come in."""

    def __init__(self) -> None:
        self._text = bytearray()
        self._ends = array("q")

    def append(self, text: str) -> None:
        self._text += text.encode()
        self._ends.append(len(self._text))

    def done(self) -> Texts:
        return Texts(np.frombuffer(self._text, np.uint8), np.frombuffer(self._ends, np.int64))


@dataclass(frozen=True, kw_only=True)
class Listing:
    """N images in the order in which they were found.

    Attributes:
        class_names: of all classes, in the order in which they first appear.
        extensions: likewise.
        class_N: int32, index into ``class_names``.
        extension_N: uint8, index into ``extensions``.
        place_N2: int64.
        sources: N texts.
        keys: N texts, or None where keys are made of the sources.
    """

    class_names: tuple[str, ...]
    extensions: tuple[str, ...]
    class_N: Array
    extension_N: Array
    place_N2: Array
    sources: Texts
    keys: Texts | None

    def __len__(self) -> int:
        return len(self.class_N)

    def __getitem__(self, index: int) -> Entry:
        first, second = self.place_N2[index].tolist()
        return Entry(
            class_name=self.class_names[self.class_N[index]],
            source=self.sources[index],
            extension=self.extensions[self.extension_N[index]],
            place=(first, second),
            key=self.keys[index] if self.keys is not None else "",
        )

    def __iter__(self) -> Iterator[Entry]:
        return (self[index] for index in range(len(self)))

    def arrays(self) -> dict[str, Array]:
        """All that is not a handful of words, by name; with :meth:`words` it makes the listing again."""
        arrays = {"class_N": self.class_N, "extension_N": self.extension_N, "place_N2": self.place_N2}
        arrays |= {"sources": self.sources.text, "sources_ends": self.sources.ends}
        return arrays | ({"keys": self.keys.text, "keys_ends": self.keys.ends} if self.keys is not None else {})

    def words(self) -> dict[str, Any]:
        """The rest."""
        return {"class_names": list(self.class_names), "extensions": list(self.extensions)}


def listing_of(arrays: Mapping[str, Array], words: Mapping[str, Any]) -> Listing:
    """The listing that :meth:`Listing.arrays` and :meth:`Listing.words` were taken of."""
    return Listing(
        class_names=tuple(words["class_names"]),
        extensions=tuple(words["extensions"]),
        class_N=arrays["class_N"],
        extension_N=arrays["extension_N"],
        place_N2=arrays["place_N2"],
        sources=Texts(arrays["sources"], arrays["sources_ends"]),
        keys=Texts(arrays["keys"], arrays["keys_ends"]) if "keys" in arrays else None,
    )


def gather(entries: Iterable[Entry]) -> Listing:
    """The entries as arrays; they are taken one by one and none is kept."""
    class_names, extensions = dict[str, int](), dict[str, int]()
    class_N, extension_N, place_N2 = array("i"), array("B"), array("q")
    sources, keys = _Growing(), _Growing()
    keyed = False
    for entry in entries:
        class_N.append(class_names.setdefault(entry.class_name, len(class_names)))
        extension_N.append(extensions.setdefault(entry.extension, len(extensions)))
        place_N2.extend(entry.place)
        sources.append(entry.source)
        if entry.key:
            keyed = True
            keys.append(entry.key)
    return Listing(
        class_names=tuple(class_names),
        extensions=tuple(extensions),
        class_N=np.frombuffer(class_N, np.int32),
        extension_N=np.frombuffer(extension_N, np.uint8),
        place_N2=np.frombuffer(place_N2, np.int64).reshape(-1, 2),
        sources=sources.done(),
        keys=keys.done() if keyed else None,
    )
