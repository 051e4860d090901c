"""The members of one tar archive, from its headers, with no tolerance for an archive that is not whole.

``tarfile`` ends quietly at a damaged header that is not the first, at a cut between members, and before a second
archive joined to the first; so where it ends is checked against the end-of-archive blocks.
"""

from __future__ import annotations

import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from pipeline.errors import UserError
from pipeline.stale import ReplacedError, SteadyFile, again_if_stale

END = 2 * tarfile.BLOCKSIZE  # the end-of-archive mark: two blocks of zeros (POSIX.1-2017, pax, "ustar Interchange")
MIB = 1 << 20


class BrokenTar(UserError):  # noqa: N818
    """The tar is not whole; the message names the byte where it broke."""


def _broken(path: Path, byte: int, what: str) -> BrokenTar:
    return BrokenTar(f"{path}: broken at byte {byte}: {what}. Copy or make this tar again.")


@dataclass(frozen=True, slots=True)
class Member:
    """One member: its name, where its data lie in the tar, and why it cannot be read as a file ("" = it can)."""

    name: str
    start: int
    size: int
    fault: str = ""


@again_if_stale
def members(path: Path) -> list[Member]:
    """All files in the tar, in order, from its headers.

    Raises:
        BrokenTar: a header is damaged, the file ends too early, or something follows the end of the archive.
        UserError: there is no such file.
    """
    if not path.is_file():
        raise UserError(f"no tar at {path}. It may have been moved: check the folder, then give the same command.")
    with path.open("rb") as file:
        found: list[Member] = []
        offset = 0  # of the header that is read next
        try:
            tar = tarfile.TarFile(fileobj=file, mode="r", encoding="utf-8", errors="surrogateescape")
            while (info := tar.next()) is not None:
                if info.size < 0 or tar.offset <= offset:
                    raise _broken(path, offset, "the header gives an impossible size")
                offset = tar.offset
                if not info.isdir():
                    found.append(Member(info.name, info.offset_data, info.size, _kind_fault(info)))
        except (tarfile.TarError, ValueError, OverflowError) as error:
            if isinstance(error, BrokenTar):
                raise
            raise _unreadable(path, offset, found, str(error)) from None
        _check_end(path, file, offset, found)
    return found


def _kind_fault(info: tarfile.TarInfo) -> str:
    if info.issparse():
        return "a sparse file, which is not supported"
    return "" if info.isreg() else "a link or device in the tar, not a file"


def _unreadable(path: Path, offset: int, found: list[Member], error: str) -> BrokenTar:
    size = path.stat().st_size
    if size < offset and found:
        last = found[-1]
        until = last.start + last.size
        return _broken(path, size, f"the file ends inside '{printable(last.name)}' (bytes {last.start} to {until})")
    with path.open("rb") as file:
        packed = " (gzip-compressed: unpack it first)" if file.read(2) == b"\x1f\x8b" else ""
    return _broken(path, offset, f"no readable tar header there ({error}){packed}")


def _check_end(path: Path, file: BinaryIO, offset: int, found: list[Member]) -> None:
    file.seek(offset)
    mark = file.read(END)
    if len(mark) < END:
        if any(mark):
            raise _broken(path, offset + len(mark), "the file ends inside a header")
        if path.stat().st_size < offset:
            raise _unreadable(path, offset, found, "")
        raise _broken(path, offset + len(mark), "the file ends without the two end-of-archive blocks")
    if any(mark):
        raise _broken(path, offset, "neither a header nor the end-of-archive blocks")
    place = offset + END
    while rest := file.read(MIB):
        if any(rest):
            raise _broken(path, place, "data after the end of the archive (two tars joined?)")
        place += len(rest)


def printable(name: str) -> str:
    """A member's name as text that can be stored and shown: bytes that are no UTF-8 become escapes."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def read_member(file: SteadyFile, member: Member) -> bytes:
    """The bytes of a member of an open tar."""
    try:
        data = file.read_at(member.start, member.size)
    except ReplacedError as error:
        raise BrokenTar(f"{error}. Give the same command.") from None
    if len(data) < member.size:
        raise _broken(file.path, member.start + len(data), f"the file ends inside '{printable(member.name)}'")
    return data
