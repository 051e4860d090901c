"""Networks that come as files: TorchScript, torch.export and ONNX give what the module that was saved gives."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from pipeline.backbones import make_backbone, make_backbones, parse_backbone
from pipeline.errors import UserError
from pipeline.release.assemble import carries
from pipeline.release.licence import backbone_licence

onnx = pytest.importorskip("onnx", reason="pip install onnx")
SIZE, WIDTH = 8, 5
PREPROCESSING = {"size": SIZE, "mean": [0.5] * 3, "std": [0.5] * 3, "crop": 1.0, "interpolation": "bicubic"}


class Net(nn.Module):
    """Patches of 4 × 4 as a map, as tokens behind one zero token, or as their mean."""

    def __init__(self, shape: str) -> None:
        super().__init__()
        self.shape = shape
        with torch.random.fork_rng():
            torch.manual_seed(1)
            self.patch = nn.Conv2d(3, WIDTH, 4, stride=4)

    def forward(self, images_BCHW: Tensor) -> Any:
        map_BDHW = self.patch(images_BCHW)
        if self.shape == "map":
            return map_BDHW
        tokens_BND = nn.functional.pad(map_BDHW.flatten(2).transpose(1, 2), (0, 0, 1, 0))
        if self.shape == "tokens":
            return tokens_BND
        return (tokens_BND.mean(1), map_BDHW) if self.shape == "both" else tokens_BND.mean(1)


def torchscript(net: nn.Module, path: Path, batch: int | None) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        torch.jit.trace(net, torch.zeros(2, 3, SIZE, SIZE)).save(str(path))


def export(net: nn.Module, path: Path, batch: int | None) -> None:
    shapes = None if batch else ({0: torch.export.Dim("batch")},)
    torch.export.save(torch.export.export(net, (torch.zeros(batch or 2, 3, SIZE, SIZE),), dynamic_shapes=shapes), path)


def as_onnx(net: Net, path: Path, batch: int | None) -> None:
    """By hand: torch's exporter needs a further package."""
    weight, bias = (onnx.numpy_helper.from_array(t.detach().numpy(), n) for n, t in net.patch.named_parameters())
    make = onnx.helper.make_node
    nodes = [
        make("Conv", ["images", "weight", "bias"], ["map"], strides=[4, 4]),
        make("Reshape", ["map", "flat"], ["flattened"]),
        make("Transpose", ["flattened"], ["patches"], perm=[0, 2, 1]),
        make("Pad", ["patches", "padding"], ["tokens"]),
        make("ReduceMean", ["tokens"], ["vector"], axes=[1], keepdims=0),
    ]
    constants = {"flat": [0, WIDTH, -1], "padding": [0, 1, 0, 0, 0, 0]}
    held = [weight, bias, *(onnx.numpy_helper.from_array(np.array(v), n) for n, v in constants.items())]
    outputs = {"map": ["map"], "tokens": ["tokens"], "both": ["vector", "map"], "vector": ["vector"]}[net.shape]
    kind = onnx.TensorProto.FLOAT
    given = onnx.helper.make_tensor_value_info("images", kind, [batch or "batch", 3, "height", SIZE])
    said = [onnx.helper.make_tensor_value_info(name, kind, None) for name in outputs]
    graph = onnx.helper.make_graph(nodes, "net", [given], said, held)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(path))


SOURCES: dict[str, Any] = {
    "torchscript": (torchscript, {}),
    "export": (export, {"trusted": True}),
    "onnx": (as_onnx, {"threads": 1}),
}


def saved(source: str, shape: str, folder: Path, batch: int | None = None) -> tuple[Net, dict[str, Any]]:
    if source == "onnx":
        pytest.importorskip("onnxruntime", reason='pip install "hedgerow[onnx]"')
    save, more = SOURCES[source]
    net, path = Net(shape).eval(), folder / f"{shape}.{'pt2' if source == 'export' else 'bin'}"
    save(net, path, batch)
    return net, {"source": source, "path": str(path), "device": "cpu", **PREPROCESSING, **more}


