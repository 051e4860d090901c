"""That somebody cancelled a submission: the queue forgets its jobs, and people want to know why nothing goes on."""

from __future__ import annotations

import getpass
import socket
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from pipeline.files import read_json, write_json

RECORD = "cancelled.json"


@dataclass(frozen=True, kw_only=True)
class Cancelled:
    """Who did, where, and when in seconds since 1970."""

    user: str
    host: str
    time: float


def note_cancelled(submission: Path) -> None:
    """Say that this user cancels the jobs of a submission now."""
    facts = Cancelled(user=getpass.getuser(), host=socket.gethostname(), time=time.time())
    write_json(submission / RECORD, asdict(facts))


def read_cancelled(submission: Path) -> Cancelled | None:
    """Who cancelled a submission; None: nobody did."""
    try:
        plain = read_json(submission / RECORD)
        return Cancelled(user=str(plain["user"]), host=str(plain["host"]), time=float(plain["time"]))
    except (FileNotFoundError, ValueError, LookupError, TypeError):
        return None
