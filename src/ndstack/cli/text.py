"""Commands about natural language: text prepare, train, evaluate, generate, surprisal, sg, pairs."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ndstack.cli.app import Interrupted, app
from ndstack.cli.arguments import AsJson, Seed
from ndstack.errors import NdstackError

if TYPE_CHECKING:
    from ndstack.nn import LanguageModel
    from ndstack.training import Run
    from ndstack.training.launch import Show

text = typer.Typer(
    help="Natural language: corpora, perplexity, surprisals, syntactic generalization.",
    epilog="Examples:\n\nndstack text prepare my-text --out corpus\n\n"
    "ndstack text train corpus --model vrns-3-3-5 --out run\n\n"
    "ndstack text evaluate run\n\nndstack text sg run suites/",
    rich_markup_mode="markdown",
    no_args_is_help=True,
)
app.add_typer(text, name="text", rich_help_panel="Natural language")

RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="A folder that `ndstack text train` made.")]
Picture = Annotated[
    Path | None, typer.Option("--out", metavar="FILE.svg", help="Where a picture goes (.svg, .png or .pdf).")
]
Part = Literal["test", "valid", "train"]


@text.command(epilog="Example: ndstack text example --out example --sentences 3000")
def example(
    out: Annotated[Path, typer.Option(help="A new folder.")],
    sentences: Annotated[int, typer.Option(min=10, help="Of the training part.")] = 3000,
    seed: Seed = 0,
) -> None:
    """Make a small English-like text from a grammar, with test suites and minimal pairs that fit it."""
    from ndstack.text.example import write_example

    write_example(out, sentences, seed)
    print(f"{out}: train.txt, valid.txt, test.txt, pairs.jsonl and suites/")


@text.command(
    epilog="Examples:\n\nndstack text prepare my-text/ --out corpus\n\n"
    "ndstack text prepare book.txt --out corpus --size 10000\n\n"
    "ndstack text prepare other/ --out corpus2 --vocabulary corpus/vocabulary.txt"
)
def prepare(
    source: Annotated[
        Path,
        typer.Argument(metavar="IN", help="A tokenised text file, or a folder: train.txt, valid.txt, ..."),
    ],
    out: Annotated[Path, typer.Option(help="A new folder for the corpus.")],
    size: Annotated[int | None, typer.Option(help="At most so many types, <unk> and <eos> included.")] = None,
    min_count: Annotated[int, typer.Option(min=1, help="Leave out words that occur less often.")] = 1,
    vocabulary: Annotated[
        Path | None, typer.Option(metavar="FILE", help="One word a line, instead of counting them.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Turn tokenised text into a corpus: a vocabulary and files of indices, in constant memory.

    Words are what stands between spaces; <eos> is added after every line. The vocabulary is that of the
    training part; all other words become <unk>.
    """
    from ndstack.progress import progress_bar
    from ndstack.text.preparation import prepare, work
    from ndstack.text.vocabulary import read_vocabulary

    known = None if vocabulary is None else read_vocabulary(vocabulary)
    with progress_bar(f"reading {source} (bytes)", work(source, known is None)) as advance:
        corpus = prepare(source, out, size=size, min_count=min_count, vocabulary=known, progress=advance)
    if as_json:
        print(corpus.header.model_dump_json())
        return
    print(f"{out}: {corpus.header.types:,} types")
    for name, split in corpus.header.splits.items():
        share = split.unknown / split.tokens
        print(f"  {name:5} {split.tokens:>12,} tokens, {split.lines:>10,} lines, {share:.2%} <unk>")


