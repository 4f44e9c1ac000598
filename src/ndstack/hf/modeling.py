"""A language model of ndstack with the interface of `transformers`.

There, the logits at a token predict the next one, and BOS is a token like others. Here, a string always
begins with the boundary, which some networks read and others know without reading. So the model reads BOS in
any case, and it makes no difference to the predictions whether it is among the tokens.

BOS is the token of padding, because nothing predicts it: collators give padding no label, and `Trainer`
divides the loss by the number of labels, over all micro-batches of an update, before the model sees any.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig, GenerationMixin, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast

from ndstack import files
from ndstack.errors import NdstackError
from ndstack.hf.cache import NdstackCache
from ndstack.hf.configuration import NdstackConfig
from ndstack.nn import LanguageModel, NetworkState, initialize
from ndstack.nn.language_models.language_model import IGNORED
from ndstack.nn.networks.padding import reorder, symbols_first
from ndstack.nn.storage.files import pack_tensors
from ndstack.training.run import CONFIG, ENVIRONMENT, METRICS, TIMES

_SEEDS = 2**31

_CARD = """\
---
library_name: transformers
tags: [ndstack]
---
A language model of ndstack. Its classes are not part of transformers, so import `ndstack.hf` first
(`pip install 'ndstack[transformers]'`):

