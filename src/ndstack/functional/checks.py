"""Shape, dtype and device checks shared by the functions on whole sequences."""

from collections.abc import Mapping

from torch import Tensor

from ndstack.errors import NdstackError


def check_sequences(weights: Mapping[str, Tensor], vectors: Tensor) -> None:
    """Raise an error in one line unless all weights are [B, n] and the vectors [B, n, m], m > 0."""
    if vectors.dim() != 3 or vectors.shape[2] == 0:
        raise NdstackError(
            f"vectors of shape {list(vectors.shape)} given, expected [batch, length, size] with "
            "a size of at least 1"
        )
    if not vectors.is_floating_point():
        raise NdstackError(f"vectors of type {vectors.dtype} given, expected floating point")
    for name, weight in weights.items():
        if weight.shape != vectors.shape[:2]:
            raise NdstackError(
                f"{name} of shape {list(weight.shape)} given, expected [batch, length] = "
                f"{list(vectors.shape[:2])}, as the vectors have"
            )
        if weight.dtype != vectors.dtype or weight.device != vectors.device:
            raise NdstackError(
                f"{name} is {weight.dtype} on {weight.device}, but vectors are {vectors.dtype} on "
                f"{vectors.device}; use .to(vectors)"
            )
