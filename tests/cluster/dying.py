"""A stage with units that end the process that runs them; in a file of its own because each process imports it anew.

What a unit does is its id: ``dies`` always, ``dies-<n>-<file>`` the first n times, ``sleeps-<file>`` until it is ended,
anything else is done.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from cluster.executors import _side_by_side
from stages.base import Unit

_work = _side_by_side._work


class Dying:
    name = "dying"
    experiment = None

    def run(self, unit: Unit, progress: object) -> None:
        what, _, rest = unit.id.partition("-")
        if what == "dies":
            times, _, name = rest.partition("-")
            if name:
                with Path(name).open("a", encoding="utf-8") as file:
                    file.write("x")
                if Path(name).stat().st_size > int(times):
                    return
            os.kill(os.getpid(), signal.SIGKILL)
        if what == "sleeps":
            Path(rest).touch()
            time.sleep(60)


def work(*arguments: Any) -> None:
    """What runs in the process, with this stage for the real ones."""
    _side_by_side.make_stage = lambda name, experiment: Dying()  # type: ignore[assignment,return-value]
    _work(*arguments)
