"""What a search has found: the trial with the best R-AUROC on held-out classes, among those that still retrieve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.errors import UserError
from pipeline.places import Place
from pipeline.sealed import read_sealed
from pipeline.tuning.space import RATE

RECORD = "choice.json"  # in the folder of a search


def choose(records: Sequence[Mapping[str, Any]], least_r_at_1: float) -> dict[str, Any]:
    """The choice among the records of all trials, in order.

    The first of equals is taken, and the first trial (the settings as they stand) where none has a score.

    Returns:
        ``trial``, ``values``, its ``r_auroc`` and ``r_at_1`` (null: none), and how many of the ``tried`` had a score
        (``scored``) and an R@1 that is high enough (``passed``).
    """
    scored = [place for place, one in enumerate(records) if one.get("r_auroc") is not None]
    passed = [place for place in scored if (records[place]["r_at_1"] or 0.0) >= least_r_at_1]
    best = max(passed or [0], key=lambda place: (records[place].get("r_auroc") or 0.0, -place))
    chosen = records[best]
    return {
        "trial": best,
        "values": dict(chosen["values"]),
        "r_auroc": chosen.get("r_auroc"),
        "r_at_1": chosen.get("r_at_1"),
        "tried": len(records),
        "scored": len(scored),
        "passed": len(passed),
    }


def describe(choice: Mapping[str, Any]) -> str:
    """In a line: what was chosen, and from how many."""
    values = ", ".join(f"{key}={value}" for key, value in choice["values"].items()) or "settings as they stand"
    if choice["passed"] == 0:
        return f"none of {choice['tried']} trials is finite and retrieves: {values}"
    of = f"trial {choice['trial']} of {choice['tried']}"
    return f"{of}: R-AUROC {choice['r_auroc']:.3f}, R@1 {choice['r_at_1']:.3f} on held-out classes: {values}"


def read_choice(folder: Place) -> Mapping[str, Any]:
    """What :func:`choose` gave, of the search in ``folder``.

    Raises:
        UserError: nothing is chosen there yet, or the record is damaged.
    """
    if not (folder / RECORD).exists():
        raise UserError(f"tune is not done in {folder}. Run: submit stage=tune")
    return read_sealed(folder / RECORD)


def of_head(values: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the values that are settings of the head."""
    return {key: value for key, value in values.items() if key != RATE}


def chosen_head(head: Mapping[str, Any], folder: Place) -> dict[str, Any]:
    """``{kind, …}`` of a head with what the search in ``folder`` chose; errors as of :func:`read_choice`."""
    return {**head, **of_head(read_choice(folder)["values"])}
