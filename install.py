"""Install with uv, in a fraction of the time that pip takes, from where pip would.

    .venv/bin/python install.py --editable '.[test]' …       # what `pip install` takes as well

uv does not read pip's settings (an index, certificates, constraints of this machine), so they are handed on. Where uv
cannot be had, or fails, pip does it. Nothing is left outside the environment: uv's cache lies in it for the time being,
so that files are linked and not copied.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

UV = "uv>=0.8,<1"
PIP = ("-m", "pip", "--disable-pip-version-check")
QUIET = () if sys.stderr.isatty() else ("--quiet",)  # uv has bars, then a line a package

FLAGS = {  # pip's setting: uv's flag; those with several values repeat it
    "index-url": "--default-index",
    "extra-index-url": "--index",
    "find-links": "--find-links",
    "constraint": "--constraints",
    "trusted-host": "--allow-insecure-host",
    "no-binary": "--no-binary",
    "only-binary": "--only-binary",
}
VARIABLES = {
    "cert": "SSL_CERT_FILE",
    "client-cert": "SSL_CLIENT_CERT",
    "proxy": "ALL_PROXY",
    "timeout": "UV_HTTP_TIMEOUT",
    "default-timeout": "UV_HTTP_TIMEOUT",
}


def main(arguments: Sequence[str]) -> int:
    """Install; gives the exit code."""
    if _with_uv(arguments):
        return 0
    print("install.py: uv did not do it; pip does", file=sys.stderr)
    return _run([sys.executable, *PIP, "install", "--quiet", "--no-compile", *arguments])


def settings(listed: str) -> dict[str, str]:
    """What ``pip config list`` says, by name: the environment before what is for ``install``, that before the rest."""
    order = {"global": 0, "install": 1, ":env:": 2}
    found: dict[str, tuple[int, str]] = {}
    for line in listed.splitlines():
        key, _, value = line.partition("=")
        where, _, name = key.rpartition(".")
        if where in order and order[where] >= found.get(name, (0, ""))[0]:
            found[name] = order[where], str(ast.literal_eval(value))
    return {name: value for name, (_, value) in found.items()}


def flags(found: Mapping[str, str]) -> list[str]:
    """Pip's settings as flags of uv."""
    given = [part for name, flag in FLAGS.items() for value in found.get(name, "").split() for part in (flag, value)]
    return [*given, "--no-index"] if found.get("no-index", "").lower() in {"1", "true", "yes", "on"} else given


def variables(found: Mapping[str, str]) -> dict[str, str]:
    """Pip's settings as environment variables of uv."""
    return {variable: found[name] for name, variable in VARIABLES.items() if name in found}


def _with_uv(arguments: Sequence[str]) -> bool:
    if _run([sys.executable, *PIP, "install", "--quiet", UV]):
        return False
    listed = subprocess.run([sys.executable, *PIP, "config", "list"], capture_output=True, text=True, check=False)
    found, cache = settings(listed.stdout), Path(sys.prefix) / "uv-cache"
    # pip takes the highest version of all indexes together
    how = ["--python", sys.executable, "--cache-dir", str(cache), "--index-strategy", "unsafe-best-match"]
    command = [sys.executable, "-m", "uv", "pip", "install", *QUIET, *how, *flags(found), *arguments]
    try:
        return _run(command, **variables(found)) == 0
    finally:
        shutil.rmtree(cache, ignore_errors=True)


def _run(command: Sequence[str], **more: str) -> int:
    return subprocess.run(command, env={**more, **os.environ}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
