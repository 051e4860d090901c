"""The embedding is what the classifier sees, frozen; and what is resolved automatically is what it should be."""

from __future__ import annotations

import json
from typing import Any

import pytest
import timm
import torch
from torch import Tensor
from torch.nn.functional import linear

from pipeline.backbones import Backbone, make_backbone
from pipeline.backbones.modules import ModuleNetwork
from pipeline.config import to_plain
from pipeline.errors import UserError

# a class token, average pooling over tokens, registers with average pooling, three kinds of convolutional networks, and
# a network with an MLP between pooling and classifier
MODELS = (
    "test_vit",
    "test_vit2",
    "test_vit3",
    "test_resnet",
    "test_convnext",
    "test_efficientnet",
    "mobilenetv3_small_050",
)


def images(count: int, size: int, seed: int = 0) -> Tensor:
    return torch.randn(count, 3, size, size, generator=torch.Generator().manual_seed(seed))


def made(values: dict[str, Any]) -> Backbone:
    return make_backbone(values)


def network(backbone: Backbone) -> ModuleNetwork:
    assert isinstance(backbone.network, ModuleNetwork)
    return backbone.network


@pytest.mark.parametrize("model", MODELS)
def test_the_embedding_is_the_input_of_the_classifier_and_gives_the_models_own_logits(model: str) -> None:
    given = {"model": model, "weights": "random", "size": 64, "num_classes": 11, "device": "cpu", "compute": "fp32"}
    backbone = made(given)
    seen: list[Tensor] = []
    network(backbone).model.get_classifier().register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    batch = images(5, 64)
    with torch.no_grad():
        own_BC = network(backbone).model(batch)
    result = backbone.represent(batch)
    classifier = backbone.classifier()
    assert classifier is not None
    assert result.logits_BC is not None
    assert result.embedding_BD.shape == (5, backbone.width)
    torch.testing.assert_close(result.embedding_BD, seen[0], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(result.logits_BC, own_BC, rtol=1e-5, atol=1e-6)
    by_hand_BC = linear(result.embedding_BD, classifier.weight_CD, classifier.bias_C)
    assert torch.equal(by_hand_BC, result.logits_BC)
    assert own_BC.std(dim=0).min() > 0, "the images must differ to the model, or the test says nothing"


def test_a_vit_gives_its_class_token_after_the_final_norm(tiny: dict[str, Any]) -> None:
    backbone = made(tiny)
    tokens: list[Tensor] = []
    network(backbone).model.norm.register_forward_hook(lambda _, __, output: tokens.append(output))
    result = backbone.represent(images(2, 32))
    assert torch.equal(result.embedding_BD, tokens[0][:, 0])


def test_it_is_frozen_and_in_eval_mode(tiny: dict[str, Any]) -> None:
    backbone = made({**tiny, "model": "test_resnet"})
    before = {name: value.clone() for name, value in backbone.state_dict().items()}
    first, second = backbone.represent(images(4, 32)), backbone.represent(images(4, 32))
    assert torch.equal(first.embedding_BD, second.embedding_BD)
    assert not first.embedding_BD.requires_grad
    assert first.embedding_BD.dtype == torch.float32
    assert not any(parameter.requires_grad for parameter in network(backbone).model.parameters())
    assert not any(module.training for module in network(backbone).model.modules())
    assert all(torch.equal(before[name], value) for name, value in backbone.state_dict().items())


def test_heads_may_be_trained_on_its_embedding(tiny: dict[str, Any]) -> None:
    embedding_BD = made(tiny).represent(images(2, 32)).embedding_BD
    weight = torch.ones(embedding_BD.shape[1], requires_grad=True)
    (embedding_BD @ weight).sum().backward()
    torch.testing.assert_close(weight.grad, embedding_BD.sum(dim=0))


def test_without_a_class_head_there_are_no_logits(tiny: dict[str, Any]) -> None:
    backbone = made({**tiny, "num_classes": 0})
    result = backbone.represent(images(2, 32))
    assert result.logits_BC is None
    assert backbone.classifier() is None
    assert backbone.class_names is None
    assert backbone.describe()["num_classes"] == 0
    headed = made({**tiny, "num_classes": 3})
    body = {name: value for name, value in headed.state_dict().items() if not name.startswith("head.")}
    beheaded = make_backbone({**tiny, "num_classes": 0}, carried=body)
    batch = images(2, 32)
    assert torch.equal(beheaded.represent(batch).embedding_BD, headed.represent(batch).embedding_BD)


def test_random_weights_are_those_of_the_seed_and_leave_the_global_generator_alone(tiny: dict[str, Any]) -> None:
    state = torch.get_rng_state()
    one, again, other = made(tiny), made(tiny), made({**tiny, "seed": 1})
    assert torch.equal(state, torch.get_rng_state())
    assert one.weights_sha256 == again.weights_sha256 != other.weights_sha256


def test_a_head_that_is_not_linear_over_the_embedding_is_refused() -> None:
    with pytest.raises(UserError, match=r"deit_tiny_distilled.*num_classes=0"):
        make_backbone({"model": "deit_tiny_distilled_patch16_224", "weights": "random", "size": 32, "device": "cpu"})


def test_a_head_that_does_more_than_its_linear_layer_is_refused(
    tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    create = timm.create_model

    def tempered(*args: Any, **kwargs: Any) -> Any:
        model = create(*args, **kwargs)
        model.head.register_forward_hook(lambda _, __, output: output / 2)  # logits beyond any linear layer's
        return model

    monkeypatch.setattr(timm, "create_model", tempered)
    with pytest.raises(UserError, match="not one linear layer"):
        make_backbone(tiny)


def test_what_is_not_finite_is_left_for_others_to_see(tiny: dict[str, Any]) -> None:
    """Looking at it would wait for the device."""
    batch = images(2, 32)
    batch[1, 0, 0, 0] = torch.nan
    embedding_BD = made(tiny).represent(batch).embedding_BD
    assert embedding_BD.isfinite().all(dim=1).tolist() == [True, False]


def test_bf16_is_near_fp32_and_float32_outside(tiny: dict[str, Any]) -> None:
    fp32, bf16 = made(tiny), made({**tiny, "compute": "bf16"})
    exact, rough = fp32.represent(images(3, 32)), bf16.represent(images(3, 32))
    assert rough.embedding_BD.dtype == torch.float32
    assert not torch.equal(exact.embedding_BD, rough.embedding_BD)
    torch.testing.assert_close(exact.embedding_BD, rough.embedding_BD, rtol=0.05, atol=0.05)
    assert fp32.weights_sha256 == bf16.weights_sha256
    assert all(value.dtype == torch.float32 for value in bf16.state_dict().values())


@pytest.mark.parametrize(
    ("units", "expected"),
    [({"avx2": True}, "fp32"), ({"avx512_bf16": True}, "fp32"), ({"amx_bf16": True}, "bf16"), ({}, "fp32")],
)
def test_on_a_cpu_bf16_only_where_it_gains(
    units: dict[str, bool], expected: str, tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: units, raising=False)
    assert made({**tiny, "compute": "auto"}).describe()["compute"] == expected


@pytest.mark.parametrize(("amx", "expected"), [(True, "bf16"), (False, "fp32")])
def test_torch_2_10_is_asked_otherwise(
    amx: bool, expected: str, tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx)
    assert made({**tiny, "compute": "auto"}).describe()["compute"] == expected


def test_channels_last_is_for_convolutional_networks_and_does_not_change_the_result(tiny: dict[str, Any]) -> None:
    assert not network(made(tiny)).channels_last
    on = made({**tiny, "model": "test_resnet"})
    off = made({**tiny, "model": "test_resnet", "channels_last": "off"})
    assert network(on).channels_last
    assert not network(off).channels_last
    batch = images(3, 32)
    torch.testing.assert_close(
        on.represent(batch).embedding_BD, off.represent(batch).embedding_BD, rtol=1e-4, atol=1e-5
    )


def test_no_such_device(tiny: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=r"backbone\.device: 'cuda:99' is not there"):
        make_backbone({**tiny, "device": "cuda:99"})


def test_the_description_is_plain(tiny: dict[str, Any]) -> None:
    plain = made(tiny).describe()
    assert json.loads(json.dumps(to_plain(plain))) == plain
    assert "device" not in plain, "the same store may be filled from several machines"
