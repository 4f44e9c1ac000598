"""Commands that score sentences with a language model: text surprisal, sg, pairs."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ndstack.cli.app import as_epilog
from ndstack.cli.arguments import AsJson, OutPictureIfGiven, as_text
from ndstack.cli.output import print_table
from ndstack.cli.text import RunFolder, open_run, text
from ndstack.errors import NdstackError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ndstack.text.generalization import Averaging, Generalization
    from ndstack.text.scoring import ModelScorer


@text.command(
    epilog=as_epilog(
        "ndstack text surprisal run 'the horse raced past the barn fell' --out fell.svg",
        "ndstack text surprisal run --file sentences.txt --json",
    )
)
def surprisal(
    run: RunFolder,
    sentences: Annotated[
        list[str] | None,
        typer.Argument(metavar="SENTENCE", help="Words, separated by spaces.", callback=as_text),
    ] = None,
    file: Annotated[Path | None, typer.Option(metavar="FILE", help="A file, one sentence per line.")] = None,
    out: OutPictureIfGiven = None,
    as_json: AsJson = False,
) -> None:
    """Show the surprisal of each word of a sentence for the best model of a run, in bits.

    Each sentence is read by itself, after `<eos>`. Words that the model does not know are read as `<unk>` and
    marked with a star.
    """
    from ndstack import plotting
    from ndstack.text.lines import sentences_of
    from ndstack.text.pictures import draw_surprisals
    from ndstack.text.scoring import score_words

    listed = [line.split() for line in (sentences or [])]
    if file is not None:
        listed += list(sentences_of(file))
    if not any(listed) or not all(listed):
        raise NdstackError("no sentence, or an empty one, given; expected words with spaces between them")
    plotting.check_format(out)
    folder, model = open_run(run)
    scored = score_words(model, listed)
    if out is not None:
        plotting.save_figure(draw_surprisals({folder.label: scored}), out)
    if as_json:
        for words in scored:
            print(json.dumps([word._asdict() for word in words]))
        return
    for words in scored:
        rows = [(word.text if word.known else f"{word.text}*", f"{word.bits:.2f}") for word in words]
        print_table(("word", "bits"), [*rows, ("sum", f"{sum(word.bits for word in words):.2f}")], right=1)
    if not all(word.known for words in scored for word in words):
        print("* not in the vocabulary, read as <unk>")
    if out is not None:
        print(f"Plot: {out}")


@text.command(
    epilog=as_epilog(
        "ndstack text sg run suites/",
        "ndstack text sg run1 run2 suites/ --out sg.svg",
        "ndstack text sg run suites/number_src.json --by-suite",
    )
)
def sg(
    paths: Annotated[
        list[Path], typer.Argument(metavar="RUN SUITE", help="Runs, and suites or folders of suites.")
    ],
    averaging: Annotated[
        Literal["dissertation", "hu", "both"], typer.Option(help="The way of averaging; see above.")
    ] = "both",
    by_suite: Annotated[bool, typer.Option("--by-suite", help="Also print a row for each suite.")] = False,
    out: OutPictureIfGiven = None,
    as_json: AsJson = False,
) -> None:
    """Measure syntactic generalization (chapter 7) with test suites in SyntaxGym's format.

    With "dissertation" averaging, each conjunct of a prediction counts; with "hu" averaging, an item counts
    only if the whole prediction holds, and fgd-embed3 and fgd-embed4 are left out. On the suites of Hu et al.
    (2020), chance is 0.50 and 0.285.
    """
    from ndstack import plotting
    from ndstack.progress import progress_bar
    from ndstack.text.generalization import AVERAGINGS, evaluate_suites
    from ndstack.text.pictures import CHANCE, draw_circuits
    from ndstack.text.scoring import ModelScorer
    from ndstack.text.suites import find_suites, read_suite
    from ndstack.training.run import is_run

    runs = [path for path in paths if is_run(path)]
    others = [path for path in paths if not is_run(path)]
    if not runs or not others:
        missing = "run" if not runs else "suites"
        raise NdstackError(f"no {missing} among {', '.join(map(str, paths))}; expected RUN... SUITE...")
    plotting.check_format(out)
    suites = [read_suite(path) for path in find_suites(others)]
    ways = AVERAGINGS if averaging == "both" else (averaging,)
    scorers = {str(run): ModelScorer(open_run(run)[1]) for run in runs}
    with progress_bar("reading sentences", len(runs) * sum(len(one.sentences) for one in suites)) as advance:
        results = {
            name: evaluate_suites(suites, scorer, progress=advance) for name, scorer in scorers.items()
        }
    if out is not None:
        plotting.save_figure(
            draw_circuits(results, ways[0], CHANCE[ways[0]] if len(suites) >= 33 else None), out
        )
    if as_json:
        for name, result in results.items():
            print(
                json.dumps(
                    {"run": name, **_circuits_as_json(result, ways), "unknown": dict(scorers[name].unknown)}
                )
            )
        return
    for way in ways:
        _print_circuits(results, way)
    if by_suite:
        for name, result in results.items():
            _print_suites(name, result, ways)
    for name, scorer in scorers.items():
        _print_unknown(name, scorer)


@text.command(epilog=as_epilog("ndstack text pairs run blimp/*.jsonl"))
def pairs(
    run: RunFolder,
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="JSON lines, as in BLiMP.")],
    tokenized: Annotated[bool, typer.Option("--tokenized", help="Do not separate punctuation.")] = False,
    as_json: AsJson = False,
) -> None:
    """Measure how often the grammatical sentence of a minimal pair is more probable."""
    from ndstack.progress import progress_bar
    from ndstack.text.minimal_pairs import evaluate_pairs, read_pairs
    from ndstack.text.scoring import ModelScorer

    listed = [pair for file in files for pair in read_pairs(file)]
    scorer = ModelScorer(open_run(run)[1])
    with progress_bar("reading pairs", len(listed)) as advance:
        result = evaluate_pairs(listed, scorer, tokenized=tokenized, progress=advance)
    unknown = scorer.unknown.total() / max(1, scorer.words)
    if as_json:
        row = {"pairs": len(listed), "accuracy": result.accuracy, "by_phenomenon": result.by_phenomenon()}
        print(json.dumps({"run": str(run), **row, "unknown": unknown}))
        return
    for name, accuracy in result.by_phenomenon().items():
        print(f"{accuracy:.3f}  {name}")
    print(f"{result.accuracy:.3f}  all {len(listed):,} pairs; {unknown:.1%} of the words read as <unk>")


def _circuits_as_json(result: "Generalization", ways: "Sequence[Averaging]") -> dict[str, object]:
    """Return the scores for JSON: overall, by circuit and by suite, for each way of averaging."""
    return {
        way: {
            "score": result.score(way),
            "circuits": result.by_circuit(way),
            "suites": {one.name: one.accuracy(way) for one in result.suites},
        }
        for way in ways
    }


def _print_circuits(results: "Mapping[str, Generalization]", way: "Averaging") -> None:
    """Print a table like table 7.2, with a row for each model and a column for each circuit."""
    from ndstack.text.generalization import SHORT

    scores = {name: one.by_circuit(way) for name, one in results.items()}
    names = list(dict.fromkeys(circuit for own in scores.values() for circuit in own))
    counted = sum(one.counts(way) for one in next(iter(results.values())).suites)
    print(f'"{way}" averaging, {counted} suite{"s" * (counted != 1)}')
    rows = []
    for name, own in scores.items():
        values = (results[name].score(way), *(own.get(circuit) for circuit in names))
        rows.append((name, *(None if value is None else f"{value:.3f}" for value in values)))
    print_table(("model", "SG score", *(SHORT.get(name, name) for name in names)), rows, right=1)


def _print_suites(name: str, result: "Generalization", ways: "Sequence[Averaging]") -> None:
    """Print a table with a row for each suite."""
    rows = []
    for one in result.suites:
        shown = (f"{one.accuracy(way):.3f}" + ("" if one.counts(way) else " (not counted)") for way in ways)
        rows.append((one.name, one.circuit or "none", len(one.holds), *shown))
    print_table((name, "circuit", "items", *ways), rows, right=2)


def _print_unknown(name: str, scorer: "ModelScorer") -> None:
    """Print how many words a model did not know, and the most frequent of them."""
    count, common = scorer.unknown.total(), ", ".join(word for word, _ in scorer.unknown.most_common(8))
    print(f"{name}: {count:,} of {scorer.words:,} words read as <unk>" + (f": {common} ..." if count else ""))
