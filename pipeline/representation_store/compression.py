"""Compressors of the inner chunks, by name: codecs that zarr v3 specifies, so that every reader of zarr knows them.

crc32c always comes last, over the compressed bytes: a flipped bit is found before anything is decompressed. The zstd of
Blosc gives other bytes with other numbers of threads; zarr sets it to one thread (``blosc.use_threads = False``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from zarr.abc.codec import BytesBytesCodec
    from zarr.codecs.blosc import CName, Shuffle

Compressor = Literal[
    "none", "zstd", "blosc-lz4-shuffle", "blosc-lz4-bitshuffle", "blosc-zstd-shuffle", "blosc-zstd-bitshuffle"
]
_BLOSC: Mapping[str, tuple[CName, Shuffle]] = {
    "blosc-lz4-shuffle": ("lz4", "shuffle"),
    "blosc-lz4-bitshuffle": ("lz4", "bitshuffle"),
    "blosc-zstd-shuffle": ("zstd", "shuffle"),
    "blosc-zstd-bitshuffle": ("zstd", "bitshuffle"),
}


def decompress(compressor: str, data: NDArray[np.uint8], into: NDArray[np.uint8]) -> None:
    """What :func:`codecs` compressed, without the checksum, back into as many bytes.

    Raises:
        ValueError: it is something else.
    """
    import numcodecs

    codec = numcodecs.Zstd() if compressor == "zstd" else numcodecs.Blosc()  # what they were made with is in the bytes
    try:
        codec.decode(data, into)
    except RuntimeError as error:
        raise ValueError(str(error)) from error


def codecs(compressor: str, level: int, dtype: str) -> list[BytesBytesCodec]:
    """What an inner chunk of an array of ``dtype`` goes through, in order, after it is bytes."""
    import numpy as np  # here, so that the names of compressors are known without them
    from zarr.codecs import BloscCodec, Crc32cCodec, ZstdCodec

    if compressor == "none":
        return [Crc32cCodec()]
    if compressor == "zstd":
        return [ZstdCodec(level=level, checksum=False), Crc32cCodec()]
    name, shuffle = _BLOSC[compressor]
    kind = np.dtype(dtype)
    typesize = 1 if kind.kind == "S" else kind.itemsize  # text has no bytes of higher and lower order
    return [BloscCodec(cname=name, clevel=level, shuffle=shuffle, typesize=typesize), Crc32cCodec()]