```python
import ndstack.hf
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("this folder")
```
"""
"""The text that is saved beside a model, for people who find the folder."""

FOLDER = "ndstack"
"""Where the files of the run are, in the folder of a model that came from one."""

CHECKSUM = "parameters.sha256"
"""The file with the checksum of the parameters that the results of the run are about."""

KEPT = (CONFIG, METRICS, TIMES, ENVIRONMENT, CHECKSUM)
"""The files of a run that are kept."""


def checksum(network: LanguageModel) -> bytes:
    """Return the checksum of the parameters of a network, as text."""
    return hashlib.sha256(pack_tensors(network.state_dict())).hexdigest().encode()


def run_files(folder: Path) -> dict[str, bytes]:
    """Return the files of a run that are kept, by name."""
    return {name: (folder / name).read_bytes() for name in KEPT if (folder / name).is_file()}


class NdstackForCausalLM(PreTrainedModel, GenerationMixin):
    """A causal language model around any network of ndstack.

    A new model begins as `ndstack.nn.initialize` says; the seed is one of torch's random numbers.

    Attributes:
        network: the `LanguageModel` inside, with which everything of ndstack works.
        run: files of the run that it came from, by name, which are saved with it; empty if there is none.
    """

    config_class = NdstackConfig
    base_model_prefix = "network"
    main_input_name = "input_ids"
    supports_gradient_checkpointing = True
    _is_stateful = True

    def __init__(self, config: NdstackConfig) -> None:
        super().__init__(config)
        self.network: LanguageModel = config.description().make()
        if config.dtype is not None:
            self.network.to(config.dtype)
        self.gradient_checkpointing = False
        self.run: dict[str, bytes] = {}
        if self.network.device.type != "meta":
            initialize(self.network, int(torch.randint(_SEEDS, ())))
        self.post_init()

    @classmethod
    def wrap(cls, network: LanguageModel) -> NdstackForCausalLM:
        """Return a model around a copy of this network; it is in evaluation mode."""
        model = cls(NdstackConfig.describe(network))
        model.network.load_state_dict(network.state_dict())
        model.to(network.device, network.dtype).eval()
        return model

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: str | Path, *given: Any, **options: Any) -> Any:
        """Load a model as `transformers` does, and with it the files of the run that it came from.

        Args:
            pretrained_model_name_or_path: a folder, or a name that `transformers` knows.
            given: see `PreTrainedModel.from_pretrained`.
            options: see there.
        """
        found = super().from_pretrained(pretrained_model_name_or_path, *given, **options)
        model = found[0] if isinstance(found, tuple) else found  # with what is told of the loading
        model.run = run_files(Path(pretrained_model_name_or_path) / FOLDER)
        return found

    def save_pretrained(
        self, save_directory: str | Path, is_main_process: bool = True, **options: Any
    ) -> None:
        """Save the model as `transformers` does, with a `README.md`, if there is none, and the run's files.

        Args:
            save_directory: the folder.
            is_main_process: whether this process is the one that writes.
            options: the others of `PreTrainedModel.save_pretrained`.
        """
        if self.config.network is not None:
            dtype = str(self.network.dtype).removeprefix("torch.")
            self.config.network = self.config.network | {"dtype": dtype}
        card = Path(save_directory) / "README.md"
        if is_main_process and not Path(save_directory).is_file() and not card.exists():
            card.parent.mkdir(parents=True, exist_ok=True)
            files.replace(card, _CARD.encode())
        super().save_pretrained(save_directory, is_main_process=is_main_process, **options)
        if is_main_process and self.run:
            kept = Path(save_directory) / FOLDER
            kept.mkdir(exist_ok=True)
            for name, content in self.run.items():
                files.replace(kept / name, content)

    def _init_weights(self, module: torch.nn.Module) -> None:
        """Restore the only buffer that files do not hold; parameters have begun in the constructor."""
        if isinstance(module, LanguageModel) and isinstance(module._one_hot, Tensor):
            with torch.no_grad():
                module._one_hot.copy_(torch.eye(len(module._one_hot)))

    def get_input_embeddings(self) -> torch.nn.Module | None:
        """Return the embedding; None if symbols are read as one-hot vectors."""
        return self.network.embedding

    def get_output_embeddings(self) -> torch.nn.Module:
        """Return the layer that gives logits."""
        return self.network.output

    def resize_token_embeddings(self, *sizes: object, **options: object) -> torch.nn.Module:
        """Refuse to change the alphabet."""
        raise NdstackError("the alphabet of a network is fixed; build another with the symbols that you want")

    def _prepare_cache_for_generation(self, generation_config: GenerationConfig, *given: Any) -> Any:
        """Refuse caches of other kinds, which `generate` would leave aside with no more than a warning."""
        kind = generation_config.cache_implementation
        if kind is not None:
            raise NdstackError(
                f"cache_implementation={kind!r} given, but the cache is the network's state; leave it out"
            )
        return super()._prepare_cache_for_generation(generation_config, *given)

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        """Let `generate` take the cache that the first call returns."""
        return False

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        past_key_values: NdstackCache | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        output_hidden_states: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        return_dict: bool | None = None,
        **options: Any,
    ) -> CausalLMOutputWithPast | tuple[Any, ...]:
        """Return logits [B, n, V+2] for the token after each token and, with labels, the loss.

        Args:
            input_ids: [B, n].
            attention_mask: [B, n], or with a cache [B, all tokens], 0 where there is padding, at any side; by
                default, all of `<pad>` but BOS is padding.
            past_key_values: what an earlier call returned, to continue the same strings.
            inputs_embeds: not available, since a network chooses how it reads symbols.
            labels: [B, n], the tokens again, with -100 where nothing is to be predicted, such as at BOS.
            use_cache: whether to return the state; by default, where there are no labels.
            output_hidden_states: whether to return what logits are computed from; other layers are not kept.
            logits_to_keep: how many of the last tokens get logits, or which; all if 0.
            return_dict: whether to return an object with names instead of a tuple.
            options: for the loss function; whatever else `transformers` gives is ignored.
        """
        tokens = _checked(input_ids, inputs_embeds, past_key_values)
        if past_key_values is None:
            tokens, attention_mask = self._with_bos(tokens, attention_mask)
        hidden, state = self._read(tokens, attention_mask, past_key_values)
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits = self.network.output(hidden[:, kept])
        logits = torch.nn.functional.pad(logits, (0, 1), value=torch.finfo(logits.dtype).min)
        loss = None
        if labels is not None:
            labels = _predictable(labels, attention_mask, counted="num_items_in_batch" in options)
            loss = self.loss_function(logits, labels, vocab_size=self.config.vocab_size, **options)
        cache = None
        if use_cache if use_cache is not None else self.config.use_cache and labels is None:
            cache = self._cache(state, tokens, attention_mask, past_key_values)
        output = CausalLMOutputWithPast(
            loss=loss,
            logits=logits,
            past_key_values=cache,
            hidden_states=(hidden,) if output_hidden_states else None,
        )
        as_object = self.config.return_dict if return_dict is None else return_dict
        return output if as_object else output.to_tuple()

    def _cache(
        self, state: NetworkState, tokens: Tensor, mask: Tensor | None, cache: NdstackCache | None
    ) -> NdstackCache:
        """Return the cache after some tokens, the same object as before, if there was one."""
        n = tokens.shape[1]
        padding = torch.zeros_like(tokens, dtype=torch.bool) if mask is None else mask[:, -n:] == 0
        if cache is None:
            return NdstackCache(state, padding.all(1), n)
        cache.state, cache.unread, cache.tokens = state, cache.unread & padding.all(1), cache.tokens + n
        return cache

    def _with_bos(self, tokens: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return tokens and their mask where padding right before a string is its BOS, if it has none."""
        real = tokens != self.network.boundary + 1
        if mask is not None:
            _check_mask(tokens, mask)
            real = mask[:, mask.shape[1] - tokens.shape[1] :] != 0
        alone = real.sum(1, keepdim=True) == 1  # EOS is the end of a string; more after it, and it begins one
        first = real & (real.cumsum(1) == 1) & ((tokens < self.network.boundary) | alone)
        before = torch.nn.functional.pad(first[:, 1:] & (tokens[:, 1:] <= self.network.boundary), (0, 1))
        if mask is None and tokens.shape[1]:  # a string that is nothing but its BOS
            before[:, -1] |= ~real.any(1)
        return tokens.masked_fill(before, self.network.boundary), real | before

    def _read(
        self, tokens: Tensor, mask: Tensor | None, cache: NdstackCache | None
    ) -> tuple[Tensor, NetworkState]:
        """Return what the logits of each token are computed from, and the state after all of them."""
        tokens, lengths, order = _aligned(tokens, mask)
        if cache is None:
            hidden, state = self._begin(tokens, lengths)
        else:
            if bool((cache.unread & (tokens[:, :1] == self.network.boundary + 1).any(1)).any()):
                raise NdstackError(
                    "BOS given to a string that has had nothing but padding so far; give it in the first call"
                )
            hidden, state = self.network.hidden(self._readable(tokens), cache.state, lengths)
        if order is not None:
            return reorder(hidden, order.argsort(dim=1)), state
        if lengths is not None:  # `generate` takes the next token from the last place, padding or not
            last = torch.tensor(lengths, device=hidden.device)[:, None] - 1
            places = torch.arange(hidden.shape[1], device=hidden.device)
            hidden = reorder(hidden, places.minimum(last.clamp(min=0)))
        return hidden, state

    def _begin(self, tokens: Tensor, lengths: list[int] | None) -> tuple[Tensor, NetworkState]:
        """Read strings from their beginnings, with BOS or without; tokens are first, padding is last."""
        n = tokens.shape[1]
        given = (tokens[:, :1] == self.network.boundary) | (tokens[:, :1] == self.network.boundary + 1)
        given = given if n else given.new_zeros(tokens.shape[0], 1)
        places = torch.arange(n, device=tokens.device)
        symbols = tokens.gather(1, (places + given.long()).clamp(max=max(n - 1, 0)))
        began: list[bool] = given[:, 0].tolist()
        if lengths is not None or any(began):
            sizes = lengths or [n] * len(began)
            lengths = [max(size - bos, 0) for size, bos in zip(sizes, began, strict=True)]
        hidden, state = self._hidden(self._readable(symbols), lengths)
        return reorder(hidden, places + (~given).long()), state

    def _hidden(self, symbols: Tensor, lengths: list[int] | None) -> tuple[Tensor, NetworkState]:
        if not (self.gradient_checkpointing and self.training):
            return self.network.hidden(symbols, None, lengths)
        states: list[NetworkState] = []

        def read(given: Tensor) -> Tensor:
            hidden, state = self.network.hidden(given, None, lengths)
            states.append(state)
            return hidden

        return self._gradient_checkpointing_func(read, symbols), states[0]

    def _readable(self, tokens: Tensor) -> Tensor:
        """Return tokens as symbols; what cannot be read (padding; EOS, for some) ends a string anyway."""
        known, most = self.network.boundary + self.network.bos, self.config.vocab_size
        if tokens.is_cpu and tokens.numel():  # on other devices a look would wait
            low, high = (int(one) for one in tokens.aminmax())
            if low < 0 or high >= most:
                raise NdstackError(f"tokens from {low} to {high} given, expected 0 to {most - 1}")
        ends = (tokens >= known) & (tokens <= self.network.boundary + 1)
        return tokens.masked_fill(ends, 0)