@text.command(
    epilog="Examples:\n\nndstack text train corpus --model vrns-3-3-5 --window 35 --hidden 256 --out run\n\n"
    "ndstack text train --resume run\n\n"
    "ndstack text train corpus --model lstm --out run2 --processes 2 --set training.clip=0.5"
)
def train(
    corpus: Annotated[
        Path | None, typer.Argument(metavar="[CORPUS]", help="A folder that `ndstack text prepare` made.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Such as lstm, sup-22, sup-h, rns-2-3, vrns-3-3-5, tf.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="A new folder for the run.")] = None,
    resume: Annotated[Path | None, typer.Option(metavar="RUN", help="Go on with this run.")] = None,
    hidden: Annotated[int, typer.Option(min=1, help="Units, and size of embeddings.")] = 256,
    window: Annotated[int, typer.Option(min=1, help="D of nondeterministic stacks.")] = 35,
    depth: Annotated[int, typer.Option(min=1, help="Of superposition stacks.")] = 10,
    adaptive: Annotated[bool, typer.Option("--adaptive", help="Adaptive softmax: for many words.")] = False,
    rows: Annotated[int | None, typer.Option(help="Into which the text is folded [32].")] = None,
    length: Annotated[int | None, typer.Option(help="Of the chunks of truncated BPTT [35].")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="At the beginning [20; tf: 0.001].")] = None,
    clip: Annotated[float | None, typer.Option(help="Greatest norm of a gradient [0.25; tf: 1].")] = None,
    max_epochs: Annotated[int | None, typer.Option(help="The greatest number of epochs [100].")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Of the parameters.")] = None,
    processes: Annotated[int | None, typer.Option(help="Each takes a share of the rows [1].")] = None,
    threads: Annotated[int | None, typer.Option(help="Of each process [all cores].")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Any setting: training.decay=0.5.")
    ] = None,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write for TensorBoard, too.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show the result only.")] = False,
    as_json: AsJson = False,
) -> None:
    """Train a language model by truncated BPTT, with the recipe of section 7.3 unless told otherwise.

    Interrupt it at any time; --resume goes on in the middle of an epoch, with the same numbers to the last
    bit. On a terminal there are progress bars, elsewhere one line of JSON an epoch.
    """
    from ndstack.text import launch
    from ndstack.training import Run, change_settings
    from ndstack.training.config import merge, parse_setting

    values: dict[str, Any] = {}
    flags: dict[str, dict[str, Any]] = {
        "training": {
            "learning_rate": learning_rate,
            "clip": clip,
            "max_epochs": max_epochs,
            "processes": processes,
            "threads": threads,
        },
        "corpus": {"rows": rows, "length": length},
        "options": {"output": "adaptive" if adaptive else None},
    }
    for table, given in flags.items():
        values |= {table: own} if (own := {k: v for k, v in given.items() if v is not None}) else {}
    values |= {} if seed is None else {"seed": seed}
    for setting in settings or []:
        values = merge(values, parse_setting(setting))
    show: Show = "nothing" if quiet else "terminal" if sys.stderr.isatty() and not as_json else "json"
    if resume is not None:
        if out is not None or corpus is not None or model is not None:
            raise NdstackError("--resume and CORPUS, --model or --out given; expected --resume alone")
        change_settings(resume, values)
        config, folder = None, resume
    else:
        if corpus is None or model is None or out is None:
            raise NdstackError("expected CORPUS, --model NAME and --out FOLDER, or --resume FOLDER")
        config = launch.configure(corpus, model, hidden=hidden, window=window, depth=depth, settings=values)
        folder = out
    try:
        result = launch.train(folder, config, show=show, tensorboard=tensorboard)
    except KeyboardInterrupt:
        raise Interrupted(f"ndstack text train --resume {folder} goes on") from None
    name = Run.open(folder).config.model
    if as_json or not sys.stdout.isatty():
        print(json.dumps({"run": str(folder), "model": name, **result.summary()}))
    else:
        print(
            f"{folder}: {name}: validation perplexity {result.best['perplexity']:.2f} at epoch "
            f"{result.best_epoch} of {result.epochs}; {result.reason}"
        )


@text.command(
    epilog="Examples:\n\nndstack text evaluate run\n\nndstack text evaluate run --split valid --rows 1"
)
def evaluate(
    run: RunFolder,
    split: Annotated[Part, typer.Option(help="Which part of the corpus.")] = "test",
    corpus: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Another corpus with the same vocabulary.")
    ] = None,
    rows: Annotated[int | None, typer.Option(min=1, help="As in training if not given.")] = None,
    as_json: AsJson = False,
) -> None:
    """Measure the perplexity of the best model of a run; every token counts, <eos> included."""
    from ndstack.progress import progress_bar
    from ndstack.text import launch, task
    from ndstack.text.corpus import read_corpus

    folder, model = _open(run)
    settings = launch.corpus_of(folder.config)
    data = launch.open_corpus(settings) if corpus is None else read_corpus(corpus)
    task.check_fit(data, model)
    part = task.batches(model, data[split], rows or settings.rows, settings.length)
    with progress_bar(f"reading {split}", len(part)) as advance:
        total = task.total_nats(model, part, progress=advance)
    value = task.perplexity(total)
    if as_json:
        row = {"split": split, "tokens": total.symbols, "cross_entropy": total.cross_entropy}
        print(json.dumps({"run": str(run), **row, "perplexity": value}))
    else:
        print(f"{split}: perplexity {value:.2f} over {total.symbols:,} tokens")


@text.command(
    epilog="Examples:\n\nndstack text generate run --count 5\n\n"
    "ndstack text generate run --prefix 'the company' --temperature 0.7"
)
def generate(
    run: RunFolder,
    count: Annotated[int, typer.Option(min=1, help="How many sentences.")] = 10,
    prefix: Annotated[str, typer.Option(help="What they begin with.")] = "",
    max_length: Annotated[int, typer.Option(min=1, help="Cut off after so many words.")] = 60,
    temperature: Annotated[float, typer.Option(help="Below 1 the likely becomes likelier.")] = 1.0,
    greedy: Annotated[bool, typer.Option("--greedy", help="Always the likeliest word.")] = False,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Let the best model of a run write sentences, each after <eos>."""
    from ndstack.nn import greedy as take_best
    from ndstack.nn import sample
    from ndstack.text.vocabulary import Vocabulary

    _, model = _open(run)
    vocabulary = Vocabulary(model.alphabet)
    start = tuple(vocabulary.decode(vocabulary.encode(prefix.split())))
    if greedy:
        made = take_best(model, [start], max_length)
    else:
        made = sample(model, [start] * count, max_length, temperature=temperature, seed=seed)
    for one in made:
        if as_json:
            row = {"words": one.word, "log_probability": one.log_probability, "complete": one.complete}
            print(json.dumps(row))
        else:
            print(" ".join(one.word) + ("" if one.complete else " ..."))


@text.command(
    epilog="Examples:\n\nndstack text surprisal run 'the horse raced past the barn fell' --out fell.svg\n\n"
    "ndstack text surprisal run --file sentences.txt --json"
)
def surprisal(
    run: RunFolder,
    sentences: Annotated[
        list[str] | None, typer.Argument(metavar="SENTENCE...", help="Words with spaces.")
    ] = None,
    file: Annotated[Path | None, typer.Option(metavar="FILE", help="A sentence a line.")] = None,
    out: Picture = None,
    as_json: AsJson = False,
) -> None:
    """Show how surprising each word of a sentence is to the best model of a run, in bits.

    Each sentence is read on its own, after <eos>. Words that the model does not know are read as <unk> and
    marked with a star.
    """
    from rich.console import Console
    from rich.table import Table

    from ndstack import plotting
    from ndstack.text.lines import sentences_of
    from ndstack.text.pictures import draw_surprisals
    from ndstack.text.scoring import score_words

    listed = [line.split() for line in (sentences or [])]
    if file is not None:
        listed += list(sentences_of(file))
    if not any(listed) or not all(listed):
        raise NdstackError("no sentence, or an empty one, given; expected words with spaces between them")
    if out is not None:
        plotting.check_format(out)
    folder, model = _open(run)
    scored = score_words(model, listed)
    if out is not None:
        plotting.save(draw_surprisals({folder.label: scored}), out)
    if as_json:
        for words in scored:
            print(json.dumps([word._asdict() for word in words]))
        return
    console = Console(markup=False, highlight=False, emoji=False)
    for words in scored:
        table = Table("word", "bits", box=None)
        table.columns[1].justify = "right"
        for word in words:
            table.add_row(word.text if word.known else f"{word.text}*", f"{word.bits:.2f}")
        table.add_row("sum", f"{sum(word.bits for word in words):.2f}")
        console.print(table)
    if not all(word.known for words in scored for word in words):
        print("* not in the vocabulary, read as <unk>")
    if out is not None:
        print(f"Plot: {out}")


@text.command(
    epilog="Examples:\n\nndstack text sg run suites/\n\nndstack text sg run1 run2 suites/ --out sg.svg\n\n"
    "ndstack text sg run suites/number_src.json --by-suite"
)
def sg(
    paths: Annotated[
        list[Path], typer.Argument(metavar="RUN... SUITE...", help="Runs; suites, or folders of suites.")
    ],
    averaging: Annotated[
        Literal["dissertation", "hu", "both"], typer.Option(help="How rows are counted; see below.")
    ] = "both",
    by_suite: Annotated[bool, typer.Option("--by-suite", help="A row for each suite, too.")] = False,
    out: Picture = None,
    as_json: AsJson = False,
) -> None:
    """Measure syntactic generalization (chapter 7) with test suites in SyntaxGym's format.

    Averaging: "dissertation" counts each conjunct of a prediction; "hu" an item only if the whole prediction
    holds, and leaves fgd-embed3 and fgd-embed4 out. On the suites of Hu et al. (2020) chance is 0.50 and
    0.285.
    """
    from ndstack import plotting
    from ndstack.cli.text_tables import circuits, print_circuits, print_suites
    from ndstack.progress import progress_bar
    from ndstack.text.generalization import AVERAGINGS, evaluate
    from ndstack.text.pictures import CHANCE, draw_circuits
    from ndstack.text.scoring import ModelScorer
    from ndstack.text.suites import find_suites, read_suite
    from ndstack.training.run import is_run

    runs = [path for path in paths if is_run(path)]
    others = [path for path in paths if not is_run(path)]
    if not runs or not others:
        missing = "run" if not runs else "suites"
        raise NdstackError(f"no {missing} among {', '.join(map(str, paths))}; expected RUN... SUITE...")
    if out is not None:
        plotting.check_format(out)
    suites = [read_suite(path) for path in find_suites(others)]
    ways = AVERAGINGS if averaging == "both" else (averaging,)
    results, unknown = {}, {}
    with progress_bar("reading sentences", len(runs) * sum(len(one.sentences) for one in suites)) as advance:
        for run in runs:
            scorer = ModelScorer(_open(run)[1])
            results[str(run)] = evaluate(suites, scorer, progress=advance)
            unknown[str(run)] = scorer
    if out is not None:
        plotting.save(draw_circuits(results, ways[0], CHANCE[ways[0]] if len(suites) >= 33 else None), out)
    if as_json:
        for name, result in results.items():
            print(json.dumps({"run": name, **circuits(result, ways), "unknown": dict(unknown[name].unknown)}))
        return
    for way in ways:
        print_circuits(results, way)
    if by_suite:
        for name, result in results.items():
            print_suites(name, result, ways)
    for name, scorer in unknown.items():
        count, common = scorer.unknown.total(), ", ".join(word for word, _ in scorer.unknown.most_common(8))
        print(
            f"{name}: {count:,} of {scorer.words:,} words read as <unk>"
            + (f": {common} ..." if count else "")
        )


@text.command(epilog="Example: ndstack text pairs run blimp/*.jsonl")
def pairs(
    run: RunFolder,
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="JSON lines, as BLiMP has them.")],
    tokenized: Annotated[bool, typer.Option("--tokenized", help="Do not split punctuation off.")] = False,
    as_json: AsJson = False,
) -> None:
    """Measure how often the grammatical sentence of a minimal pair is the more probable one."""
    from ndstack.progress import progress_bar
    from ndstack.text.pairs import evaluate_pairs, read_pairs
    from ndstack.text.scoring import ModelScorer

    listed = [pair for file in files for pair in read_pairs(file)]
    scorer = ModelScorer(_open(run)[1])
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


def _open(run: Path) -> "tuple[Run, LanguageModel]":
    """A run on text and its best model."""
    from ndstack.text.launch import corpus_of
    from ndstack.training import Run

    folder = Run.open(run)
    corpus_of(folder.config)
    return folder, folder.load()
