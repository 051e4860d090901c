"""Records that show whether they are whole: JSON files that hold a digest of the rest of themselves.

A flipped bit anywhere in one is found when it is read: if it changes what the record says, the seal does not fit; if it
does not, the bytes are not those that the same values are written as.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pipeline.digests import digest
from pipeline.errors import DamagedError
from pipeline.files import json_bytes, read_bytes, write_bytes
from pipeline.places import Place

SEAL = "seal"


def write_sealed(path: Place, plain: Mapping[str, Any], *, sort_keys: bool = True) -> None:
    """Write a record atomically and durably; the same values give the same bytes.

    ``sort_keys=False`` is for :func:`read_open` alone: the order of the keys says something.
    """
    read_back = json.loads(
        json_bytes(plain)
    )  # keys are strings then, and tuples are lists, as whoever reads finds them
    write_bytes(path, json_bytes({**plain, SEAL: digest(read_back)}, sort_keys=sort_keys))


def read_sealed(path: Place) -> dict[str, Any]:
    """What :func:`write_sealed` was given.

    Raises:
        DamagedError: the bytes are not those that were written.
        FileNotFoundError: there is no such file.
    """
    return unseal(read_bytes(path), path)


def unseal(data: bytes, path: Place) -> dict[str, Any]:
    """What :func:`write_sealed` was given, from the bytes it wrote to ``path``.

    Raises:
        DamagedError: these are not the bytes that were written.
    """
    try:
        plain: dict[str, Any] = json.loads(data)
        seal = plain.pop(SEAL)
        whole = seal == digest(plain) and data == json_bytes({**plain, SEAL: seal})
    except (ValueError, LookupError, TypeError, AttributeError):
        whole = False
    if not whole:
        raise _damaged(path)
    return plain


def read_open(path: Place) -> dict[str, Any]:
    """What :func:`write_sealed` was given, keys in the order of the file; a record that has no seal, as it stands.

    For records that others read too, and that there were before they had a seal. A change that leaves the values as
    they are (white space) is not looked for.

    Raises:
        DamagedError: it cannot be read, or its values are not those that were written.
        FileNotFoundError: there is no such file.
    """
    data = read_bytes(path)
    try:
        plain: dict[str, Any] = json.loads(data)
        seal = plain.pop(SEAL, None)
    except (ValueError, TypeError, AttributeError):
        raise _damaged(path) from None
    if seal is not None and seal != digest(plain):
        raise _damaged(path)
    return plain


def _damaged(path: Place) -> DamagedError:
    return DamagedError(
        f"{path}: the record is damaged, or of an older version. `submit verify` with the same settings finds what "
        "is wrong and gives the command that repairs it."
    )
