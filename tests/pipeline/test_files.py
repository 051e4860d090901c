"""What a killed writer leaves is swept away; what another one writes right now is not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from pipeline.files import PARTIAL, STRAY_SECONDS, atomic_file, sweep_partials, write_bytes

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
