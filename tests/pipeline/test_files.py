"""What a killed writer leaves is swept away; what another one writes right now is not."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pipeline.files import (
    PARTIAL,
    STRAY_SECONDS,
    append_text,
    atomic_file,
    move_folder,
    sweep_partials,
    temporary_folder,
    write_bytes,
)

KILLED = """
import os, signal, sys
from pathlib import Path
from pipeline.files import atomic_file
with atomic_file(Path(sys.argv[1])) as file:
    file.write(b"half")
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_writers_file_is_swept_and_a_living_ones_is_not(tmp_path: Path) -> None:
    target = tmp_path / "000001.json"
    subprocess.run([sys.executable, "-c", KILLED, str(target)], cwd=Path.cwd(), check=False)
    [stray] = tmp_path.iterdir()
    assert stray.name.startswith("000001.json.")
    assert stray.name.endswith(PARTIAL)
    with atomic_file(target) as file:
        assert sweep_partials(tmp_path, "another") == 0
        assert sweep_partials(tmp_path) == 1
        assert not stray.exists()
        file.write(b"whole")
    assert [path.name for path in tmp_path.iterdir()] == ["000001.json"]
    assert target.read_bytes() == b"whole"


def test_another_machines_file_is_stray_after_an_hour(tmp_path: Path) -> None:
    partial = tmp_path / f"a.json.elsewhere-{os.getpid()}-0123{PARTIAL}"
    partial.write_bytes(b"half")
    assert sweep_partials(tmp_path) == 0
    before = partial.stat().st_mtime - STRAY_SECONDS - 1
    os.utime(partial, (before, before))
    assert sweep_partials(tmp_path) == 1


def test_writing_goes_on_while_another_process_writes_the_same_file(tmp_path: Path) -> None:
    """Both are whole; the later one stands."""
    target = tmp_path / "a"
    with atomic_file(target) as slow:
        slow.write(b"slow")
        sweep_partials(tmp_path)
        write_bytes(target, b"quick")
        assert target.read_bytes() == b"quick"
    assert target.read_bytes() == b"slow"


KILLED_IN_A_FOLDER = """
import os, signal, sys
from pathlib import Path
from pipeline.files import temporary_folder
with temporary_folder(Path(sys.argv[1])) as folder:
    (folder / "half").write_bytes(b"half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_writers_folder_is_swept_and_a_living_ones_is_not(tmp_path: Path) -> None:
    target = tmp_path / "model"
    subprocess.run([sys.executable, "-c", KILLED_IN_A_FOLDER, str(target)], cwd=Path.cwd(), check=False)
    [stray] = tmp_path.iterdir()
    assert (stray / "half").exists()
    with temporary_folder(target) as mine:
        assert sweep_partials(tmp_path) == 1
        assert list(tmp_path.iterdir()) == [mine]
    assert list(tmp_path.iterdir()) == []


def test_many_writers_of_one_folder_at_once_all_end_and_one_of_them_stands_whole(tmp_path: Path) -> None:
    target = tmp_path / "model"

    def write(writer: int) -> None:
        for _ in range(20):
            with temporary_folder(target) as made:
                for name in "ab":
                    (made / name).write_text(str(writer))
                move_folder(made, target)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(8)))
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert (target / "a").read_text() == (target / "b").read_text()


def test_a_folder_takes_the_place_of_one_of_which_something_is_open_on_nfs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There the open file stays in its folder until it is closed, and the folder cannot be removed."""
    target = tmp_path / "model"
    for text in ("old", "new"):
        with temporary_folder(target) as made:
            (made / "a").write_text(text)
            with monkeypatch.context() as patched:
                patched.setattr(os, "unlink", lambda path, **named: None)
                move_folder(made, target)
    assert (target / "a").read_text() == "new"


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP, errno.EPERM])
def test_where_folders_have_no_fsync_files_are_written_all_the_same(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = os.fsync

    def fsync(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(number, os.strerror(number))
        plain(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    write_bytes(tmp_path / "a", b"whole")
    assert (tmp_path / "a").read_bytes() == b"whole"
    with temporary_folder(tmp_path / "b") as made:
        move_folder(made, tmp_path / "b")
    assert (tmp_path / "b").is_dir()
    monkeypatch.setattr(os, "fsync", lambda descriptor: os.close(-1))  # EBADF of the file itself is an error
    with pytest.raises(OSError, match="Bad file descriptor"):
        write_bytes(tmp_path / "c", b"whole")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_full_disk_is_told_with_the_file_also_where_a_line_is_added() -> None:
    with pytest.raises(OSError, match="No space left on device") as caught:
        append_text(Path("/dev/full"), "line\n")
    assert caught.value.filename == "/dev/full"
