"""A file of ``torch.export`` (``.pt2``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pydantic
import torch
from torch import Tensor
from torch.export.passes import move_to_device_pass

from pipeline.backbones.sources._files import FileConfig, FileNetwork, by_name
from pipeline.config import config
from pipeline.errors import UserError


class ExportNetwork(FileNetwork):
    """As ``torch.export.save`` wrote it, in batches of the size it was made with unless its batch axis is dynamic."""

    @config
    class Config(FileConfig):
        """A file of torch.export."""

        # torch reads these files with pickle, which runs whatever code is in them. true: you made the file, or trust
        # whoever did.
        trusted: bool = False

        @pydantic.model_validator(mode="after")
        def _is_trusted(self) -> ExportNetwork.Config:
            if not self.trusted:
                raise ValueError(
                    "torch reads this kind of file with pickle, which runs the code in it; set trusted=true if you "
                    "made the file or trust whoever did"
                )
            return self

    def open(self) -> None:
        """Load it, and read the batch it insists on from the shape of its input."""
        try:
            program = torch.export.load(str(self.config.path))
        except Exception as error:  # of a dozen kinds, from zipfile's to pickle's
            raise UserError(
                f"backbone.path: {self.config.path} cannot be read as torch.export ({_first_line(error)})."
            ) from error
        inputs = set(program.graph_signature.user_inputs)
        shapes = [node.meta["val"].shape for node in program.graph.nodes if node.name in inputs]
        if len(shapes) != 1:
            raise UserError(f"backbone.path: {self.config.path} takes {len(shapes)} inputs, not one batch of images.")
        self.batch = shapes[0][0] if isinstance(shapes[0][0], int) else None
        if self.device.type != "cpu":
            program = move_to_device_pass(program, self.device)
        self._module: Any = program.module()

    def run(self, images_BCHW: Tensor) -> Mapping[str, Tensor]:
        """Outputs by number, or by key where it returns a dict."""
        try:
            return by_name(self._module(images_BCHW))
        except (AssertionError, RuntimeError) as error:  # a guard on the input's shape
            if isinstance(error, torch.OutOfMemoryError):
                raise
            raise UserError(
                f"backbone.path: {self.config.path.name} refuses images of shape {tuple(images_BCHW.shape)} "
                f"({_first_line(error)}). Set backbone.size to what it was exported with."
            ) from error


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