def images(count: int) -> Tensor:
    return torch.randn(count, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("source", SOURCES)
def test_one_vector_an_image(source: str, tmp_path: Path) -> None:
    net, values = saved(source, "vector", tmp_path)
    backbone = make_backbone(values)
    with torch.no_grad():
        expected_BD = net(images(3))
    result = backbone.represent(images(3))
    torch.testing.assert_close(result.embedding_BD, expected_BD, rtol=1e-5, atol=1e-6)
    assert (backbone.width, backbone.name, result.logits_BC, backbone.class_names) == (WIDTH, "vector", None, None)
    assert torch.equal(result.embedding_BD, backbone.represent(images(3)).embedding_BD)
    assert backbone.describe()["weights_sha256"] == backbone.weights_sha256


@pytest.mark.parametrize("source", SOURCES)
def test_tokens_are_pooled(source: str, tmp_path: Path) -> None:
    net, values = saved(source, "tokens", tmp_path)
    many = make_backbones([{**values, "pooling": pooling} for pooling in ("cls", "mean", "cls+mean")])
    assert len({id(backbone.network) for backbone in many}) == 1
    with torch.no_grad():
        tokens_BND = net(images(2))
    first_BD, mean_BD = tokens_BND[:, 0], tokens_BND[:, 1:].mean(1)
    for backbone, expected in zip(many, (first_BD, mean_BD, torch.cat([first_BD, mean_BD], 1)), strict=True):
        torch.testing.assert_close(backbone.represent(images(2)).embedding_BD, expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(UserError, match=r"pooling=auto: .* \(2, 5, 5\)\. Valid: mean, cls, cls\+mean"):
        make_backbone(values)
    with pytest.raises(UserError, match=r"pooling=cls: .*Valid: mean\."):
        make_backbone({**values, "prefix_tokens": 0, "pooling": "cls"})


@pytest.mark.parametrize("source", ["export", "onnx"])
def test_a_file_that_insists_on_its_batch(source: str, tmp_path: Path) -> None:
    """Each row is computed in a batch of that size, whatever comes with it."""
    net, values = saved(source, "vector", tmp_path, batch=2)
    backbone = make_backbone(values)
    with torch.no_grad():
        expected_BD = net(images(5))
    torch.testing.assert_close(backbone.represent(images(5)).embedding_BD, expected_BD, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("source", SOURCES)
def test_several_outputs(source: str, tmp_path: Path) -> None:
    net, values = saved(source, "both", tmp_path)
    with pytest.raises(UserError, match=r"output=None: .* 0: '\w+' \(2, 5\), 1: '\w+' \(2, 5, 2, 2\)"):
        make_backbone(values)
    with torch.no_grad():
        vector_BD, map_BDHW = net(images(2))
    for output, expected in ((0, vector_BD), (1, map_BDHW.mean((2, 3)))):
        found = make_backbone({**values, "output": output}).represent(images(2)).embedding_BD
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(UserError, match=r"output=2: "):
        make_backbone({**values, "output": 2})
    name = {"onnx": "map"}.get(source, "1")
    assert make_backbone({**values, "output": name}).width == WIDTH


@pytest.mark.parametrize("source", SOURCES)
def test_what_is_wrong_is_said(source: str, tmp_path: Path) -> None:
    _, values = saved(source, "vector", tmp_path)
    with pytest.raises(UserError, match=r"does not say what its network was trained with: set crop"):
        make_backbone({key: value for key, value in values.items() if key != "crop"})
    with pytest.raises(UserError, match="no file at"):
        make_backbone({**values, "path": str(tmp_path / "gone")})
    (tmp_path / "noise.pt2").write_bytes(b"noise" * 100)
    with pytest.raises(UserError, match=r"noise\.pt2 cannot be"):
        make_backbone({**values, "path": str(tmp_path / "noise.pt2")})
    with pytest.raises(UserError, match=r"class_list: 1000 names, but the class head of vector has 0"):
        make_backbone({**values, "class_list": "imagenet1k"})
    with pytest.raises(UserError, match=r"backbone\.compile: unknown key"):
        make_backbone({**values, "compile": "on"})
    if source != "torchscript":
        with pytest.raises(UserError, match=r"16"):
            make_backbone({**values, "size": 16})


def test_pickles_are_read_only_by_those_who_say_so(tmp_path: Path) -> None:
    _, values = saved("export", "vector", tmp_path)
    with pytest.raises(UserError, match="runs the code in it; set trusted=true"):
        make_backbone({key: value for key, value in values.items() if key != "trusted"})


def test_a_release_does_not_carry_it(tmp_path: Path) -> None:
    _, values = saved("torchscript", "vector", tmp_path)
    backbone, licence = make_backbone(values), backbone_licence(parse_backbone(values))
    assert not carries(backbone, licence, "auto", max_mb=100)
    with pytest.raises(UserError, match="cannot be carried in a bundle"):
        backbone.state_dict()


@pytest.mark.parametrize("source", SOURCES)
def test_it_is_moved_by_opening_the_same_file_anew(source: str, tmp_path: Path) -> None:
    _, values = saved(source, "map", tmp_path)
    backbone, path = make_backbone({**values, "pooling": "mean"}), Path(values["path"])
    moved = backbone.moved("cpu")
    assert moved.network is not backbone.network
    assert torch.equal(moved.represent(images(3)).embedding_BD, backbone.represent(images(3)).embedding_BD)
    with pytest.raises(UserError, match="nowhere"):
        backbone.moved("nowhere")
    other, _ = saved(source, "tokens", tmp_path)
    SOURCES[source][0](other, path, None)
    with pytest.raises(UserError, match="is another file than the one that was loaded"):
        backbone.moved("cpu")
    path.unlink()
    with pytest.raises(UserError, match="no file at"):
        backbone.moved("cpu")


@pytest.mark.parametrize("where", ["map.bin.data", "weights"])
def test_weights_that_an_onnx_file_has_beside_it_count_as_its_own(where: str, tmp_path: Path) -> None:
    _, values = saved("onnx", "map", tmp_path)
    path, data = Path(values["path"]), tmp_path / where
    alone = make_backbone(values).weights_sha256
    (tmp_path / f"{path.name}.data").write_text("of something else")
    assert make_backbone(values).weights_sha256 == alone
    onnx.save(onnx.load(path), path, save_as_external_data=True, location=where, size_threshold=100)
    before = make_backbone(values)
    assert before.weights_sha256 != alone
    flipped = bytearray(data.read_bytes())
    flipped[0] ^= 1
    data.write_bytes(flipped)
    assert make_backbone(values).weights_sha256 != before.weights_sha256
    data.unlink()
    with pytest.raises(UserError, match=f"has weights in {where}, which must lie beside it"):
        make_backbone(values)
