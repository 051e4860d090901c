"""Records that show whether they are whole: JSON files that hold a digest of the rest of themselves.

A flipped bit anywhere in one is found when it is read: if it changes what the record says, the seal does not fit; if it
does not, the bytes are not those that the same values are written as.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pipeline.digests import digest
from pipeline.errors import UserError
from pipeline.files import json_bytes, write_bytes
from pipeline.places import Place, reaching

SEAL = "seal"


class DamagedError(UserError):
    """A record is not what was written."""


def write_sealed(path: Place, plain: Mapping[str, Any]) -> None:
    """Write a record atomically and durably; the same values give the same bytes."""
    write_bytes(path, json_bytes({**plain, SEAL: digest(plain)}))


def read_sealed(path: Place) -> dict[str, Any]:
    """What :func:`write_sealed` was given.

    Raises:
        DamagedError: the bytes are not those that were written.
        FileNotFoundError: there is no such file.
    """
    with reaching(path):
        data = path.read_bytes()
    return unseal(data, path)


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
        raise DamagedError(
            f"{path}: the record is damaged, or of an older version. `submit verify` with the same settings finds what "
            "is wrong and gives the command that repairs it."
        )
    return plain
