from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from cluster import demo

APT = """#!/bin/sh
echo "$@" >> "$LOG"
case "$*" in
  *Dir::State::Lists*download*) touch openclipart-png_1_all.deb ;;
  *download*) [ -e "$LISTS" ] || { echo "E: Unable to locate package"; exit 100; }; touch openclipart-png_1_all.deb ;;
esac
"""
DPKG = """#!/bin/sh
mkdir -p "$3/usr/share/openclipart/png/animals" && echo image > "$3/usr/share/openclipart/png/animals/cat.png"
"""


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """apt-get and dpkg-deb that fetch nothing, first on the path."""
    for name, text in (("apt-get", APT), ("dpkg-deb", DPKG)):
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("LOG", str(tmp_path / "log"))
    monkeypatch.setenv("LISTS", str(tmp_path / "lists"))
    return tmp_path


def test_fetch_gives_all_or_nothing_and_only_once(tools: Path) -> None:
    (tools / "lists").touch()
    root = tools / "data" / "openclipart"
    demo.fetch(root)
    assert [path.name for path in root.iterdir()] == ["animals"]
    assert list((tools / "data").iterdir()) == [root]
    demo.fetch(root)
    assert (tools / "log").read_text().count("download") == 1


def test_without_lists_of_the_machine_it_makes_its_own(tools: Path) -> None:
    demo.fetch(tools / "openclipart")
    assert [line.split()[-2:] for line in (tools / "log").read_text().splitlines() if "update" not in line] == [
        ["download", "openclipart-png"]
    ] * 2
    assert (tools / "openclipart" / "animals" / "cat.png").exists()


def test_half_unpacked_work_is_done_again(tools: Path) -> None:
    (tools / "lists").touch()
    left = tools / "openclipart.partial" / "unpacked" / "usr/share/openclipart/png/torn"
    left.mkdir(parents=True)
    demo.fetch(tools / "openclipart")
    assert [path.name for path in (tools / "openclipart").iterdir()] == ["animals"]


def test_without_apt_the_digits_take_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(demo.NotAvailableError, match="there is no apt-get"):
        demo.fetch(tmp_path / "openclipart")
    monkeypatch.setattr(demo, "WEIGHTS_MODULE", "no_such_module")
    assert demo.choose([]) == "demo_digits"
    assert "demo_digits" in capsys.readouterr().out
