"""How settings are looked for."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from pipeline.config import config


@config
class SearchConfig:
    """The trials of a head, and what they are judged on."""

    trials: Annotated[int, Field(ge=1)] = 10  # of each head, the first with its settings as they stand; URL: 10
    validation_classes: Annotated[float, Field(gt=0, lt=1)] = 0.3  # share of the classes that trials are judged on
    validation_rows: Annotated[int, Field(ge=2)] = 5000  # at most so many of their rows, chosen by key
    view: str = "center"  # of these rows
    least_r_at_1: Annotated[float, Field(ge=0, le=1)] = 0.1  # trials below it are not chosen; URL: 0.1
    seed: Annotated[int, Field(ge=0, lt=1 << 31)] = 0  # of the heads that are trained, and of the choice of classes
