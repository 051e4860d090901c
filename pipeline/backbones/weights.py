"""Weights files of several makers, read without running anything in them, and fitted onto a model or refused."""

from __future__ import annotations

import hashlib
import pickle
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from pipeline.backbones.onnx_weights import dinov2_tensors, onnx_sha256
from pipeline.errors import UserError
from pipeline.files import sha256_file

TENSOR_FILES = (".safetensors", ".pth", ".pt")
SUFFIXES = (*TENSOR_FILES, ".npz", ".onnx")
SHOWN = 5  # names in a message


def load_weights(model: nn.Module, path: Path, *, match: str) -> None:
    """Put the tensors of ``path`` into ``model``, every one of them.

    Args:
        model: any timm model.
        path: a state dict as safetensors or pth/pt, a JAX ViT as npz, or a DINOv2 as onnx.
        match: ``names``, or ``order`` where only the names differ.

    Raises:
        UserError: no such file, an unknown kind, damaged, or its tensors are not those of the model.
    """
    if not path.is_file():
        raise UserError(f"backbone.path: no weights file at {path}.")
    if path.suffix == ".npz":
        _load_npz(model, path)
    elif path.suffix == ".onnx":
        _load_onnx(model, path)
    elif path.suffix in TENSOR_FILES:
        model.load_state_dict(_fitted(model.state_dict(), _read(path), path, match))
    else:
        raise UserError(f"backbone.path: {path} is none of {', '.join(SUFFIXES)}.")


def _read(path: Path) -> Mapping[str, Tensor]:
    from timm.models import load_state_dict  # where weights are read: timm takes seconds to import

    try:
        loaded = load_state_dict(str(path), device="cpu", weights_only=True)
    except (SafetensorError, pickle.UnpicklingError, RuntimeError, EOFError) as error:
        raise UserError(
            f"backbone.path: {path} cannot be read as a state dict ({_first_line(error)}). "
            "Pickled code is never run: save the state dict alone, best as safetensors."
        ) from error
    if not isinstance(loaded, Mapping) or not all(isinstance(value, Tensor) for value in loaded.values()):
        raise UserError(f"backbone.path: {path} holds more than tensors. Save the state dict alone.")
    return loaded


def _fitted(wanted: Mapping[str, Tensor], given: Mapping[str, Tensor], path: Path, match: str) -> Mapping[str, Tensor]:
    if match == "order":
        return _in_order(wanted, given, path)
    missing = [name for name in wanted if name not in given]
    unexpected = [name for name in given if name not in wanted]
    misshapen = [name for name in wanted if name in given and wanted[name].shape != given[name].shape]
    if not (missing or unexpected or misshapen):
        return given
    shapes = [f"{name} is {tuple(given[name].shape)}, not {tuple(wanted[name].shape)}" for name in misshapen]
    lines = [
        f"  {what}: {_some(names)}"
        for what, names in (("missing", missing), ("unknown to the model", unexpected), ("another shape", shapes))
        if names
    ]
    raise UserError("\n".join([f"backbone.path: {path} does not fit the model.", *lines, _remedy(wanted, given)]))


def _remedy(wanted: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> str:
    if _first_disorder(wanted, given) is None:
        return "All shapes agree in order, so only the names differ: set backbone.match=order."
    return "Check backbone.model, and backbone.num_classes if it is the class head that differs."


def _in_order(wanted: Mapping[str, Tensor], given: Mapping[str, Tensor], path: Path) -> Mapping[str, Tensor]:
    disorder = _first_disorder(wanted, given)
    if disorder is not None:
        raise UserError(f"backbone.match=order: {path} does not fit the model: {disorder}.")
    return dict(zip(wanted, given.values(), strict=True))


def _first_disorder(wanted: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> str | None:
    """The first pair that cannot be one tensor under two names: another shape, or another last part of the name."""
    if len(wanted) != len(given):
        return f"it has {len(given)} tensors, the model {len(wanted)}"
    for (name, tensor), (other, value) in zip(wanted.items(), given.items(), strict=True):
        if tensor.shape != value.shape or name.rsplit(".", 1)[-1] != other.rsplit(".", 1)[-1]:
            return f"'{other}' {tuple(value.shape)} cannot be '{name}' {tuple(tensor.shape)}"
    return None


def _load_npz(model: nn.Module, path: Path) -> None:
    load = getattr(model, "load_pretrained", None)
    if load is None:
        raise UserError(f"backbone.path: {path}: timm reads npz files for Vision Transformers in the JAX layout only.")
    if not zipfile.is_zipfile(path):
        raise UserError(f"backbone.path: {path} is damaged or no npz file.")
    # timm passes over what the file lacks; what is still NaN afterwards was never loaded
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(torch.nan)
    try:
        load(str(path))
    except (KeyError, ValueError, RuntimeError, AssertionError, OSError) as error:
        raise UserError(f"backbone.path: {path} is not a JAX ViT of this size ({_first_line(error)}).") from error
    left = [name for name, parameter in model.named_parameters() if parameter.isnan().any()]
    if left:
        raise UserError(
            f"backbone.path: {path} has no values for {_some(left)}. "
            "If it is the class head, set backbone.num_classes to that of the file (0 = without one)."
        )


def _load_onnx(model: nn.Module, path: Path) -> None:
    grid = getattr(getattr(model, "patch_embed", None), "grid_size", None)
    if grid is None:
        raise UserError(
            f"backbone.path: {path}: weights from ONNX are understood for DINOv2's Vision Transformers only. "
            "To run the file as it is, set backbone.source=onnx."
        )
    wanted = model.state_dict()
    model.load_state_dict(_fitted(wanted, dinov2_tensors(path, grid), path, "names"))


def weights_file_sha256(path: Path) -> str:
    """Of a file that :func:`load_weights` reads, with all that is read with it.

    Raises:
        UserError: an ONNX file that cannot be read.
    """
    return onnx_sha256(path) if path.suffix == ".onnx" else sha256_file(path)


def state_dict_sha256(state: Mapping[str, Tensor]) -> str:
    """Hex SHA-256 of names, dtypes, shapes and bytes, in the order of the names."""
    total = hashlib.sha256()
    for name in sorted(state):
        tensor = state[name].detach().cpu().contiguous()
        total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        total.update(tensor.flatten().view(torch.uint8).numpy().tobytes())
    return total.hexdigest()


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:SHOWN]) + (f", … ({len(names)} in all)" if len(names) > SHOWN else "")


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
