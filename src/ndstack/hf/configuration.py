"""The configuration of a model: what `model.json` says, and the tokens that stand for no symbol."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from pydantic import JsonValue, ValidationError
from transformers import PreTrainedConfig

from ndstack.errors import NdstackError, first_problem
from ndstack.languages.language import Language
from ndstack.nn import LanguageModel, models
from ndstack.nn.storage.description import ModelDescription, describe_model


class NdstackConfig(PreTrainedConfig):
    """What a `NdstackForCausalLM` is made of.

    Token i is symbol i of the alphabet. EOS comes after the last symbol, and after it comes padding, whose
    probability is 0; where a string begins, it is BOS.

    Attributes:
        network: the content of `model.json`; `describe` and `of` make it.
    """

    model_type = "ndstack"
    keys_to_ignore_at_inference: ClassVar[list[str]] = ["past_key_values"]

    network: dict[str, JsonValue] | None = None
    vocab_size: int = 1
    bos_token_id: int | None = None
    eos_token_id: int | None = None
    pad_token_id: int | None = None
    use_cache: bool = True
    tie_word_embeddings: bool = False

    @classmethod
    def describe(cls, model: LanguageModel) -> NdstackConfig:
        """Return the configuration of a language model."""
        boundary = model.boundary
        return cls(
            network=describe_model(model).model_dump(mode="json"),
            vocab_size=boundary + 2,
            bos_token_id=boundary + 1,
            eos_token_id=boundary,
            pad_token_id=boundary + 1,
        )

    @classmethod
    def of(cls, name: str, language: Language | str | Iterable[str], **options: Any) -> NdstackConfig:
        """Return the configuration of a model by name, for training from scratch.

        Args:
            name: such as `rns-2-3`.
            language: a language, the name of one, or the symbols of an alphabet.
            options: as of `ndstack.nn.models.build`.
        """
        return cls.describe(models.build(name, language, **options))

    def description(self) -> ModelDescription:
        """Return the description of the network, checked."""
        if self.network is None:
            raise NdstackError(
                "an NdstackConfig without a network given; NdstackConfig.of('rns-2-3', 'dyck') has one"
            )
        try:
            return ModelDescription.model_validate(self.network)
        except ValidationError as error:
            raise NdstackError(
                f"the configuration does not describe a network: {first_problem(error)}"
            ) from None
