"""Images in folders: the folder is the class."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from pathlib import Path

from pipeline.datasets._listed import ListedDataset
from pipeline.datasets._listing import Entry
from pipeline.errors import UserError
from pipeline.images.grouping import IMAGE_EXTENSIONS

#: Folders that a system keeps among a user's own: thumbnails, what was deleted, what was found after a crash.
OF_THE_SYSTEM = frozenset(
    {"@eadir", "#recycle", "#snapshot", "$recycle.bin", "system volume information", "lost+found", "__macosx"}
)
HIDDEN, SYSTEM = "hidden", "folder of the system, such as @eaDir"


def not_the_users(path: str) -> str:
    """Why an image at ``path``, folders included, is none of a user's; "" = it is."""
    *folders, name = (part for part in path.split("/") if part not in (".", ".."))
    if any(part.startswith(".") for part in (*folders, name)):
        return HIDDEN
    return SYSTEM if any(folder.lower() in OF_THE_SYSTEM for folder in folders) else ""


class FolderDataset(ListedDataset):
    """Every folder that directly holds images is a class, called by its path below the root (``science/astronomy``).

    Symbolic links are followed, to files and to folders. Hidden files and folders are passed over, and
    those of the system.
    """

    remedy = "Set dataset.root to the folder that holds one folder a class."

    def class_of(self, source: Path) -> str:
        """The class of an image that lies at ``source`` below :meth:`folder`."""
        return source.parent.as_posix()

    def not_wanted(self, source: Path) -> str:
        """Why the image at ``source`` below :meth:`folder` is left out; "" = it is not."""
        return ""

    def check(self) -> None:
        """There must be a folder with at least one class of images."""
        folder = self.folder()
        if not len(self):
            about = "; ".join(f"{count} × {reason}" for reason, count in self.left_out().items())
            found = f"{about}. " if about else ""
            raise UserError(f"{self.config.name}: no images in class folders below {folder}. {found}{self.advice}")

    def find(self, passed_over: Counter[str]) -> Iterator[Entry]:
        """Walk the folders, in sorted order."""
        root = self.folder()
        for path in _files(root, (), passed_over):
            entry = self._entry(path, root, passed_over)
            if entry is not None:
                yield entry

    def _entry(self, path: Path, root: Path, passed_over: Counter[str]) -> Entry | None:
        source = path.relative_to(root)
        extension = path.suffix.lower().removeprefix(".")
        if extension not in IMAGE_EXTENSIONS:
            passed_over["no image by its extension"] += 1
        elif len(source.parts) == 1:
            passed_over["in no class folder"] += 1
        elif not source.as_posix().isprintable():
            passed_over["name is not printable UTF-8"] += 1
        elif reason := self.not_wanted(source):
            passed_over[reason] += 1
        else:
            return Entry(self.class_of(source), source.as_posix(), extension)
        return None

    def read(self, entry: Entry) -> bytes:
        """The bytes of the file."""
        return (self.folder() / entry.source).read_bytes()

    def identity(self, entry: Entry) -> Hashable:
        """The file itself, whatever links lead to it."""
        status = (self.folder() / entry.source).stat()
        return status.st_dev, status.st_ino


class FlatFolders(FolderDataset):
    """Of collections that people unpack in many ways: the folders of the classes lie side by side, and nothing deeper.

    Else a copy in a folder that is not known would have other keys and another part, and two copies twice the classes.
    """

    def find(self, passed_over: Counter[str]) -> Iterator[Entry]:
        """As they are found; an image that lies deeper is an error."""
        for entry in super().find(passed_over):
            if entry.source.count("/") > 1:
                raise UserError(
                    f"{self.config.name}: {self.folder()} holds {entry.source}, which is not of the form "
                    f"<class>/<image>. Set dataset.root to the one folder whose folders are the classes. {self.advice}"
                )
            yield entry


def _files(folder: Path, above: tuple[tuple[int, int], ...], passed_over: Counter[str]) -> Iterator[Path]:
    status = folder.stat()
    here = (status.st_dev, status.st_ino)
    if here in above:
        passed_over["folder that links to one above it"] += 1
        return
    for path in sorted(folder.iterdir()):
        if path.name.startswith("."):
            passed_over[HIDDEN] += 1
        elif path.name.lower() in OF_THE_SYSTEM and path.is_dir():
            passed_over[SYSTEM] += 1
        elif path.is_dir():
            yield from _files(path, (*above, here), passed_over)
        elif path.is_file():
            yield path
        else:
            passed_over["broken link, or no regular file"] += 1
