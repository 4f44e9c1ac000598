"""Commands about formal languages: languages, sample, probability, dataset."""

import json
import math
from pathlib import Path
from typing import Annotated

import typer

from ndstack.cli.app import command
from ndstack.cli.arguments import (
    AsJson,
    Count,
    GrammarFile,
    LanguageName,
    Lengths,
    OutFolder,
    Seed,
    find_language,
    non_empty_lengths,
    parse_lengths,
    parse_word,
    strings,
)
from ndstack.cli.output import nested_lists, print_table
from ndstack.errors import NdstackError


@command("ndstack languages", "ndstack languages --json")
def languages(as_json: AsJson = False) -> None:
    """List the formal languages, each with a sample string."""
    import numpy as np

    from ndstack.languages import DESCRIPTIONS, get

    rows = []
    for name, description in DESCRIPTIONS.items():
        language = get(name)
        word = language.sample(language.lengths(12, 24)[0], np.random.default_rng(1))
        rows.append({"name": name, "strings": description, "sample": "".join(word)})
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    columns = ("name", "strings", "a sample")
    print_table(columns, (list(row.values()) for row in rows), unbroken=("name", "a sample"))
    print("All except hardest-cfl and count-3 can have k symbols, as in marked-reversal(k=40).")
    print("dyck(public) and padded-reversal(public) are those of the dissertation's public code.")


@command(
    "ndstack sample dyck --lengths 40:80 --count 10 --seed 1 --with-probability",
    "ndstack sample --grammar my.cfg --lengths 12 --tree",
)
def sample(
    language: LanguageName = None,
    grammar: GrammarFile = None,
    lengths: Lengths = "40:80",
    count: Count = 10,
    seed: Seed = 0,
    with_probability: Annotated[
        bool, typer.Option("--with-probability", help="Print log p(w | length), in nats, before each string.")
    ] = False,
    tree: Annotated[bool, typer.Option("--tree", help="Print derivation trees (context-free only).")] = False,
    as_json: AsJson = False,
) -> None:
    """Sample strings: first a length uniformly from the non-empty ones, then a string of that length."""
    import numpy as np

    from ndstack.languages import ContextFreeLanguage

    source = find_language(language, grammar)
    choices = non_empty_lengths(source, lengths)
    rng = np.random.default_rng(seed)
    for _ in range(count):
        length = choices[int(rng.random() * len(choices))]
        row: dict[str, object] = {}
        if tree:
            if not isinstance(source, ContextFreeLanguage):
                raise NdstackError(f"{source.name} is not context-free and has no trees; remove --tree")
            derivation = source.table.sample_tree(length, rng)
            word, shown = source.word(derivation.leaves()), str(derivation)
            row["tree"] = nested_lists(derivation)
        else:
            word = source.sample(length, rng)
            shown = source.separator.join(word)
        log_p = source.log_probability(word) if with_probability or as_json else 0.0
        if as_json:
            print(json.dumps({"string": word, "log_probability": log_p, **row}))
        else:
            print(f"{log_p:.6f}\t{shown}" if with_probability else shown)


@command(
    "ndstack probability marked-reversal '01#10' '01#01'",
    "ndstack probability --grammar my.cfg 'the cat sleeps'",
)
def probability(
    words: Annotated[list[str], strings("The strings; spaces or tabs separate long symbols.")],
    grammar: GrammarFile = None,
    as_json: AsJson = False,
) -> None:
    """Print log p(w | length) of strings, in nats, which is -inf outside the language."""
    name = None if grammar else words.pop(0)
    source = find_language(name, grammar)
    if not words:
        raise NdstackError("no strings given; write them after the language: ndstack probability dyck '()'")
    for text in words:
        value = source.log_probability(parse_word(source, text))
        finite = value if math.isfinite(value) else None
        print(json.dumps({"string": text, "log_probability": finite}) if as_json else f"{value:.6f}\t{text}")


@command("ndstack dataset dyck --out data/dyck --seed 1", "ndstack dataset --grammar my.cfg --lengths 10:20")
def dataset(
    language: LanguageName = None,
    grammar: GrammarFile = None,
    out: OutFolder = Path("data"),
    seed: Seed = 0,
    train: Annotated[int, typer.Option(min=0, help="The number of training strings.")] = 10_000,
    validation: Annotated[int, typer.Option(min=0, help="The number of validation strings.")] = 1_000,
    test_per_length: Annotated[int, typer.Option(min=0, help="The number of test strings per length.")] = 100,
    lengths: Lengths = "40:80",
    test_lengths: Annotated[
        str, typer.Option(metavar="LOW:HIGH", help="Lengths of test strings.")
    ] = "40:100",
    batch_size: Annotated[int, typer.Option(min=1, help="The number of strings per batch.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Sample training, validation and test strings into a new folder."""
    from ndstack.files import check_new
    from ndstack.languages import Plan, make_dataset, write_dataset
    from ndstack.progress import progress_bar

    check_new(out)  # before strings are sampled, which may take long
    source = find_language(language, grammar)
    plan = Plan(
        train=train,
        validation=validation,
        test_per_length=test_per_length,
        lengths=parse_lengths(lengths),
        test_lengths=parse_lengths(test_lengths),
        batch_size=batch_size,
    )
    total = train + validation + test_per_length * len(source.lengths(*plan.test_lengths))
    with progress_bar(f"sampling {source.name}", total) as advance:
        data = make_dataset(source, seed, plan, progress=advance)
    write_dataset(data, out)
    if as_json:
        counts = {"train": train, "validation": validation, "test": len(data.test)}
        print(json.dumps({"folder": str(out), "language": source.name, "seed": seed, **counts}))
        return
    print(f"{out}: {train} training, {validation} validation, {len(data.test)} test strings of {source.name}")
