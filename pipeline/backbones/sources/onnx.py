"""An ONNX file, run by onnxruntime on the CPU or a CUDA device."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor

from pipeline.backbones.onnx_weights import onnx_sha256
from pipeline.backbones.sources._files import FileConfig, FileNetwork
from pipeline.config import config
from pipeline.errors import UserError

PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}


class OnnxNetwork(FileNetwork):
    """Computed as the file says, float32 in and out, deterministically for a number of threads."""

    @config
    class Config(FileConfig):
        """An ONNX file."""

        # Threads of onnxruntime on the CPU. Sums may be split by them, so they are part of what is computed.
        threads: Annotated[int, Field(ge=1, le=1024)] = 4

    def open(self) -> None:
        """Make the session."""
        try:
            import onnxruntime
        except ImportError as error:
            raise UserError('backbone.source=onnx needs onnxruntime: pip install "hedgerow[onnx]"') from error
        provider = PROVIDERS.get(self.device.type, "")
        if provider not in onnxruntime.get_available_providers():
            raise UserError(
                f"backbone.device={self.device}: this onnxruntime cannot compute there, it has "
                f"{', '.join(onnxruntime.get_available_providers())}. Set backbone.device=cpu, or for CUDA install "
                "onnxruntime-gpu in place of onnxruntime."
            )
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = self.config.threads, 1
        options.use_deterministic_compute = True
        options.log_severity_level = 3  # errors; they are raised too
        place = {"device_id": self.device.index or 0} if self.device.type == "cuda" else {}
        try:
            self._session: Any = onnxruntime.InferenceSession(
                str(self.config.path), options, providers=[(provider, place)]
            )
        except Exception as error:  # onnxruntime's own kinds have no common name
            raise UserError(
                f"backbone.path: {self.config.path} cannot be run ({str(error).splitlines()[0]})."
            ) from error
        self._look_at_input()

    @classmethod
    def file_sha256(cls, path: Path) -> str:
        """Together with the files beside it that it names."""
        return onnx_sha256(path)

    def _look_at_input(self) -> None:
        inputs = self._session.get_inputs()
        if len(inputs) != 1 or inputs[0].type != "tensor(float)" or len(inputs[0].shape) != 4:
            shown = ", ".join(f"{item.name} {item.type} {item.shape}" for item in inputs)
            raise UserError(
                f"backbone.path: {self.config.path.name} must take one batch of float images, it has {shown}."
            )
        batch, *image = inputs[0].shape
        self.batch = batch if isinstance(batch, int) else None
        size = self.preprocessing.size
        if any(isinstance(have, int) and have != want for have, want in zip(image, (3, size, size), strict=True)):
            raise UserError(f"backbone.size={size}: {self.config.path.name} takes images of shape {image}.")
        self._input = inputs[0].name

    def run(self, images_BCHW: Tensor) -> Mapping[str, Tensor]:
        """Outputs by name. The images go by the CPU: onnxruntime takes its own way to a CUDA device."""
        names = [item.name for item in self._session.get_outputs()]
        values = self._session.run(names, {self._input: images_BCHW.cpu().contiguous().numpy()})
        return {name: torch.from_numpy(value).to(self.device) for name, value in zip(names, values, strict=True)}

    def describe(self) -> Mapping[str, Any]:
        """With the number of threads."""
        return {**super().describe(), "threads": self.config.threads}
