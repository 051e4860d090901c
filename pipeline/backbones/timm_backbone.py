"""A frozen timm model as a backbone: the embedding is exactly what its classifier sees.

Shapes: B images, D width, C classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from pipeline.backbones.base import Backbone, Representation
from pipeline.backbones.build import Built
from pipeline.backbones.settings import BackboneConfig
from pipeline.config import to_plain
from pipeline.errors import UserError
from pipeline.heads.base import LinearClassifier

# Of the check that the classifier over the embedding is the model's own; the two are the same operations.
TOLERANCE = 1e-4


class TimmBackbone(Backbone):
    """Embedding = ``forward_head(forward_features(x), pre_logits=True)``; for ViTs the class token after the norm.

    Attributes:
        compute: ``fp32``, or ``bf16`` (autocast: weights, normalisations and the residual stream stay float32).
        channels_last: whether images and convolutions lie channels-last in memory.
    """

    def __init__(self, config: BackboneConfig, built: Built) -> None:
        """Freeze and place the model.

        Raises:
            UserError: no such device, or a class head that is not one linear layer over the embedding.
        """
        self.name = config.model
        self.preprocessing = built.preprocessing
        self.weights_sha256 = built.weights_sha256
        self.class_names = built.class_names
        self.device = _device(config.device)
        self.compute = _compute(config.compute, self.device)
        self.channels_last = _channels_last(config.channels_last, built.model)
        self._weights = config.weights
        order = torch.channels_last if self.channels_last else torch.contiguous_format
        self.model = built.model.eval().requires_grad_(False).to(self.device, memory_format=order)  # type: ignore[call-overload]
        self._classifier = _classifier(self.model, self.name)
        self.width = self._checked_width()

    @torch.no_grad()
    def represent(self, images_BCHW: Tensor) -> Representation:
        """Embedding and logits of normalised images.

        Args:
            images_BCHW: float32, (B, 3, size, size), on any device.

        Returns:
            ``embedding_BD`` and ``logits_BC``, float32 on the backbone's device; the logits are computed from this very
            embedding, in float32.

        Raises:
            UserError: the network gave NaN or infinity.
        """
        order = torch.channels_last if self.channels_last else torch.contiguous_format
        images_BCHW = images_BCHW.to(self.device, torch.float32, memory_format=order)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.compute == "bf16"):
            features = self.model.forward_features(images_BCHW)
            embedding_BD: Tensor = self.model.forward_head(features, pre_logits=True)
        embedding_BD = embedding_BD.float()
        if not embedding_BD.isfinite().all():
            raise UserError(
                f"backbone {self.name}: an embedding is not finite (compute {self.compute}). "
                "Check the weights and the preprocessing, or set backbone.compute=fp32."
            )
        return Representation(embedding_BD=embedding_BD, logits_BC=self._logits(embedding_BD))

    def _logits(self, embedding_BD: Tensor) -> Tensor | None:
        if self._classifier is None:
            return None
        return linear(embedding_BD, self._classifier.weight_CD, self._classifier.bias_C)

    def classifier(self) -> LinearClassifier | None:
        """The model's last linear layer, float32 on the backbone's device."""
        return self._classifier

    def describe(self) -> Mapping[str, Any]:
        """What decides the embedding, as plain values."""
        return {
            "name": self.name,
            "weights": self._weights,
            "weights_sha256": self.weights_sha256,
            "width": self.width,
            "num_classes": 0 if self._classifier is None else len(self._classifier.bias_C),
            "preprocessing": to_plain(self.preprocessing),
            "compute": self.compute,
            "channels_last": self.channels_last,
        }

    def state_dict(self) -> Mapping[str, Tensor]:
        """The weights, on the CPU."""
        return {name: tensor.cpu() for name, tensor in self.model.state_dict().items()}

    @torch.no_grad()
    def _checked_width(self) -> int:
        """Width of the embedding, having seen on one image that the classifier over it gives the model's logits."""
        size = self.preprocessing.size
        image = torch.rand(1, 3, size, size, generator=torch.Generator().manual_seed(0)).to(self.device)
        features = self.model.forward_features(image)
        embedding_BD: Tensor = self.model.forward_head(features, pre_logits=True)
        if embedding_BD.ndim != 2:
            raise UserError(
                f"backbone {self.name}: not one vector an image, its embedding has shape {tuple(embedding_BD.shape)}."
            )
        logits_BC = self._logits(embedding_BD)
        if logits_BC is not None:
            own_BC = self.model(image)
            if not torch.allclose(own_BC, logits_BC, rtol=TOLERANCE, atol=TOLERANCE * float(own_BC.abs().max())):
                raise _no_linear_head(self.name)
        return embedding_BD.shape[1]


def _classifier(model: nn.Module, name: str) -> LinearClassifier | None:
    layer = model.get_classifier()  # type: ignore[operator]
    if isinstance(layer, nn.Identity):
        return None
    if not isinstance(layer, nn.Linear):
        raise _no_linear_head(name)
    bias_C = torch.zeros(layer.out_features, device=layer.weight.device) if layer.bias is None else layer.bias
    return LinearClassifier(weight_CD=layer.weight.detach(), bias_C=bias_C.detach())


def _no_linear_head(name: str) -> UserError:
    return UserError(
        f"backbone {name}: its class head is not one linear layer over the embedding. "
        "Set backbone.num_classes=0 to use it without one (and run stage=probe for task losses)."
    )


def _device(choice: str) -> torch.device:
    if choice == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(choice)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # torch asserts that it was built with CUDA
        raise UserError(f"backbone.device: no device '{choice}' here ({str(error).splitlines()[0]}).") from error
    return device


def _compute(choice: str, device: torch.device) -> str:
    if choice != "auto":
        return choice
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
    # without these units bf16 is emulated: 30 times slower than fp32 on a CPU with AVX2 only
    units = torch.cpu.get_capabilities()
    return "bf16" if units.get("avx512_bf16") or units.get("amx_bf16") else "fp32"


def _channels_last(choice: str, model: nn.Module) -> bool:
    if choice != "auto":
        return choice == "on"
    # a Vision Transformer has one convolution, its patch embedding, and gains nothing
    return sum(isinstance(module, nn.Conv2d) for module in model.modules()) > 1
