"""uv is told what pip knows, and pip does what uv cannot."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import install

LISTED = """\
:env:.find-links='/wheels'
:env:.default-timeout='180'
global.cert='/etc/certs.pem'
global.extra-index-url='https://one.example/simple\\nhttps://two.example/simple'
global.find-links='/elsewhere'
global.no-index='false'
install.index-url='https://main.example/simple'
global.index-url='https://other.example/simple'
freeze.timeout='10'
"""


def test_settings_of_pip_become_those_of_uv() -> None:
    found = install.settings(LISTED)
    assert install.flags(found) == [
        *("--default-index", "https://main.example/simple"),
        *("--index", "https://one.example/simple", "--index", "https://two.example/simple"),
        *("--find-links", "/wheels"),
    ]
    assert install.variables(found) == {"SSL_CERT_FILE": "/etc/certs.pem", "UV_HTTP_TIMEOUT": "180"}
    assert install.flags({"no-index": "1", "find-links": "/a /b"}) == [
        *("--find-links", "/a", "--find-links", "/b"),
        "--no-index",
    ]
    assert install.settings("") == {}


def test_pips_own_listing_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "pip.conf"
    config.write_text("[global]\nindex-url = https://a.example/simple\n[install]\nfind-links =\n  /one\n  /two's\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(config))
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    command = [sys.executable, "-m", "pip", "config", "list"]
    found = install.settings(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert found["index-url"] == "https://a.example/simple"
    assert found["find-links"].split() == ["/one", "/two's"]


@pytest.mark.parametrize("uv_works", [True, False])
def test_where_uv_fails_pip_does_it(monkeypatch: pytest.MonkeyPatch, uv_works: bool) -> None:
    commands: list[list[str]] = []

    def run(command: list[str], **more: str) -> int:
        commands.append(command[1:])
        return int("uv" in command and not uv_works)

    monkeypatch.setattr(install, "_run", run)
    assert install.main(["-e", ".[demo]"]) == 0
    kinds = ["uv" if command[1] == "uv" else "pip" for command in commands]
    assert kinds == (["pip", "uv"] if uv_works else ["pip", "uv", "pip"])
    assert all(command[-2:] == ["-e", ".[demo]"] for command in commands[1:])
