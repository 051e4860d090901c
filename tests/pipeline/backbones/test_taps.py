"""Taps inside networks of every kind, alone and together: the same bytes, checked against timm's parts by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import timm
import torch
import torch._dynamo.utils
from torch import Tensor

from pipeline.backbones import Backbone, groups, make_backbone, make_backbones, pinned, uncompiled
from pipeline.backbones.devices import compiled_of
from pipeline.backbones.tap import Tap
from pipeline.errors import UserError

# A class token; none, average pooling; registers; DINOv2 with registers; DINOv3 (rotary positions, registers); CLIP and
# SigLIP (attention pooling); EVA; relative positions; class token only in the last blocks; four kinds of CNN; windows.
TOKENS = {
    "test_vit": {},
    "test_vit2": {},
    "test_vit3": {},
    "vit_small_patch14_reg4_dinov2": {"size": 28},
    "vit_small_patch16_dinov3": {"size": 32},
    "vit_base_patch32_clip_224.openai": {"size": 64},
    "vit_base_patch16_siglip_224": {"size": 32},
    "eva02_tiny_patch14_224": {"size": 28},
    "beit_base_patch16_224": {"size": 32},
}
MAPS = {
    "test_resnet": 4,
    "test_convnext": 3,
    "test_efficientnet": 4,
    "mobilenetv3_small_050": 4,
    "swin_tiny_patch4_window7_224": 2,  # behind its last stage timm puts the final norm
}


def images(count: int, size: int) -> Tensor:
    return torch.randn(count, 3, size, size, generator=torch.Generator().manual_seed(5))


def values(model: str, **more: Any) -> dict[str, Any]:
    given = {"weights": "random", "num_classes": 7, "device": "cpu", "compute": "fp32", "size": 64}
    return {"model": model, **given, **TOKENS.get(model, {}), **more}


def tap(backbone: Backbone) -> tuple[int, str]:
    return backbone.tap.layer, backbone.tap.pooling


@pytest.fixture(autouse=True)
def smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three narrow blocks of a kind of ViT say as much as twelve."""
    create = timm.create_model

    def shallow(name: str, **options: Any) -> Any:
        if name in TOKENS and not name.startswith("test_"):
            options = {**options, "depth": 3, "embed_dim": 96, "num_heads": 3}
        if name.startswith("swin"):
            options = {**options, "depths": (1, 1, 2, 1), "embed_dim": 24}
        return create(name, **options)

    monkeypatch.setattr(timm, "create_model", shallow)


@pytest.mark.parametrize("model", TOKENS)
def test_taps_of_a_transformer(model: str) -> None:
    """Each by timm's own parts: the truncated network's head, or tokens picked by hand."""
    plain = values(model)
    last = make_backbone(plain)
    network, batch = last.network.model, images(2, last.preprocessing.size)  # type: ignore[attr-defined]
    prefix = network.num_prefix_tokens
    has_class = network.cls_token is not None
    poolings = ["auto", "mean", *(["cls", "cls+mean"] if has_class else [])]
    wanted = [{**plain, "layer": layer, "pooling": pooling} for layer in (-1, 0, 1) for pooling in poolings]
    many = make_backbones(wanted)
    (group,) = groups(many)
    together = group.represent(batch)
    blocks: list[Tensor] = []
    hooks = [block.register_forward_hook(lambda _, __, output: blocks.append(output)) for block in network.blocks]
    with torch.no_grad():
        features = network.forward_features(batch)
        for hook in hooks:
            hook.remove()
        tokens = {-1: features, **{layer: network.norm(blocks[layer]) for layer in (0, 1)}}
        for backbone, result in zip(many, together, strict=True):
            layer, pooling = tap(backbone)
            norm, parts = network.fc_norm, []
            if pooling == "auto":
                parts.append(network.forward_head(tokens[layer], pre_logits=True))
            if pooling.startswith("cls"):
                parts.append(norm(tokens[layer][:, 0]))
            if pooling.endswith("mean"):
                parts.append(norm(tokens[layer][:, prefix:].mean(1)))
            assert torch.equal(result.embedding_BD, torch.cat(parts, dim=1)), (layer, pooling)
            assert result.embedding_BD.shape[1] == backbone.width
    assert torch.equal(together[0].embedding_BD, last.represent(batch).embedding_BD)


