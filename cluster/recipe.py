"""What ``recipe=<name>`` decides: values that the files of ``train_head`` and of heads take over.

They say so themselves (``${recipe.batch_size}``), so a value that an experiment or the command line gives goes before.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from pipeline.config import config


@config
class Recipe:
    """How a head is trained; all of it is needed."""

    batch_size: Annotated[int, Field(ge=1)]  # train_head.batch_size
    base_lr: Annotated[float, Field(gt=0)]  # train_head.base_lr
    length: Annotated[float, Field(gt=0)]  # train_head.length
    group: Annotated[int, Field(ge=2)]  # head.group of loss_prediction
