"""Where files lie: a local path, or a URL of an object store or a web server.

A *place* is a :class:`pathlib.Path` or a :class:`RemotePath`. Both have the same names for joining, listing, reading
and deleting, so code that does only these need not ask which it holds. What is written goes through
:mod:`pipeline.files`. ``docs/object_stores.md`` says where credentials come from.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from glob import escape
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import pydantic
from upath.extensions import ProxyUPath

from pipeline.errors import UserError

#: Scheme → the package that speaks it, and the extra of ours that brings it.
SCHEMES = {
    "s3": ("s3fs", "s3"),
    "gs": ("gcsfs", "gcs"),
    "https": ("aiohttp", "http"),
    "http": ("aiohttp", "http"),
}
_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+)://(?P<rest>[^/].*)", re.DOTALL)
_ALMOST_URL = re.compile(rf"({'|'.join(SCHEMES)}):", re.IGNORECASE)
#: Exceptions of these packages are about the connection, the credentials or the server.
_SPEAKERS = frozenset({"aiobotocore", "aiohttp", "botocore", "fsspec", "gcsfs", "google", "s3fs"})


class RemotePath(ProxyUPath):
    """A URL with the names of :class:`pathlib.Path`: ``/``, ``name``, ``parent``, ``exists`` …

    Nothing is remembered of listings, so what another writer does is seen. A request that fails for another reason than
    a missing object raises UserError with that reason: never is "cannot be reached" taken for "is not there".
    """

    @property
    def writable(self) -> bool:
        """Whether the scheme has writing at all; http and https have not."""
        return not self.protocol.startswith("http")

    def _kind(self) -> str | None:
        with reaching(self):
            try:
                return str(self.fs.info(self.path)["type"])
            except FileNotFoundError:
                return None

    def exists(self, *, follow_symlinks: bool = True) -> bool:
        """Whether there is an object of this name, or objects below it."""
        return self._kind() is not None

    def is_file(self) -> bool:
        """Whether there is an object of this name."""
        return self._kind() == "file"

    def is_dir(self) -> bool:
        """Whether there are objects below this name."""
        return self._kind() == "directory"

    def iterdir(self) -> Iterator[RemotePath]:
        """What lies directly below, names sorted."""
        self._require_listing()
        with reaching(self):
            found = self.fs.ls(self.path, detail=False)
        for name in sorted({str(item).rstrip("/").rpartition("/")[2] for item in found if item != self.path}):
            yield self / name

    def glob(self, pattern: str, **_: Any) -> Iterator[RemotePath]:
        """What matches below, names sorted; ``pattern`` as of :meth:`pathlib.Path.glob`."""
        self._require_listing()
        root = self.path.rstrip("/")
        with reaching(self):
            found = self.fs.glob(f"{escape(root)}/{pattern}")
        for item in sorted(found):
            yield self / str(item)[len(root) + 1 :]

    def _require_listing(self) -> None:
        if not self.writable:
            raise UserError(f"{self}: {self.protocol} has no listing. Write out the names, e.g. {{000..146}}.tar.")

    def open(self, mode: str = "r", *args: Any, **options: Any) -> Any:
        """Open for reading bytes; writing goes through :mod:`pipeline.files`."""
        assert mode == "rb", "remote files are opened for reading bytes; write with pipeline.files"
        with reaching(self):
            return self.fs.open(self.path, mode)

    def read_bytes(self) -> bytes:
        """The whole object."""
        one_request = {"max_concurrency": 1} if self.protocol == "s3" else {}  # s3fs asks for the size first otherwise
        with reaching(self):
            data: bytes = self.fs.cat_file(self.path, **one_request)
        return data

    def read_text(self, encoding: str | None = None, *_: Any, **__: Any) -> str:
        """The whole object as text, UTF-8 by default."""
        return self.read_bytes().decode(encoding or "utf-8")

    def stat(self, *, follow_symlinks: bool = True) -> Any:
        """``st_size`` and what else the server tells."""
        with reaching(self):
            return super().stat(follow_symlinks=follow_symlinks)

    def unlink(self, missing_ok: bool = False) -> None:
        """Delete the object."""
        with reaching(self):
            try:
                self.fs.rm_file(self.path)
            except FileNotFoundError:
                if not missing_ok:
                    raise

    def mkdir(self, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        """Nothing: object stores have no folders."""


def as_place(value: Any) -> Path | RemotePath:
    """A path or URL as people write it; a URL's slashes stay as they are.

    Raises:
        UserError: no text, a scheme that is not known, a scheme whose package is not installed.
    """
    if isinstance(value, (Path, RemotePath)):
        return value
    if not isinstance(value, str) or not value:
        raise UserError(f"write a path or a URL, not {value!r}")
    url = _URL.fullmatch(value)
    if url is None:
        if "://" in value or _ALMOST_URL.match(value):
            raise UserError(f"'{value}' is no whole URL; write it like s3://bucket/folder")
        return Path(value)
    scheme = url["scheme"].lower()
    if scheme not in SCHEMES:
        raise UserError(f"'{value}': the scheme '{scheme}' is not known. Valid: {', '.join(SCHEMES)}, or a local path")
    package, extra = SCHEMES[scheme]
    if find_spec(package) is None:
        raise UserError(f"'{value}': {scheme}:// needs the package {package}. Run: pip install 'hedgerow[{extra}]'")
    options: dict[str, Any] = {} if package == "aiohttp" else {"use_listings_cache": False}
    return RemotePath(f"{scheme}://{url['rest'].rstrip('/')}", **options)


def _as_local(value: Any) -> Path:
    place = as_place(value)
    if not isinstance(place, Path):
        raise UserError("must be a local path, not a URL")
    return place


def as_output(value: Any) -> Path | RemotePath:
    """Like :func:`as_place`, for what is written.

    Raises:
        UserError: as there, or a web server.
    """
    place = as_place(value)
    if isinstance(place, RemotePath) and not place.writable:
        raise UserError(f"nothing can be written to {place.protocol}://; give a local path, s3:// or gs://")
    return place


#: Path or URL, as an annotation and as the type of a config's field.
Place: TypeAlias = Annotated[
    Path | RemotePath, pydantic.PlainValidator(as_place), pydantic.Field(title="path or URL (s3, gs, https)")
]
#: The same for what is written: no web server.
OutputPlace: TypeAlias = Annotated[
    Path | RemotePath, pydantic.PlainValidator(as_output), pydantic.Field(title="path or URL (s3, gs)")
]
#: A config's field that has to be local, because what reads it reads files.
LocalPath: TypeAlias = Annotated[Path, pydantic.PlainValidator(_as_local), pydantic.Field(title="path")]


def is_remote(place: Place) -> bool:
    """Whether ``place`` is a URL."""
    return isinstance(place, RemotePath)


@contextmanager
def reaching(place: Place) -> Iterator[None]:
    """Say in one line why a remote place cannot be reached; local errors and "no such object" pass as they are.

    Raises:
        UserError: no access, no credentials, no such bucket, no connection (after the retries of the library that
            speaks the protocol), or an answer that the server should not give.
    """
    try:
        yield
    except Exception as error:
        if not is_remote(place) or isinstance(error, UserError):
            raise
        if isinstance(error, FileNotFoundError) and "bucket does not exist" not in str(error):
            raise
        packages = {cls.__module__.partition(".")[0] for cls in type(error).__mro__}
        if not isinstance(error, OSError) and not packages & _SPEAKERS:
            raise
        raise UserError(f"{place}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, FileNotFoundError):
        return f"{text.rstrip('.')}. Check its name, or make the bucket first."
    if isinstance(error, PermissionError) or "credential" in text.lower():
        return f"no access ({text.rstrip('.')}). Check the credentials in the environment; see docs/object_stores.md."
    return f"cannot be reached ({text.rstrip('.')}). What is done stays done: the same command goes on."