@pytest.mark.parametrize("model", [*TOKENS, *MAPS])
def test_one_pass_gives_what_each_tap_gives_alone(model: str) -> None:
    pairs = [(-1, "auto"), (0, "mean"), (1, "auto"), (-1, "mean")]
    wanted = [values(model, layer=layer, pooling=pooling) for layer, pooling in pairs]
    many = make_backbones(wanted)
    (group,) = groups(many)
    batch = images(2, group.members[0].preprocessing.size)
    for value, backbone, result in zip(wanted, many, group.represent(batch), strict=True):
        alone = make_backbone(value)
        assert torch.equal(result.embedding_BD, alone.represent(batch).embedding_BD)
        assert alone.describe() == backbone.describe()
        assert torch.equal(result.embedding_BD, backbone.represent(batch).embedding_BD)


@pytest.mark.parametrize("model", MAPS)
def test_taps_of_a_convolutional_network(model: str) -> None:
    """A layer is a stage, and pooling the mean over all places, of the map that timm's feature extractor gives too."""
    batch = images(2, 64)
    for layer in (1, MAPS[model]):
        backbone = make_backbone(values(model, layer=layer))
        extractor = timm.create_model(
            model, features_only=True, out_indices=(layer,), **({"img_size": 64} if "swin" in model else {})
        ).eval()
        own = backbone.network.model.state_dict()  # type: ignore[attr-defined]
        renamed = {name: own[name if name in own else name.replace("_", ".", 1)] for name in extractor.state_dict()}
        extractor.load_state_dict(renamed)
        with torch.no_grad():
            (maps,) = extractor(batch)
        expected = maps.mean(dim=(1, 2) if "swin" in model else (2, 3))
        torch.testing.assert_close(backbone.represent(batch).embedding_BD, expected, rtol=1e-4, atol=1e-5)
        assert backbone.classifier() is None


def test_only_the_tap_that_the_classifier_reads_has_it() -> None:
    names = [f"c{i}" for i in range(7)]

    def has(**more: Any) -> bool:
        backbone = make_backbone(values("test_vit", class_list=names, **more))
        assert (backbone.classifier() is None) == (backbone.class_names is None)
        assert (backbone.represent(images(1, 64)).logits_BC is None) == (backbone.class_names is None)
        assert backbone.describe()["num_classes"] == (7 if backbone.class_names else 0)
        return backbone.class_names is not None

    assert has()
    assert has(pooling="cls")  # which is what this model's head does
    assert has(layer=5)  # the last block, its output normalised
    assert not has(pooling="mean")
    assert not has(pooling="cls+mean")
    assert not has(layer=4)
    assert make_backbone(values("test_vit2", pooling="mean")).classifier() is not None  # it averages tokens


