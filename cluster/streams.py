"""Standard output and error where they cannot show every character."""

from __future__ import annotations

import io
import sys


def show_what_can_be_shown() -> None:
    """From now on a character that the terminal has not becomes a question mark, where it was an error.

    So it is with the … of a table in a locale that is not UTF-8 (``en_US.ISO-8859-1``, ``PYTHONIOENCODING=ascii``), and
    everywhere with a path whose bytes are no text.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
