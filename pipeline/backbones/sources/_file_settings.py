"""What a network that comes as one file is told; apart from it, so that a config is read without torch."""

from __future__ import annotations

from typing import Annotated

import pydantic
from pydantic import Field

from pipeline.backbones import facts
from pipeline.backbones.settings import BackboneConfig
from pipeline.config import config
from pipeline.places import LocalPath


@config
class FileConfig(BackboneConfig):
    """A network in a file. Its preprocessing must be given: size, mean, std, crop, interpolation."""

    # The file.
    path: LocalPath
    # Which output is the representation, where there are several: its number from 0, or its name.
    output: int | str | None = None
    # Outputs of tokens: how many stand before those of the patches (class token first, then registers).
    prefix_tokens: Annotated[int, Field(ge=0)] = 1

    @pydantic.model_validator(mode="after")
    def _is_preprocessed(self) -> FileConfig:
        if missing := [key for key in facts.KEYS if getattr(self, key) is None]:
            raise ValueError(f"a file does not say what its network was trained with: set {', '.join(missing)}")
        return self
