"""Models in folders: `model.json` says what the model is made of, `model.safetensors` holds its parameters.

Each file is written to a temporary name and then moved into place, so that a reader never sees half a file.
The parameters carry a checksum. Nothing is ever unpickled.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

import safetensors
import safetensors.torch
import torch
from pydantic import ValidationError
from torch import Tensor

from ndstack.errors import NdstackError
from ndstack.nn.configuration import ModelConfig, describe, first_problem
from ndstack.nn.language_model import LanguageModel

CONFIGURATION = "model.json"
PARAMETERS = "model.safetensors"


def save(model: LanguageModel, folder: str | Path) -> None:
    """Write a model into a folder, which is made if need be; what it had of an earlier model is replaced."""
    configuration = describe(model)
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write(folder / PARAMETERS, pack(model.state_dict()))
        _write(folder / CONFIGURATION, (configuration.model_dump_json(indent=2) + "\n").encode())
    except OSError as error:
        raise NdstackError(f"cannot write a model to {folder}: {error.strerror or error}") from None


def load(folder: str | Path, device: torch.device | str | None = None) -> LanguageModel:
    """Read the model that `save` wrote; it is in evaluation mode, ready for use.

    Args:
        folder: where it is.
        device: where its parameters go; the CPU if not given.
    """
    path = Path(folder) / CONFIGURATION
    try:
        text = path.read_bytes()
    except OSError as error:
        raise NdstackError(f"cannot read {path}: {error.strerror or error}") from None
    try:
        configuration = ModelConfig.model_validate_json(text)
        with torch.device("meta"):
            expected = configuration.make().state_dict()
    except ValidationError as error:
        raise NdstackError(f"{path} does not describe a model: {first_problem(error)}") from None
    except (NdstackError, RuntimeError) as error:  # of torch, if sizes are too great
        raise NdstackError(f"{path} does not describe a model: {' '.join(str(error).split())}") from None
    tensors = unpack(Path(folder) / PARAMETERS, expected)
    model = configuration.make()
    model.load_state_dict(tensors)
    return model.to(device).eval()


def pack(tensors: dict[str, Tensor]) -> bytes:
    """The content of a safetensors file that carries a checksum."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    return safetensors.torch.save(tensors, metadata={"sha256": _checksum(tensors)})


def unpack(path: Path, expected: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a file, if they have the names, shapes and types of those expected."""
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            _check_names(path, set(file.keys()), set(expected))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            checksum = (file.metadata() or {}).get("sha256")
    except OSError as error:
        raise NdstackError(f"cannot read {path}: {error.strerror or error}") from None
    except safetensors.SafetensorError as error:
        raise NdstackError(f"{path} is damaged or not a safetensors file: {error}") from None
    for name, tensor in tensors.items():
        wanted = expected[name]
        if tensor.shape != wanted.shape or tensor.dtype != wanted.dtype:
            raise NdstackError(
                f"{path}: {name} is {list(tensor.shape)} of {tensor.dtype}, expected {list(wanted.shape)} of "
                f"{wanted.dtype} as {CONFIGURATION} says"
            )
    if checksum != _checksum(tensors):
        raise NdstackError(f"{path} is damaged: its numbers do not have the checksum it was written with")
    return tensors


def _check_names(path: Path, found: set[str], expected: set[str]) -> None:
    for problem, names in (("lacks", expected - found), ("has the unknown", found - expected)):
        if names:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            raise NdstackError(f"{path} {problem} {min(names)}{more}; {CONFIGURATION} says otherwise")


def _checksum(tensors: dict[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {list(tensor.shape)} {tensor.dtype}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _write(path: Path, content: bytes) -> None:
    """Replace a file in one move."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        mask = os.umask(0)
        os.umask(mask)
        Path(name).chmod(0o666 & ~mask)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