@pytest.mark.parametrize(
    ("model", "more", "message"),
    [
        ("test_vit2", {"pooling": "cls"}, r"pooling=cls: test_vit2 has no class token\. Valid: auto, mean\."),
        ("test_vit2", {"pooling": "cls+mean", "layer": 1}, r"pooling=cls\+mean: test_vit2 has no class token"),
        ("test_resnet", {"pooling": "cls"}, r"pooling=cls: test_resnet has no class token"),
        ("test_vit", {"layer": 6}, r"layer=6: test_vit has the layers 0 to 5 \(its blocks\), and -1"),
        (
            "test_resnet",
            {"layer": 9},
            r"layer=9: test_resnet has the layers 0 to 4 \(its stages, as timm numbers them\)",
        ),
        ("test_vit", {"layer": -2}, r"backbone\.layer"),
        ("test_vit", {"pooling": "max"}, r"backbone\.pooling"),
    ],
)
def test_what_cannot_be_tapped(model: str, more: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        make_backbone(values(model, **more))


def test_which_backbones_share_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    create = timm.create_model
    monkeypatch.setattr(timm, "create_model", lambda name, **more: made.append(name) or create(name, **more))
    many = make_backbones(
        [
            values("test_vit", layer=1),
            values("test_resnet"),
            values("test_vit"),
            values("test_vit", size=32),
            values("test_vit", compute="bf16"),
            values("test_vit", pooling="mean"),
        ]
    )
    assert made == ["test_vit", "test_resnet", "test_vit", "test_vit"]
    found = [[many.index(member) for member in group.members] for group in groups(many)]
    assert found == [[0, 2, 5], [1], [3], [4]]


def test_no_tap_stops_at_the_last_one_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    backbone = make_backbone(values("test_vit", layer=2))
    seen: list[int] = []
    for i, block in enumerate(backbone.network.model.blocks):  # type: ignore[attr-defined]
        block.register_forward_hook(lambda *_, i=i: seen.append(i))
    backbone.represent(images(1, 64))
    assert seen == [0, 1, 2]


def test_the_first_tap_is_the_default() -> None:
    assert Tap() == Tap(-1, "auto")
    assert make_backbone(values("test_vit", layer=5, pooling="mean")).tap == Tap(-1, "mean")


def test_what_auto_meant_is_pinned() -> None:
    given = {**values("test_resnet"), "compute": "auto", "channels_last": "auto"}
    described = make_backbone(given).describe()
    again = pinned(given, {**described, "compute": "bf16", "compile": True})
    assert {key: again[key] for key in ("compute", "channels_last", "compile", "pooling")} == {
        "compute": "bf16",
        "channels_last": "on",
        "compile": "on",
        "pooling": "auto",
    }
    assert pinned({**given, "compute": "fp32"}, {**described, "compute": "bf16"})["compute"] == "fp32"
    assert again.get("class_list", "auto") == "auto"


class TestCompiled:
    """Layer by layer, so that neither the tap nor the company of others changes what is computed."""

    @pytest.fixture
    def _traced_only(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Traced by torch.compile, but run as traced: the compiler itself takes longer than all other tests here."""
        compile_in_place = torch.nn.Module.compile

        def traced(module: torch.nn.Module, **options: Any) -> None:
            compile_in_place(module, **options, backend="eager")

        monkeypatch.setattr(torch.nn.Module, "compile", traced)

    @pytest.mark.usefixtures("_traced_only")
    @pytest.mark.parametrize("model", ["test_vit", "test_resnet"])
    def test_the_same_numbers(self, model: str) -> None:
        plain = values(model, compile="on")
        many = make_backbones([plain, {**plain, "layer": 1}, {**plain, "pooling": "mean"}])
        assert all(backbone.fixed_batch and backbone.describe()["compile"] is True for backbone in many)
        (group,) = groups(many)
        batch = images(2, 64)
        with count_compiled() as compiled:
            together = group.represent(batch)
        assert compiled() == {"test_vit": 1, "test_resnet": 4}[model], "alike layers are compiled once"
        eager = make_backbone({**plain, "compile": "off"})
        assert not eager.fixed_batch
        assert torch.equal(together[0].embedding_BD, eager.represent(batch).embedding_BD)
        assert torch.equal(together[1].embedding_BD, make_backbone({**plain, "layer": 1}).represent(batch).embedding_BD)
        assert list(many[0].state_dict()) == list(eager.state_dict())

    def test_auto_is_off_on_the_cpu(self) -> None:
        assert make_backbone(values("test_vit")).describe()["compile"] is False
        assert uncompiled(values("test_vit", compile="on"))["compile"] == "off"

    def test_a_network_without_a_list_of_layers(self) -> None:
        with pytest.raises(UserError, match=r"compile=on: inception_v4 has no list of layers"):
            compiled_of("on", torch.device("cpu"), [], "inception_v4")
        assert not compiled_of("auto", torch.device("cuda"), [], "inception_v4")
        assert compiled_of("auto", torch.device("cuda"), [torch.nn.Identity()], "vit")


@contextmanager
def count_compiled() -> Iterator[Callable[[], int]]:
    """How many different graphs torch.compile makes inside."""
    torch._dynamo.reset()
    counters = torch._dynamo.utils.counters
    counters.clear()
    yield lambda: int(counters["stats"]["unique_graphs"])
