"""The bundle's files: written whole, read with every hash checked.

::

    <bundle>/
        model.safetensors   head.*, summary.* and, where it is carried, backbone.*
        config.json         what the tensors are, how the backbone is obtained, scores, hashes
        README.md           the model card

No pickle is written or read. The same model gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import safe_open

from pipeline.digests import digest
from pipeline.errors import DamagedError, UserError
from pipeline.files import (
    move_folder,
    read_json,
    sha256_file,
    sweep_partials,
    temporary_folder,
    write_bytes,
    write_json,
)

if TYPE_CHECKING:
    from torch import Tensor

FORMAT = "hedgerow-model"
VERSION = 1  # raised when an older reader could not read the bundle rightly

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
CARD = "README.md"


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """A bundle as it lies on disk.

    Attributes:
        config: plain values; the writer adds format, version, hashes and the checksum of itself.
        tensors: ``head.*`` and ``summary.*`` as in a head's checkpoint, and ``backbone.*`` if the bundle carries it.
    """

    config: Mapping[str, Any]
    tensors: Mapping[str, Tensor]

    def part(self, prefix: str) -> dict[str, Tensor]:
        """The tensors under ``prefix.``, without it."""
        start = f"{prefix}."
        return {name.removeprefix(start): value for name, value in self.tensors.items() if name.startswith(start)}


def write_bundle(folder: Path, bundle: Bundle, card: str) -> None:
    """Write a bundle into a temporary folder beside ``folder``, then rename it; an older bundle there is replaced.

    What writers left that were killed is swept.
    """
    from safetensors.torch import save  # brings torch along

    sweep_partials(folder.parent)
    with temporary_folder(folder) as temporary:
        write_bytes(temporary / WEIGHTS, save(_separate(bundle.tensors)))
        write_bytes(temporary / CARD, card.encode())
        config = {
            **bundle.config,
            "format": FORMAT,
            "version": VERSION,
            "files": {name: _fingerprint(temporary / name) for name in (WEIGHTS, CARD)},
        }
        write_json(temporary / CONFIG, {**config, "checksum": digest(config)})
        move_folder(temporary, folder)


def read_bundle(folder: Path) -> Bundle:
    """Read a bundle; the config's checksum and the SHA-256 of the weights must be right. The card is not looked at.

    Raises:
        UserError: no bundle there, another format or a newer version, a damaged or missing file (named).
    """
    config = _read_config(folder)
    _require_intact(folder, WEIGHTS, config)
    with safe_open(folder / WEIGHTS, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no mapping)
    return Bundle(config=config, tensors=tensors)


def verify_bundle(folder: Path) -> list[str]:
    """What is wrong with the files of a bundle, the card included; empty when every hash is right."""
    try:
        config = _read_config(folder)
    except UserError as error:
        return [str(error)]
    wrong = []
    for name in config["files"]:
        try:
            _require_intact(folder, name, config)
        except UserError as error:
            wrong.append(str(error))
    return wrong


def how_to_load(folder: str | Path, backbone: Mapping[str, Any], file: str | Path | None = None) -> str:
    """The call that loads a bundle.

    Args:
        folder: where it is.
        backbone: what its config says of that.
        file: where the file of a backbone is that the bundle does not carry; default: its name alone.
    """
    values = backbone["values"]
    if backbone["carried"] or values.get("path") is None:
        return f'hedgerow.load("{folder}")'
    trusted = ", trusted=True" if "trusted" in values else ""  # torch reads such a file with pickle
    return f'hedgerow.load("{folder}", backbone_weights="{file or values["path"]}"{trusted})'


def _separate(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies on the CPU: tied weights share memory, which safetensors refuses."""
    return {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}


def _fingerprint(path: Path) -> dict[str, Any]:
    return {"sha256": sha256_file(path), "bytes": path.stat().st_size}


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / CONFIG
    if not path.is_file():
        raise UserError(f"{folder} is no released model: it has no {CONFIG}. {_where_instead(folder)}")
    try:
        config = read_json(path)
    except DamagedError:
        raise UserError(f"{path} is damaged: it is no JSON. Copy or release the model again.") from None
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise UserError(f"{path} does not describe a released model (its format is not '{FORMAT}').")
    if config.get("version") != VERSION:
        raise UserError(
            f"{path} has format version {config.get('version')}, this Hedgerow reads version {VERSION}. "
            "Load it with the Hedgerow that wrote it, or upgrade this one."
        )
    rest = {key: value for key, value in config.items() if key != "checksum"}
    if config.get("checksum") != digest(rest):
        raise UserError(f"{path} is damaged or was edited: its checksum is wrong. Copy or release the model again.")
    return config


def _where_instead(folder: Path) -> str:
    if folder.parts[:1] and folder.parts[0].endswith(":") and not folder.exists():
        return "A model is loaded from a folder of this machine: copy it here first."
    around = [folder.parent, *sorted(folder.iterdir())] if folder.is_dir() else [folder.parent]
    found = next((place for place in around if (place / CONFIG).is_file() and (place / WEIGHTS).is_file()), None)
    return "Give the folder that stage=release wrote." if found is None else f"Did you mean {found}?"


def _require_intact(folder: Path, name: str, config: Mapping[str, Any]) -> None:
    path, wanted = folder / name, config["files"][name]
    if not path.is_file():
        raise UserError(f"{path} is missing. Copy or release the model again.")
    found = _fingerprint(path)
    if found != wanted:
        raise UserError(
            f"{path} is damaged: {found['bytes']} bytes with SHA-256 {found['sha256'][:12]}…, "
            f"the config says {wanted['bytes']} bytes with {wanted['sha256'][:12]}…. Copy or release the model again."
        )
