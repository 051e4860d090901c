"""Whatever the locale of a terminal: what it cannot show is a question mark, never a traceback."""

from __future__ import annotations

import io

import pytest

from cluster.submit import main


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "utf-8"])
def test_a_page_is_shown_in_every_locale(monkeypatch: pytest.MonkeyPatch, encoding: str) -> None:
    shown, wanted = io.BytesIO(), io.BytesIO()
    for buffer, name in ((wanted, "utf-8"), (shown, encoding)):
        monkeypatch.setattr("sys.stdout", io.TextIOWrapper(buffer, encoding=name, write_through=True))
        assert main(["--help", "head=elk"]) == 0
    assert "→" in wanted.getvalue().decode()
    assert shown.getvalue() == wanted.getvalue().decode().encode(encoding, "replace")


def test_a_path_that_is_no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.BytesIO()
    monkeypatch.setattr("sys.stderr", io.TextIOWrapper(shown, encoding="utf-8", write_through=True))
    assert main(["stage=pack", "experiment=caf\udce9"]) == 2
    assert b"caf" in shown.getvalue()
