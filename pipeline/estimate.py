"""What work that is not begun will take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """What the missing units of a stage will take; None = not known yet.

    Attributes:
        views: forward passes of backbones.
        bytes: to be written, before compression.
        files: to be made, at most.
        inodes: of these files and their folders.
        hours: on one device, by what the number comes from.
    """

    views: int | None = None
    bytes: int | None = None
    files: int | None = None
    inodes: int | None = None
    hours: Mapping[str, float] = field(default_factory=dict)
