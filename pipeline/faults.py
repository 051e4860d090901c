"""Why a sample cannot be used. The reasons are a part of commit records: facts only, the same text on every run."""

from __future__ import annotations

from dataclasses import dataclass


class BadSample(ValueError):  # noqa: N818
    """One sample is unusable; its text is the reason that its quarantine record shows."""


class BadImage(BadSample):
    """The bytes are no image that can be decoded whole."""


class BadLabel(BadSample):
    """The sample's label is missing or names no class."""


@dataclass(frozen=True, kw_only=True)
class Quarantined:
    """A sample that was left out, and why."""

    key: str
    reason: str
