"""Models by name: `lstm`, `sup-10`, `rns-2-3`, `tf+vrns-3-3-5`, ... (chapters 5 to 10).

| name | model | where |
|---|---|---|
| `lstm` | the controller alone | 5.7 |
| `strat-m` | stratification stack of vectors of size m | 3.3.1 |
| `sup-m`, `sup-m-m-...` | superposition stack, or several, of vectors of size m | 3.3.2, 8.4 |
| `sup-h` | superposition stack of hidden states | 8.4 |
| `ns-Q-S` | nondeterministic stack of Q states and S symbols | 4 |
| `ns+s-Q-S`, `ns+u-Q-S` | NS that reads states; NS with unnormalised weights | 6.2 |
| `rns-Q-S` | renormalising nondeterministic stack | 6 |
| `vrns-Q-S-m` | the same with vectors of size m | 9 |
| `tf`, `tf+sup-m`, `tf+vrns-Q-S-m` | transformer; with stack attention in the middle layer | 10 |
| `mine-3-4`, `tf+mine-3-4` | registered stack `Mine(3, 4)` in a recurrent network or a transformer | |
| `net-3-4`, `net+rns-2-3` | registered network `Net(input_size, 3, 4)`; or `Net(input_size, stack=...)` | |
"""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import re
from collections.abc import Collection, Iterable

import torch
from pydantic import ValidationError

from ndstack import languages, register
from ndstack.errors import NdstackError, first_problem
from ndstack.languages.language import Language
from ndstack.model_names import NAMES
from ndstack.nn.language_models.language_model import LanguageModel
from ndstack.nn.networks.backbone import Backbone
from ndstack.nn.networks.initialization import initialize
from ndstack.nn.networks.rnn import StackRNN
from ndstack.nn.networks.transformer import LAYERS, LayerKind, Transformer
from ndstack.nn.storage.description import Part, find_part
from ndstack.settings.document import near_name, takes
from ndstack.settings.model import (
    NONDETERMINISTIC,
    RECURRENT,
    REGISTERED,
    SUPERPOSITION,
    TRANSFORMER,
    For,
    InputKind,
    ModelOptions,
)
from ndstack.stacks import Stack, Stratification, Superposition
from ndstack.stacks.base import AnyStack

__all__ = ["NAMES", "ModelName", "build", "build_from", "parse"]

_SIZES: dict[str, tuple[str, int]] = {
    "strat": ("a vector size", 1),
    "sup": ("one or more vector sizes", 0),
    "ns": ("numbers of states and symbols", 2),
    "ns+s": ("numbers of states and symbols", 2),
    "ns+u": ("numbers of states and symbols", 2),
    "rns": ("numbers of states and symbols", 2),
    "vrns": ("numbers of states and symbols and a vector size", 3),
}
"""What follows the name of a stack, and how many numbers that is; 0 for any number of them."""
_DETERMINISTIC = ("strat", "sup", "sup-h")
register.stack.reserve([*_SIZES, "sup-h"])
register.network.reserve(["lstm", "tf", *_SIZES])


@dataclasses.dataclass(frozen=True)
class ModelName:
    """A model name, taken apart: `tf+vrns-3-3-5` is a transformer with "vrns" and (3, 3, 5)."""

    transformer: bool
    stack: str
    """The kind of stack, or the name of a registered one; empty for none."""
    sizes: tuple[int, ...]
    """The numbers of the stack; of a registered network without a stack, its own."""
    network: str = ""
    """The name of a registered network; empty for the recurrent network and the transformer of ndstack."""

    @property
    def nondeterministic(self) -> bool:
        """Whether the stack is one of ndstack's nondeterministic ones."""
        return self.stack in _SIZES and self.stack not in _DETERMINISTIC


def parse(name: str) -> ModelName:
    """Take a model name apart."""
    if name in ("lstm", "tf"):
        return ModelName(name == "tf", "", ())
    if name == "sup-h":
        return ModelName(False, "sup-h", ())
    transformer = name.startswith("tf+")
    kind, *numbers = name.removeprefix("tf+").split("-")
    if kind not in _SIZES:
        return _parse_registered(name)
    wanted, count = _SIZES[kind]
    valid = all(re.fullmatch(r"0*[1-9][0-9]{0,8}", number) for number in numbers)
    if not valid or not numbers or len(numbers) != (count or len(numbers)):
        start = "tf+" + kind if transformer else kind
        example = next((known for known in NAMES if known.startswith(start + "-")), None)
        hint = f", as in {example}" if example else ""
        raise NdstackError(f"there is no model called {name!r}; expected {wanted} after {start!r}{hint}")
    return ModelName(transformer, kind, tuple(int(number) for number in numbers))


