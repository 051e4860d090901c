"""A DINOv2 in an ONNX file, as Hugging Face's ``Dinov2Model`` exports it, as the tensors of timm's Vision Transformer.

The exporter keeps the names of biases and norms and renames each matrix after its place in the graph; so a matrix is
found as what is multiplied before its bias is added. Nothing of the file is run.

Shapes: D width, N positions of patches.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from pipeline.digests import digest
from pipeline.errors import UserError
from pipeline.files import sha256_file

CLASS_TOKEN = "embeddings.cls_token"
RENAMED = (  # Hugging Face's name → timm's
    (r"^embeddings\.cls_token$", "cls_token"),
    (r"^embeddings\.patch_embeddings\.projection\.", "patch_embed.proj."),
    (r"^encoder\.layer\.(\d+)\.attention\.output\.dense\.", r"blocks.\1.attn.proj."),
    (r"^encoder\.layer\.(\d+)\.layer_scale(\d)\.lambda1$", r"blocks.\1.ls\2.gamma"),
    (r"^encoder\.layer\.(\d+)\.(norm\d|mlp\.fc\d)\.", r"blocks.\1.\2."),
    (r"^layernorm\.", "norm."),
)
QKV = re.compile(r"^encoder\.layer\.(\d+)\.attention\.attention\.(query|key|value)\.(weight|bias)$")


def dinov2_tensors(path: Path, grid: tuple[int, int]) -> dict[str, Tensor]:
    """The state dict for a timm ViT of DINOv2's kind.

    Args:
        path: the ONNX file.
        grid: height and width of the model's patches; the file's position embedding is resized to it as the exported
            graph resizes it, bicubic and without antialiasing (timm would use antialiasing).

    Raises:
        UserError: ``onnx`` is not installed, a file that cannot be read, or another network.
    """
    graph = _read(path)
    tensors = _named(graph, path)
    state, parts = {}, dict[str, dict[str, Tensor]]()
    for name, tensor in tensors.items():
        if match := QKV.match(name):
            layer, part, kind = match.groups()
            parts.setdefault(f"blocks.{layer}.attn.qkv.{kind}", {})[part] = tensor
        else:
            renamed = [re.sub(old, new, name) for old, new in RENAMED if re.search(old, name)]
            state.update(dict.fromkeys(renamed, tensor))
    state.update({name: torch.cat([part[key] for key in ("query", "key", "value")]) for name, part in parts.items()})
    state["pos_embed"] = _positions(graph, path, grid)
    return state


def onnx_sha256(path: Path) -> str:
    """Of an ONNX file, together with the files beside it that it names, where large models have their weights.

    Raises:
        UserError: ``onnx`` is not installed, a file that cannot be read, or one of those that it names is missing.
    """
    tensors = _tensors_inside(_read(path, load_external_data=False))
    from onnx.external_data_helper import ExternalDataInfo, uses_external_data  # there, once it was read with it

    beside = sorted({ExternalDataInfo(one).location for one in tensors if uses_external_data(one)})
    if missing := [name for name in beside if not (path.parent / name).is_file()]:
        raise UserError(f"backbone.path: {path} has weights in {', '.join(missing)}, which must lie beside it.")
    own = sha256_file(path)
    return digest([own, *(sha256_file(path.parent / name) for name in beside)]) if beside else own


def _tensors_inside(message: Any) -> Iterator[Any]:
    """Every tensor of a protobuf message, however deep: of graphs, their nodes, and graphs in these."""
    from onnx import TensorProto

    for field, value in message.ListFields():
        if field.message_type is not None:
            for one in [value] if hasattr(value, "ListFields") else value:
                if isinstance(one, TensorProto):
                    yield one
                else:
                    yield from _tensors_inside(one)


def _read(path: Path, *, load_external_data: bool = True) -> Any:
    try:
        import onnx
    except ImportError as error:
        raise UserError(f"backbone: reading {path.name} needs the package onnx. Install: pip install onnx") from error
    try:
        return onnx.load(str(path), load_external_data=load_external_data).graph
    except Exception as error:  # protobuf raises its own kind, which onnx does not name
        raise UserError(f"backbone.path: {path} cannot be read as ONNX ({str(error).splitlines()[0]}).") from error


def _tensor(initialiser: Any) -> Tensor:
    from onnx import numpy_helper

    return torch.from_numpy(numpy_helper.to_array(initialiser).copy())


def _named(graph: Any, path: Path) -> Mapping[str, Tensor]:
    """Tensors by their names in Hugging Face's model."""
    held = {item.name: item for item in graph.initializer}
    prefix = next((name.removesuffix(CLASS_TOKEN) for name in held if name.endswith(CLASS_TOKEN)), None)
    if prefix is None:
        raise UserError(
            f"backbone.path: {path} is not a DINOv2 exported from Hugging Face's (it has no tensor {CLASS_TOKEN}), and "
            "no other ONNX file is understood as weights. To run the file as it is, set backbone.source=onnx."
        )
    found = {name.removeprefix(prefix): _tensor(item) for name, item in held.items() if name.startswith(prefix)}
    multiplied = {node.output[0]: node.input[1] for node in graph.node if node.op_type == "MatMul"}
    for node in graph.node:
        bias = next((name for name in node.input if name.startswith(prefix) and name.endswith(".bias")), None)
        matrix = next((multiplied[name] for name in node.input if multiplied.get(name) in held), None)
        if node.op_type == "Add" and bias is not None and matrix is not None:
            found[bias.removeprefix(prefix).removesuffix("bias") + "weight"] = _tensor(held[matrix]).T.contiguous()
    return found


def _positions(graph: Any, path: Path, grid: tuple[int, int]) -> Tensor:
    """The position embedding (1, 1 + N, D), which constant folding has left as two nameless tensors."""
    nameless = [item for item in graph.initializer if item.name.startswith("onnx::") and len(item.dims) == 3]
    of_class = [item for item in nameless if item.dims[1] == 1]
    of_patches = [item for item in nameless if item.dims[1] > 1]
    side = round(of_patches[0].dims[1] ** 0.5) if of_patches else 0
    if len(of_class) != 1 or len(of_patches) != 1 or side**2 != of_patches[0].dims[1]:
        raise UserError(f"backbone.path: {path} has no position embedding as Hugging Face's DINOv2 exports it.")
    patches_1ND = _tensor(of_patches[0])
    width = patches_1ND.shape[2]
    map_1DHW = patches_1ND.reshape(1, side, side, width).permute(0, 3, 1, 2)
    resized = map_1DHW if grid == (side, side) else interpolate(map_1DHW, size=grid, mode="bicubic")
    return torch.cat([_tensor(of_class[0]), resized.permute(0, 2, 3, 1).reshape(1, -1, width)], dim=1)
