"""A network made of torch modules: frozen, placed, computed in fp32 or bf16, compiled or not, tapped inside.

Shapes: B images, D width, C classes; features are tokens (B, N, D) or maps (B, D, H, W).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from pipeline.backbones.base import Network, Tried
from pipeline.backbones.devices import channels_last_of, compiled_of, compute_of
from pipeline.backbones.settings import ModuleConfig
from pipeline.backbones.tap import LAST, Tap
from pipeline.config import to_plain
from pipeline.devices import device_named
from pipeline.errors import UserError
from pipeline.heads.base import LinearClassifier
from pipeline.images.preprocessing import Preprocessing

# Of the check that the classifier over the embedding is the model's own; the two are the same operations.
TOLERANCE = 1e-4
COMPILATIONS = 256  # of one piece of code, for all networks of the process; torch gives up after 8 by default


class ModuleNetwork(Network):
    """What a source gives beside its model: :meth:`features`, :meth:`pooled`, :meth:`last_linear`, :meth:`layers`.

    Attributes:
        compute: ``fp32``, or ``bf16`` (autocast: weights, normalisations and the residual stream stay float32).
        channels_last: whether images and convolutions lie channels-last in memory.
        compiled: whether each layer is compiled. Layer by layer, not as a whole, so that a tap does not change what is
            computed before and after it; and alike layers are compiled once.
    """

    def __init__(
        self,
        config: ModuleConfig,
        *,
        name: str,
        model: nn.Module,
        weights_sha256: str,
        preprocessing: Preprocessing,
        class_names: tuple[str, ...] | None,
    ) -> None:
        """Freeze and place the model.

        Raises:
            UserError: no such device, or a class head that is not one linear layer over the embedding.
        """
        self.config = config
        self.name = name
        self.weights_sha256 = weights_sha256
        self.preprocessing = preprocessing
        self.class_names = class_names
        self.device = device_named(config.device, "backbone.device")
        self.compute = compute_of(config.compute, self.device)
        self.channels_last = channels_last_of(config.channels_last, model)
        order = torch.channels_last if self.channels_last else torch.contiguous_format
        model = model.eval().requires_grad_(False)
        self.model: Any = model.to(self.device, memory_format=order)  # type: ignore[call-overload]
        self.compiled = compiled_of(config.compile, self.device, self.layers(), name)
        self.fixed_batch = self.compiled
        self._classifier = self._checked_classifier()
        if self.compiled:
            _compile(self.layers())

    # -- what a source says of its models

    @abstractmethod
    def features(self, images_BCHW: Tensor, layers: Collection[int]) -> Mapping[int, Any]:
        """The output of each of ``layers``, from one pass; :meth:`pooled` knows its form."""

    @abstractmethod
    def pooled(self, features: Any, tap: Tap) -> Tensor:
        """The (B, D) vectors of a tap from its layer's output.

        Raises:
            UserError: these features cannot be pooled so.
        """

    @abstractmethod
    def last_linear(self) -> nn.Module | None:
        """The layer that reads the embedding and gives the logits; None: there is none."""

    @abstractmethod
    def layers(self) -> list[nn.Module]:
        """The layers that are compiled one by one; empty: not known."""

    @abstractmethod
    def plainest(self, tap: Tap) -> Tap:
        """The same tap, ``LAST`` for the last layer.

        Raises:
            UserError: there is no such layer.
        """

    def own_logits(self, images_BCHW: Tensor) -> Tensor:
        """What the model, as its makers wrote it, says of images; asked only where it has a class head."""
        logits_BC: Tensor = self.model(images_BCHW)
        return logits_BC

    # -- the way of a batch

    @torch.no_grad()
    def embed(self, images_BCHW: Tensor, taps: Sequence[Tap]) -> list[Tensor]:
        """The embedding of each tap, from one pass."""
        order = torch.channels_last if self.channels_last else torch.contiguous_format
        images_BCHW = images_BCHW.to(self.device, torch.float32, memory_format=order)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.compute == "bf16"):
            features = self.features(images_BCHW, {tap.layer for tap in taps})
            return [self.pooled(features[tap.layer], tap).float() for tap in taps]

    @torch.no_grad()
    def try_tap(self, tap: Tap) -> Tried:
        """Look at a tap on one image, in fp32 and never compiled."""
        tap = self.plainest(tap)
        if tap == Tap():
            return Tried(tap=tap, width=self._trial.shape[1], feeds_classifier=True)
        with torch.compiler.set_stance("force_eager"):
            embedding_BD = self.pooled(self.features(self._image, {tap.layer})[tap.layer], tap)
        same = tap.layer == LAST and torch.equal(embedding_BD, self._trial)
        return Tried(tap=tap, width=embedding_BD.shape[1], feeds_classifier=same)

    # -- what it says of itself

    def classifier(self) -> LinearClassifier | None:
        """The model's last linear layer, float32 on the device."""
        return self._classifier

    def describe(self) -> Mapping[str, Any]:
        """What decides the embedding, as plain values."""
        return {
            "name": self.name,
            "source": self.config.source,
            "weights_sha256": self.weights_sha256,
            "preprocessing": to_plain(self.preprocessing),
            "compute": self.compute,
            "channels_last": self.channels_last,
            "compile": self.compiled,
        }

    def state_dict(self) -> Mapping[str, Tensor]:
        """The weights, on the CPU."""
        return {name: tensor.cpu() for name, tensor in self.model.state_dict().items()}

    # -- the trial

    @cached_property
    def _image(self) -> Tensor:
        size = self.preprocessing.size
        return torch.rand(1, 3, size, size, generator=torch.Generator().manual_seed(0)).to(self.device)

    @cached_property
    def _trial(self) -> Tensor:
        with torch.no_grad():
            embedding_BD = self.pooled(self.features(self._image, {LAST})[LAST], Tap())
        if embedding_BD.ndim != 2:
            raise UserError(
                f"backbone {self.name}: not one vector an image, its embedding has shape {tuple(embedding_BD.shape)}."
            )
        return embedding_BD

    @torch.no_grad()
    def _checked_classifier(self) -> LinearClassifier | None:
        """The classifier, having seen on one image that over the embedding it gives the model's logits."""
        layer, trial_BD = self.last_linear(), self._trial
        if layer is None:
            return None
        if not isinstance(layer, nn.Linear):
            raise self._no_linear_head()
        bias_C = torch.zeros(layer.out_features, device=layer.weight.device) if layer.bias is None else layer.bias
        found = LinearClassifier(weight_CD=layer.weight.detach(), bias_C=bias_C.detach())
        own_BC = self.own_logits(self._image)
        if layer.in_features != trial_BD.shape[1] or not torch.allclose(
            own_BC,
            linear(trial_BD, found.weight_CD, found.bias_C),
            rtol=TOLERANCE,
            atol=TOLERANCE * float(own_BC.abs().max()),
        ):
            raise self._no_linear_head()
        return found

    def _no_linear_head(self) -> UserError:
        return UserError(
            f"backbone {self.name}: its class head is not one linear layer over the embedding. "
            "Set backbone.num_classes=0 to use it without one (and run stage=probe for task losses)."
        )


def _compile(layers: Sequence[nn.Module]) -> None:
    """Compile in place: names in the state dict stay as they are."""
    import torch._dynamo  # loads much, and only who compiles needs it

    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, COMPILATIONS)
    for layer in layers:
        layer.compile(dynamic=False)
