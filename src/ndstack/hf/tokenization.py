"""Tokenizers for models of ndstack: a word, or a character, is a symbol."""

from __future__ import annotations

from tokenizers import Regex, Tokenizer, decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

from ndstack.nn import LanguageModel
from ndstack.text.vocabulary import END, UNKNOWN


def make_tokenizer(model: LanguageModel) -> PreTrainedTokenizerFast:
    """Return the tokenizer of a model, which puts BOS, the token of padding, before every string.

    Strings are split at spaces, or into characters if all symbols are characters. What is not a symbol
    becomes `<unk>`, if there is such a symbol, and an error otherwise. If no symbol has an upper-case letter,
    upper case is read as lower case, as in `ndstack text`.
    """
    alphabet = model.alphabet
    end, pad = _unused(END, alphabet), _unused("<pad>", alphabet)
    vocabulary = {symbol: index for index, symbol in enumerate((*alphabet, end, pad))}
    unknown = UNKNOWN if UNKNOWN in vocabulary else None
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token=unknown or _unused("<none>", alphabet)))
    if all(len(symbol) == 1 for symbol in alphabet):
        tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
        tokenizer.decoder = decoders.Fuse()
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        if unknown and not any(symbol != symbol.lower() for symbol in alphabet):
            tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{pad} $A", special_tokens=[(pad, vocabulary[pad])]
    )
    special = {"bos_token": pad, "eos_token": end, "pad_token": pad}
    special |= {} if unknown is None else {"unk_token": unknown}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, padding_side="left", **special)


def _unused(name: str, alphabet: tuple[str, ...]) -> str:
    """Return a name for a token that is no symbol."""
    while name in alphabet:
        name = f"<{name}>"
    return name