def _parse_registered(name: str) -> ModelName:
    """Take the name of a model with a registered part apart."""
    transformer = name.startswith("tf+")
    match = re.fullmatch(r"([a-z][\w-]*?)((?:-[0-9]{1,9})*)", name.removeprefix("tf+"))
    if match is not None:
        kind, sizes = match[1], tuple(int(number) for number in match[2].split("-")[1:])
        if register.stack.find(kind):
            return ModelName(transformer, kind, sizes)
        if not transformer and register.network.find(kind):
            return ModelName(False, "", sizes, kind)
    network, plus, stack = name.partition("+")
    if plus and register.network.find(network):
        inner = parse(stack)
        if inner.stack and not inner.transformer and not inner.network:
            return dataclasses.replace(inner, network=network)
    near = difflib.get_close_matches(name.lower(), NAMES, n=1, cutoff=0.5)
    if near:
        raise NdstackError(f"there is no model called {name!r}; did you mean {near[0]}?")
    known = ", ".join((*NAMES, *register.stack.names, *register.network.names))
    raise NdstackError(f"there is no model called {name!r}; models are {known}; {register.stack.hint}")


@takes(ModelOptions)
def build(
    name: str, language: Language | str | Iterable[str], *, seed: int = 0, **options: object
) -> LanguageModel:
    """Return the language model of this name, with its parameters initialised.

    Args:
        name: as in the table above.
        language: a language, the name of one, or the symbols of an alphabet.
        seed: the seed of the parameters; torch's own random numbers are not touched.
        options: the fields of `ndstack.settings.ModelOptions`, by name.
    """
    try:
        checked = ModelOptions.model_validate(options, strict=True)
    except ValidationError as error:
        problem = first_problem(error) + near_name(error, ModelOptions)
        raise NdstackError(f"{name} cannot be built: {problem}") from None
    if isinstance(language, str) and not language[:1].isalpha():
        raise NdstackError(
            f"{language!r} given, expected a language or its name; an alphabet is a list of symbols, such as "
            f"list({language!r})"
        )
    return build_from(checked, name, language, seed=seed)


