"""Models in folders: `model.json` says what the model is made of, `model.safetensors` holds its parameters.

Each file is written to a temporary name and then moved into place, so that a reader never sees half a file.
The parameters carry a checksum. Nothing is ever unpickled.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import safetensors
import safetensors.torch
import torch
from pydantic import ValidationError
from torch import Tensor

from ndstack import files, zoo
from ndstack.errors import NdstackError, first_problem
from ndstack.nn.language_models.language_model import LanguageModel
from ndstack.nn.storage.description import ModelDescription, describe_model
from ndstack.nn.storage.transducers import TransducerDescription, describe_transducer
from ndstack.nn.transducers.transducer import Transducer

CONFIGURATION = "model.json"
PARAMETERS = "model.safetensors"
ZOO_PARAMETERS = "best.safetensors"
"""Networks of the zoo are run folders."""


def describe(model: LanguageModel | Transducer) -> ModelDescription | TransducerDescription:
    """Return what a model is made of."""
    return describe_transducer(model) if isinstance(model, Transducer) else describe_model(model)


def save_model(model: LanguageModel | Transducer, folder: str | Path) -> None:
    """Write a model into a folder, which is made if need be; what it had of an earlier model is replaced."""
    configuration = describe(model)
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        files.replace(folder / PARAMETERS, pack_tensors(model.state_dict()))
        files.replace(folder / CONFIGURATION, (configuration.model_dump_json(indent=2) + "\n").encode())
    except OSError as error:
        raise NdstackError(f"cannot write a model to {folder}: {error.strerror or error}") from None


def load(
    folder: str | Path, device: torch.device | str | None = None, *, parameters: str = PARAMETERS
) -> LanguageModel:
    """Read the model that `save_model` wrote; it is in evaluation mode, ready for use.

    Args:
        folder: where it is; or the name of a network that ships, `zoo:LANGUAGE/MODEL`.
        device: where its parameters go; the CPU if not given.
        parameters: the name of the file that holds them.
    """
    if zoo.is_zoo(folder) and parameters == PARAMETERS:
        parameters = ZOO_PARAMETERS
    model = _load(ModelDescription, zoo.resolve(folder), device, parameters)
    assert isinstance(model, LanguageModel)
    return model


def load_transducer(
    folder: str | Path, device: torch.device | str | None = None, *, parameters: str = PARAMETERS
) -> Transducer:
    """Read the transducer that `save_model` wrote; it is in evaluation mode, ready for use.

    Args:
        folder: where it is.
        device: where its parameters go; the CPU if not given.
        parameters: the name of the file that holds them.
    """
    model = _load(TransducerDescription, Path(folder), device, parameters)
    assert isinstance(model, Transducer)
    return model


def load_any(folder: Path) -> LanguageModel | Transducer:
    """Read a language model or a transducer, whichever `save_model` wrote."""
    described = files.read_json_as(folder / CONFIGURATION, dict[str, object], "a model")
    transducer = described.get("format") == TransducerDescription.model_fields["format"].default
    return load_transducer(folder) if transducer else load(folder)


def _load(
    kind: type[ModelDescription] | type[TransducerDescription],
    folder: Path,
    device: torch.device | str | None,
    parameters: str,
) -> LanguageModel | Transducer:
    """Return the model of a kind in a folder."""
    path = folder / CONFIGURATION
    text = files.read_bytes(path)
    try:
        configuration = kind.model_validate_json(text)
        with torch.device("meta"):
            expected = configuration.make().state_dict()
    except ValidationError as error:
        raise NdstackError(f"{path} does not describe a model: {first_problem(error)}") from None
    except (ValueError, TypeError, OverflowError, RuntimeError) as error:  # of torch, if sizes are too great
        raise NdstackError(f"{path} does not describe a model: {' '.join(str(error).split())}") from None
    tensors, _ = read_tensors(folder / parameters, expected)
    model = configuration.make()
    model.load_state_dict(tensors)
    return model.to(device).eval()


def pack_tensors(tensors: dict[str, Tensor], note: str = "") -> bytes:
    """Return the content of a safetensors file that carries a note and a checksum of everything."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    metadata = {"ndstack": json.dumps({"note": note, "sha256": _checksum(tensors, note)})}
    return safetensors.torch.save(tensors, metadata=metadata)  # one key: the order of several is not fixed


def read_tensors(path: Path, expected: dict[str, Tensor] | None = None) -> tuple[dict[str, Tensor], str]:
    """Return the tensors and the note of a file that `pack_tensors` made.

    Args:
        path: the file.
        expected: tensors of the names, shapes and types that there should be; if not given, any are good.
    """
    tensors, header = _read(path, tensors=True)
    if expected is not None:
        _check_expected(path, tensors, expected)
    note = str(header.get("note", "")) if isinstance(header, dict) else ""
    if not isinstance(header, dict) or header.get("sha256") != _checksum(tensors, note):
        raise NdstackError(f"{path} is damaged: its numbers do not have the checksum it was written with")
    return tensors, note


def read_note(path: Path) -> str:
    """Return the note of a file that `pack_tensors` made, without reading its tensors or its checksum."""
    _, header = _read(path, tensors=False)
    return str(header.get("note", "")) if isinstance(header, dict) else ""


def _read(path: Path, *, tensors: bool) -> tuple[dict[str, Tensor], object]:
    """Return the tensors of a file, if they are wanted, and its header, which may be anything."""
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            found = {name: file.get_tensor(name) for name in (file.keys() if tensors else ())}
            return found, json.loads((file.metadata() or {}).get("ndstack", "{}"))
    except OSError as error:
        raise NdstackError(f"cannot read {path}: {error.strerror or error}") from None
    except (safetensors.SafetensorError, ValueError, RecursionError) as error:
        raise NdstackError(f"{path} is damaged or not a safetensors file: {error}") from None


def _check_expected(path: Path, tensors: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    for problem, names in (
        ("lacks", set(expected) - set(tensors)),
        ("has the unknown", set(tensors) - set(expected)),
    ):
        if names:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            raise NdstackError(f"{path} {problem} {min(names)}{more}; {CONFIGURATION} says otherwise")
    for name, tensor in tensors.items():
        wanted = expected[name]
        if tensor.shape != wanted.shape or tensor.dtype != wanted.dtype:
            raise NdstackError(
                f"{path}: {name} is {list(tensor.shape)} of {tensor.dtype}, expected {list(wanted.shape)} of "
                f"{wanted.dtype} as {CONFIGURATION} says"
            )


def _checksum(tensors: dict[str, Tensor], note: str) -> str:
    digest = hashlib.sha256(note.encode(errors="backslashreplace"))
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {list(tensor.shape)} {tensor.dtype}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
