"""say how far each stage is: units, failures, rate, jobs (--json for programs)"""

from __future__ import annotations

import json

from cluster.jobs.overview import look
from cluster.jobs.table import plain, table
from cluster.verbs.base import DONE, FAILED, Request


def run(request: Request) -> int:
    """Print a table of the chosen stages, and below it what failed and what the jobs do; 1 if a record is damaged."""
    overview = look(request.stages, **request.job_settings)
    if request.line.json:
        name = request.composed.experiment.name
        print(json.dumps({"experiment": name, "queue": overview.silence, "stages": plain(overview)}, indent=2))
    else:
        print(table(overview))
    return FAILED if any(now.problem for now in overview.stages) else DONE