def build_from(
    options: ModelOptions, name: str, language: Language | str | Iterable[str], *, seed: int = 0
) -> LanguageModel:
    """Build as `build` does, with options that have been checked."""
    parsed, alphabet = parse(name), _alphabet(language)
    refuse_options(name, parsed, options)
    with torch.random.fork_rng(devices=[]):
        stack = make_stack(name, parsed, options)
        if parsed.network:
            model = _around_registered(name, parsed, options, alphabet, stack)
        elif parsed.transformer:
            count = len(LAYERS) if options.num_layers is None else options.num_layers
            layers: list[LayerKind] = ["attention"] * count
            if stack is not None:
                layers[count // 2] = stack
            same = options.model_dump(include={"d_model", "heads", "feedforward", "dropout", "exp_pushes"})
            model = LanguageModel(
                Transformer(layers=layers, **same), alphabet, "embedding", True, options.output
            )
        else:
            model = _around_rnn(parsed, options, alphabet, stack)
    initialize_from(options, model, seed)
    return model


def initialize_from(options: ModelOptions, model: torch.nn.Module, seed: int) -> None:
    """Give every parameter of a model its first value, as its options say."""
    initialize(
        model,
        seed,
        layers=options.layers_init,
        nondeterministic_actions=options.actions_init,
        attention_actions=options.attention_actions_init,
        nondeterministic_pushes=options.pushes_init,
        tanh_gain=options.tanh_gain,
        stacks_apart=options.stacks_apart,
        bound=options.init_bound,
    )


def _around_rnn(
    parsed: ModelName, options: ModelOptions, alphabet: tuple[str, ...], stack: AnyStack | None
) -> LanguageModel:
    same = {"controller", "reading_layers", "output_reading", "normalize_reading"}
    rnn = StackRNN(
        len(alphabet) if options.embedding is None else options.embedding,
        options.hidden,
        stack,
        1 if options.num_layers is None else options.num_layers,
        push_hidden=parsed.stack == "sup-h",
        **options.model_dump(include=same),
    )
    kind: InputKind = "one-hot" if options.embedding is None else "embedding"
    return LanguageModel(rnn, alphabet, kind, options.embedding is not None, options.output)


def _around_registered(
    name: str, parsed: ModelName, options: ModelOptions, alphabet: tuple[str, ...], stack: AnyStack | None
) -> LanguageModel:
    """Return a model around a registered network, which reads one symbol more if it needs BOS."""
    kind = find_part(parsed.network)
    bos = options.embedding is not None or bool(getattr(kind, "needs_bos", False))
    size = len(alphabet) + bos if options.embedding is None else options.embedding
    sizes = (size,) if stack is not None else (size, *parsed.sizes)
    named: dict[str, object] = {} if stack is None else {"stack": stack}
    network = _make_registered(name, parsed.network, sizes, named | dict(options.arguments))
    assert isinstance(network, Backbone)
    one_hot = options.embedding is None
    return LanguageModel(network, alphabet, "one-hot" if one_hot else "embedding", bos, options.output)


def make_stack(name: str, parsed: ModelName, options: ModelOptions) -> AnyStack | None:
    """Return the stack that a model name asks for."""
    kind, sizes = parsed.stack, parsed.sizes
    if not kind:
        return None
    if kind == "strat":
        return Stratification(sizes[0])
    if kind in ("sup", "sup-h"):
        return Superposition(sizes or (options.hidden,), depth=options.depth)
    if kind not in _SIZES:
        own = {} if parsed.network else options.arguments
        made = _make_registered(name, kind, sizes, dict(own))
        assert isinstance(made, Stack)
        return made
    from ndstack.stacks import Nondeterministic

    return Nondeterministic(
        states=sizes[0],
        symbols=sizes[1],
        vector_size=sizes[2] if kind == "vrns" else None,
        normalized=kind in ("ns", "ns+s"),
        read_states=kind not in ("ns", "ns+u"),
        window=options.window,
        bottom_fix=kind in ("rns", "vrns") if options.bottom_fix is None else options.bottom_fix,
    )


def _make_registered(name: str, kind: str, sizes: tuple[int, ...], arguments: dict[str, object]) -> Part:
    make = find_part(kind)
    assert make is not None
    signature = inspect.signature(make).replace(return_annotation=inspect.Signature.empty)
    try:
        bound = signature.bind(*sizes, **arguments)
    except TypeError as error:
        raise NdstackError(
            f"{name} cannot be built: {make.__name__}{signature}: {error}; numbers follow the name in order, "
            "other arguments are options.arguments"
        ) from None
    return make(*bound.args, **bound.kwargs)


def refuse_options(name: str, parsed: ModelName, options: ModelOptions, more: Collection[For] = ()) -> None:
    """Raise an error in one line if an option is given that this model does not have.

    Args:
        name: the name of the model.
        parsed: the name, taken apart.
        options: the options.
        more: parts that the model has besides those in its name.
    """
    parts: set[For] = {TRANSFORMER if parsed.transformer else RECURRENT, *more}
    if parsed.network:
        parts = {REGISTERED}
    if parsed.stack in ("sup", "sup-h"):
        parts.add(SUPERPOSITION)
    elif parsed.nondeterministic:
        parts.add(NONDETERMINISTIC)
    elif parsed.stack not in ("", "strat"):
        parts.add(REGISTERED)
    for option, field in ModelOptions.model_fields.items():
        value, marks = getattr(options, option), [mark for mark in field.metadata if isinstance(mark, For)]
        if parsed.network and option == "embedding":
            continue
        if parsed.network and option == "num_layers":
            marks = [RECURRENT]
        if value != field.get_default(call_default_factory=True) and marks and marks[0] not in parts:
            raise NdstackError(
                f"{option}={value} given for {name}, but it is for models with {marks[0].part} only"
            )


def _alphabet(language: Language | str | Iterable[str]) -> tuple[str, ...]:
    if isinstance(language, str):
        language = languages.get(language)
    return language.alphabet if isinstance(language, Language) else tuple(language)
