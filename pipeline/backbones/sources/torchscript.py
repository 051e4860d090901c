"""A TorchScript file. Loading it runs nothing but the graph in it: TorchScript has no access to Python."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from pipeline.backbones.sources._files import FileConfig, FileNetwork, by_name
from pipeline.config import config
from pipeline.errors import UserError


class TorchscriptNetwork(FileNetwork):
    """As ``torch.jit.save`` wrote it."""

    @config
    class Config(FileConfig):
        """A TorchScript file; torch calls the format deprecated, but reads it."""

    def open(self) -> None:
        """Load it in eval mode."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FutureWarning)  # torch.jit is deprecated
                self._module: Any = torch.jit.load(str(self.config.path), map_location=self.device)
        except (RuntimeError, ValueError, OSError) as error:
            raise UserError(
                f"backbone.path: {self.config.path} cannot be read as TorchScript ({str(error).splitlines()[0]})."
            ) from error
        self._module.eval()

    def run(self, images_BCHW: Tensor) -> Mapping[str, Tensor]:
        """Outputs by number, or by key where it returns a dict."""
        # it would be optimised after the first batches, whose bits would then differ from those of the rest
        with torch.jit.optimized_execution(False):  # type: ignore[attr-defined]
            return by_name(self._module(images_BCHW))
