"""Commands about functions from strings to strings: transductions, transduce."""

import json
from pathlib import Path
from typing import Annotated

import typer

from ndstack.cli.app import command
from ndstack.cli.arguments import (
    AsJson,
    Count,
    Lengths,
    MaxLengthIfGiven,
    OutFolderIfGiven,
    Seed,
    Temperature,
    as_text,
    parse_lengths,
)
from ndstack.cli.output import print_table
from ndstack.errors import NdstackError


def complete_transduction(incomplete: str) -> list[str]:
    """Return the names of transductions that begin with these characters."""
    from ndstack.transductions import NAMES

    return [name for name in NAMES if name.startswith(incomplete)]


@command(
    "ndstack transductions",
    "ndstack transductions stack-manipulation --lengths 8 --count 3",
    "ndstack transductions question-formation --generalization --lengths 1:12",
    "ndstack transductions reverse-string --lengths 1:40 --count 10000 --out pairs",
)
def transductions(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", help="A name that the command lists.", autocompletion=complete_transduction
        ),
    ] = None,
    lengths: Lengths = "1:20",
    count: Count = 10,
    seed: Seed = 0,
    generalization: Annotated[
        bool, typer.Option("--generalization", help="Inputs that tell hierarchical from linear rules.")
    ] = False,
    out: OutFolderIfGiven = None,
    as_json: AsJson = False,
) -> None:
    """List the functions from strings to strings that can be learned, or sample inputs of one with outputs.

    A tab separates an input from its output. With --out, training, validation and test pairs are written as
    tab-separated files to a new folder; there are a tenth as many for validation as for training.
    """
    if name is None:
        _list(as_json)
        return
    import numpy as np

    from ndstack.transductions import get
    from ndstack.transductions.pairs import show

    if out is not None:
        _write(name, out, parse_lengths(lengths), count, seed)
        return
    transduction = get(name)
    if generalization:
        if transduction.generalization is None:
            raise NdstackError(f"{name} has no generalization set; remove --generalization")
        transduction = transduction.generalization
    choices = transduction.lengths(*parse_lengths(lengths))
    if not choices:
        raise NdstackError(f"{transduction.name} has no inputs of lengths {lengths}")
    rng = np.random.default_rng(seed)
    for _ in range(count):
        pair = transduction.sample(choices[int(rng.random() * len(choices))], rng)
        print(json.dumps(pair._asdict()) if as_json else f"{show(pair.source)}\t{show(pair.target)}")


def _list(as_json: bool) -> None:
    """Print all names, what they stand for, and an example of each."""
    import random

    from ndstack.transductions import DESCRIPTIONS, get
    from ndstack.transductions.pairs import show

    rows = []
    for name, about in DESCRIPTIONS.items():
        transduction = get(name)
        length = next(length for length in transduction.lengths(6, 20))
        source, target = map(show, transduction.sample(length, random.Random(1)))
        rows.append({"name": name, "description": about, "source": source, "target": target})
    if as_json:
        print(json.dumps(rows))
        return
    print_table(tuple(rows[0]), [tuple(row.values()) for row in rows], unbroken=("name",))


def _write(name: str, out: Path, lengths: tuple[int, int], count: int, seed: int) -> None:
    from ndstack.files import check_new
    from ndstack.languages import Plan
    from ndstack.transductions import get, make_pairs, write_pairs

    check_new(out)
    plan = Plan(
        train=count,
        validation=max(1, count // 10),
        lengths=lengths,
        test_lengths=lengths,
        test_per_length=max(1, count // 100),
    )
    data = make_pairs(get(name), seed, plan)
    write_pairs(data, out)
    numbers = f"{len(data.train)} training, {len(data.validation)} validation, {len(data.test)} test"
    print(f"{out}: {numbers} pairs of {name}")


@command(
    "ndstack transduce runs/reverse abba bbab",
    "ndstack transduce runs/reverse abba --beam 5 --count 3",
    "ndstack transduce runs/pairs 'the cat sleeps' --json",
)
def transduce(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="A folder that `ndstack train --task transduce` made.")
    ],
    inputs: Annotated[
        list[str],
        typer.Argument(metavar="STRING", help="Inputs; spaces separate long symbols.", callback=as_text),
    ],
    beam: Annotated[int | None, typer.Option(min=1, help="Beam search of this width.")] = None,
    samples: Annotated[bool, typer.Option("--sample", help="Choose symbols at random.")] = False,
    count: Count = 1,
    max_length: MaxLengthIfGiven = None,
    temperature: Temperature = 1.0,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Write the outputs of inputs with the best model of a run.

    By default, the likeliest symbol is chosen at every step. The first column is the log probability of the
    output given the input. If no greatest length is given, it is twice the length of the input, plus 10.
    Sentences for a model of pairs that `ndstack text prepare-pairs` made are divided as these were, and words
    that the model does not know become `<unk>`.
    """
    from ndstack.nn import beam_search, greedy, sample
    from ndstack.text.translation import SPACE, as_sentence, as_symbols
    from ndstack.training import Run
    from ndstack.transductions.pairs import show

    folder = Run.open(run)
    model, pairs = folder.load_transducer(), folder.config.pairs
    subwords = any(symbol.startswith(SPACE) for symbol in model.target)
    for text in inputs:
        word = as_symbols(text, frozenset(model.source), None if pairs is None else Path(pairs.folder))
        longest = max_length or 2 * len(word) + 10
        if beam is not None:
            made = beam_search(model.given([word]), [()], longest, max(beam, count))[0][:count]
        elif samples:
            given = model.given([word] * count)
            made = sample(given, [()] * count, longest, temperature=temperature, seed=seed)
        else:
            made = greedy(model.given([word]), [()], longest)
        for one in made:
            row = {"source": text, "output": one.word, "log_probability": one.log_probability}
            if as_json:
                print(json.dumps({**row, "complete": one.complete}))
            else:
                shown = as_sentence(one.word) if subwords else show(one.word)
                print(f"{one.log_probability:.3f}\t{text}\t{shown}")
