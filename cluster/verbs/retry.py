"""put back units that failed or were given up, and submit (--unit ID for one of them)"""

from __future__ import annotations

from cluster.jobs.deaths import forget_deaths, given_up
from cluster.jobs.folder import folder_of
from cluster.jobs.notes import first_line
from cluster.jobs.overview import is_unit
from cluster.verbs import submit
from cluster.verbs.base import DONE, Request, UsageError
from pipeline.errors import UserError
from stages.base import Stage


def run(request: Request) -> int:
    """Forget the failures, say of which units, and run the chosen stages; nothing where nothing has failed.

    Raises:
        UsageError: no stage was chosen.
        UserError: a unit of ``--unit`` has not failed.
    """
    if not request.line.stages:
        raise UsageError("failed units of which stage? Write stage=<name>, e.g. submit retry stage=cache.")
    wanted, seen, back = set(request.line.units), set(), 0
    for link, stage in request.stages.items():
        for unit, reason in _failed(stage, request).items():
            seen.add(unit)
            if not wanted or unit in wanted:
                back += _put_back(link, stage, unit, reason, request)
    if unknown := sorted(wanted - seen):
        raise UserError(f"unit {', '.join(unknown)} has not failed; `submit status` names those that have.")
    if not back:
        print(f"nothing to put back; what is missing is done by\n  {request.line.command()}")
        return DONE
    return submit.run(request)


def _failed(stage: Stage, request: Request) -> dict[str, str]:
    """Units, and what else was given up, with the reason."""
    folder = folder_of(stage, request.job_settings["shared"])
    return {**stage.status().failed, **(given_up(folder) if folder is not None else {})}


def _put_back(link: str, stage: Stage, unit: str, reason: str, request: Request) -> int:
    """1 if there is a record of the failure, which is gone then."""
    folder = folder_of(stage, request.job_settings["shared"])
    back = stage.forget_failure(unit)
    if folder is not None and unit in given_up(folder):
        forget_deaths(folder, unit)
        back = True
    if is_unit(unit):
        print(f"{link}: unit {unit} is {'put back' if back else 'left as it is'}: {first_line(reason)}")
    return int(back)