def _aligned(tokens: Tensor, mask: Tensor | None) -> tuple[Tensor, list[int] | None, Tensor | None]:
    """Return tokens with padding last, the lengths, and the order of tokens; None where nothing changes."""
    if mask is None:
        return tokens, None, None
    _check_mask(tokens, mask)
    ignored = mask[:, mask.shape[1] - tokens.shape[1] :] == 0
    if not bool(ignored.any()):
        return tokens, None, None
    order, lengths = symbols_first(ignored), (~ignored).sum(1).tolist()
    return (tokens if order is None else reorder(tokens, order)), lengths, order


def _predictable(labels: Tensor, mask: Tensor | None, counted: bool) -> Tensor:
    """Return the labels without those that come right after padding, where nothing has been read.

    If `Trainer` has counted the labels, it has counted those, too, and would divide the loss by too much.
    """
    if mask is None or mask.shape != labels.shape:
        return labels
    after_padding = torch.nn.functional.pad(mask[:, :-1] == 0, (1, 0))
    if counted and bool((after_padding & (labels != IGNORED)).any()):
        raise NdstackError(
            "labels of BOS given after padding, which Trainer counts though nothing predicts them; give -100 "
            "there, as DataCollatorForLanguageModeling does: labels[labels == tokenizer.bos_token_id] = -100"
        )
    return labels.masked_fill(after_padding, IGNORED)


def _check_mask(tokens: Tensor, mask: Tensor) -> None:
    if mask.dim() != 2 or mask.shape[0] != tokens.shape[0] or mask.shape[1] < tokens.shape[1]:
        raise NdstackError(
            f"attention_mask of shape {list(mask.shape)} given, expected {list(tokens.shape)} or longer"
        )


def _checked(tokens: Tensor | None, embedded: Tensor | None, cache: object) -> Tensor:
    """Return the tokens; raise an error in one line if they, or the cache, are something else."""
    if tokens is None or embedded is not None:
        raise NdstackError("inputs_embeds given, or no input_ids; expected input_ids, tokens of shape [B, n]")
    if tokens.dim() != 2:
        raise NdstackError(f"input_ids of shape {list(tokens.shape)} given, expected [B, n]")
    if tokens.dtype not in (torch.long, torch.int):
        dtype = str(tokens.dtype).removeprefix("torch.")
        raise NdstackError(f"input_ids of dtype {dtype} given, expected whole numbers: input_ids.long()")
    if cache is not None and not isinstance(cache, NdstackCache):
        raise NdstackError(f"a {type(cache).__name__} given as past_key_values, expected an NdstackCache")
    return tokens
