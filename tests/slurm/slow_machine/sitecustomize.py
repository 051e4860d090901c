"""Python imports this at its start when the folder is on PYTHONPATH: as long as a file is there, the machine is slow.

The file is named by SLOW_WHILE and holds two numbers: the seconds that each image takes to be opened, and those that
each file takes to be flushed. So a test can interrupt work in its middle, and then let it run on at full speed.
"""

import os
import time
from collections.abc import Callable
from typing import Any

from PIL import Image


def slow(call: Callable[..., Any], place: int) -> Callable[..., Any]:
    """``call`` after a while."""

    def slowly(*arguments: Any) -> Any:
        try:
            with open(os.environ["SLOW_WHILE"], encoding="utf-8") as file:  # noqa: PTH123 (pathlib need not be imported by every Python)
                time.sleep(float(file.read().split()[place]))
        except OSError:
            pass
        return call(*arguments)

    return slowly


Image.preinit()
Image.OPEN.update({name: (slow(opening, 0), accept) for name, (opening, accept) in Image.OPEN.items()})
os.fsync = slow(os.fsync, 1)
