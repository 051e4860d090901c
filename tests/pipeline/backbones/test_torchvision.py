"""torchvision's models: the embedding is what their class head reads, and the rest is their own."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torchvision.models
from safetensors.torch import save_file
from timm.data.imagenet_info import ImageNetInfo
from torch import Tensor
from torchvision.models.convnext import CNBlockConfig, ConvNeXt

from pipeline.backbones import make_backbone, make_backbones, parse_backbone
from pipeline.backbones.sources.torchvision import _preprocessing
from pipeline.class_lists import class_list
from pipeline.errors import UserError
from pipeline.images.preprocessing import Preprocessing
from pipeline.release.licence import backbone_licence

SIZE = 64
MODELS = ["resnet18", "convnext_tiny", "efficientnet_b0", "vit_b_16", "mobilenet_v3_small", "swin_t", "densenet121"]


NARROW: dict[str, Callable[..., torch.nn.Module]] = {  # and shallow; they say as much
    "convnext_tiny": partial(
        ConvNeXt, [CNBlockConfig(8, 16, 1), CNBlockConfig(16, 24, 1), CNBlockConfig(24, None, 1)], 0.1
    ),
    "densenet121": partial(torchvision.models.DenseNet, block_config=(1, 1, 1, 1)),
    "vit_b_16": partial(
        torchvision.models.VisionTransformer, patch_size=16, num_layers=2, num_heads=2, hidden_dim=32, mlp_dim=64
    ),
    "swin_t": partial(
        torchvision.models.SwinTransformer,
        patch_size=[4, 4],
        embed_dim=16,
        depths=[1, 1],
        num_heads=[2, 4],
        window_size=[7, 7],
    ),
}


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    create = torchvision.models.get_model

    def narrow_model(name: str, weights: Any = None, **options: Any) -> torch.nn.Module:
        return NARROW[name](**options) if name in NARROW else create(name, weights=weights, **options)

    monkeypatch.setattr(torchvision.models, "get_model", narrow_model)


def values(model: str, **more: Any) -> dict[str, Any]:
    given = {"source": "torchvision", "weights": "random", "num_classes": 7, "size": SIZE, "compute": "fp32"}
    return {"model": model, **given, "device": "cpu", **more}


def images(count: int) -> Tensor:
    return torch.randn(count, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(0))


def whole(model: str, state: dict[str, Tensor]) -> torch.nn.Module:
    options = {"image_size": SIZE} if model.startswith("vit_") else {}
    network: torch.nn.Module = torchvision.models.get_model(model, num_classes=7, **options)
    network.load_state_dict(state)
    return network.eval()


@pytest.mark.parametrize("model", MODELS)
def test_the_embedding_is_the_input_of_the_last_layer(model: str) -> None:
    backbone = make_backbone(values(model))
    own = whole(model, dict(backbone.state_dict()))
    seen: list[Tensor] = []
    last = [module for module in own.modules() if isinstance(module, torch.nn.Linear)][-1]
    last.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    batch = images(3)
    with torch.no_grad():
        own_BC = own(batch)
    result = backbone.represent(batch)
    assert result.logits_BC is not None
    torch.testing.assert_close(result.embedding_BD, seen[0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(result.logits_BC, own_BC, rtol=1e-4, atol=1e-5)
    assert result.embedding_BD.shape == (3, backbone.width)
    assert backbone.describe()["num_classes"] == 7


def test_tokens_of_a_vision_transformer() -> None:
    given = [values("vit_b_16", pooling=pooling) for pooling in ("auto", "cls", "mean", "cls+mean")]
    auto, cls, mean, both = make_backbones(given)
    assert auto.network is both.network
    own = whole("vit_b_16", dict(auto.state_dict()))
    tokens: list[Tensor] = []
    own.encoder.register_forward_hook(lambda _, __, output: tokens.append(output))  # type: ignore[union-attr, operator]
    with torch.no_grad():
        own(images(2))
    class_BD, mean_BD = tokens[0][:, 0], tokens[0][:, 1:].mean(1)
    for backbone, expected in (
        (auto, class_BD),
        (cls, class_BD),
        (mean, mean_BD),
        (both, torch.cat([class_BD, mean_BD], 1)),
    ):
        assert torch.equal(backbone.represent(images(2)).embedding_BD, expected)
    assert cls.classifier() is not None
    assert mean.classifier() is None
    with pytest.raises(
        UserError, match=r"pooling=mean: torchvision's resnet18 is pooled by its own head\. Valid: auto"
    ):
        make_backbone(values("resnet18", pooling="mean"))


def test_transforms_are_its_own() -> None:
    assert make_backbone(values("resnet18", size=None)).preprocessing == Preprocessing(
        size=224, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225), crop=0.875, interpolation="bilinear"
    )


def test_the_resized_side_is_torchvisions_for_every_model() -> None:
    for name in torchvision.models.list_models(module=torchvision.models):
        for choice in torchvision.models.get_model_weights(name):
            found, said = _preprocessing(choice), choice.transforms()
            assert math.floor(found.size / found.crop) == said.resize_size[0], choice


def test_its_classes_are_the_1000_wordnet_ids_in_order() -> None:
    """torchvision names each class by the first word that WordNet has for it."""
    said = torchvision.models.ResNet18_Weights.DEFAULT.meta["categories"]
    info = ImageNetInfo("imagenet-1k")
    others = [i for i, name in enumerate(said) if name.split(" (")[0] not in info.index_to_description(i)]
    assert info.label_names() == list(class_list("imagenet1k", ""))
    assert len(others) <= 5, [said[i] for i in others]


def test_weights_of_a_file_and_of_a_release(tmp_path: Path) -> None:
    first = make_backbone(values("resnet18", class_list=list("abcdefg")))
    save_file({name: tensor.contiguous() for name, tensor in first.state_dict().items()}, tmp_path / "net.safetensors")
    given = values("resnet18", weights="file", path=str(tmp_path / "net.safetensors"), seed=9)
    expected = first.represent(images(2))
    for again in (make_backbone(given), make_backbone({**given, "path": "gone.pth"}, carried=first.state_dict())):
        found = again.represent(images(2))
        assert torch.equal(found.embedding_BD, expected.embedding_BD)
        assert torch.equal(found.logits_BC, expected.logits_BC)  # type: ignore[arg-type]
    assert first.class_names == tuple("abcdefg")
    assert make_backbone(given).class_names is None
    assert make_backbone(values("resnet18", seed=9)).weights_sha256 != first.weights_sha256
    assert backbone_licence(parse_backbone(given)).name == "unknown"


def test_pretrained_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """As torchvision would give them, from a hub that is not there and from one that is."""
    given = {"source": "torchvision", "model": "resnet18.IMAGENET1K_V1", "device": "cpu"}
    create, asked = torchvision.models.get_model, []

    def offline(*_: Any, weights: Any, **__: Any) -> None:
        asked.append(weights)
        raise OSError("no network")

    monkeypatch.setattr(torchvision.models, "get_model", offline)
    with pytest.raises(
        UserError, match=r"'resnet18\.IMAGENET1K_V1' cannot be had \(no network\).*resnet18-.*\.pth here.*cache/torch"
    ):
        make_backbone(given)
    assert asked == [torchvision.models.ResNet18_Weights.IMAGENET1K_V1]
    monkeypatch.setattr(torchvision.models, "get_model", lambda name, weights: create(name))
    names = make_backbone(given).class_names
    assert names == class_list("imagenet1k", "")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"model": "resnet81"}, r"unknown torchvision model 'resnet81'\. Did you mean 'resnet18'\?"),
        ({"model": "resnet18.V1"}, r"unknown tag of resnet18 'V1'.*IMAGENET1K_V1"),
        ({"model": "resnet18", "weights": "file"}, "weights=file needs `path`"),
        ({"model": "resnet18", "weights": "random", "path": "x.pth"}, "goes with weights=file only"),
        ({"model": "resnet18", "layer": 3}, r"backbone\.layer: unknown key"),
        ({"model": "squeezenet1_1", "weights": "random"}, "no linear layer"),
    ],
)
def test_what_is_wrong_is_said(values: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        make_backbone({"source": "torchvision", **values})


def test_an_unknown_source() -> None:
    with pytest.raises(
        UserError, match=r"unknown backbone source 'torchvison'\. Did you mean 'torchvision'\? Valid: .*onnx"
    ):
        make_backbone({"source": "torchvison", "model": "resnet18"})
