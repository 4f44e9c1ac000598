"""Commands about natural language: text example, prepare, train, evaluate, generate."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from ndstack.cli.app import app, as_epilog
from ndstack.cli.arguments import (
    AsJson,
    Corpus,
    Count,
    Greedy,
    MaxLength,
    ModelName,
    OutFolder,
    OutFolderIfGiven,
    Prefix,
    Resume,
    Seed,
    Split,
    Temperature,
)
from ndstack.cli.options import MACHINE, Flags, TrainOptions, unfold
from ndstack.errors import NdstackError, warn
from ndstack.settings.reading import Table, merge
from ndstack.settings.recipes import TEXT, TEXT_TRANSFORMER

if TYPE_CHECKING:
    from ndstack.nn import LanguageModel
    from ndstack.text import Corpus as TextCorpus
    from ndstack.training import Run


class _WithPairs(TyperGroup):
    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Take `text prepare pairs SOURCE TARGET` for `text prepare-pairs SOURCE TARGET`.

        A second argument tells it from `text prepare IN` with a text that is called "pairs".
        """
        if args[:2] == ["prepare", "pairs"] and len(args) > 2 and not args[2].startswith("-"):
            args = ["prepare-pairs", *args[2:]]
        return super().resolve_command(ctx, args)


text = typer.Typer(
    cls=_WithPairs,
    help="Natural language: corpora, perplexity, surprisals, syntactic generalization.",
    epilog=as_epilog(
        "ndstack text prepare my-text --out corpus",
        "ndstack text train corpus --model vrns-3-3-5 --out run",
        "ndstack text evaluate run",
        "ndstack text sg run suites/",
    ),
    rich_markup_mode="markdown",
    no_args_is_help=True,
)
app.add_typer(text, name="text", rich_help_panel="Natural language")

RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="A folder that `ndstack text train` made.")]
GLUED = 0.05
"""The share of word types that end in punctuation above which there is a warning."""
PARTS: dict[str, Literal["test", "valid", "train"]] = {
    "test": "test",
    "validation": "valid",
    "train": "train",
}


@text.command(epilog=as_epilog("ndstack text example --out example --sentences 3000"))
def example(
    out: OutFolder,
    sentences: Annotated[int, typer.Option(min=10, help="The number of training sentences.")] = 3000,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Make a small English-like text from a grammar, with test suites and minimal pairs that fit it."""
    from ndstack.text.example import write_example

    write_example(out, sentences, seed)
    made = ["train.txt", "valid.txt", "test.txt", "pairs.jsonl", "suites/"]
    if as_json:
        print(json.dumps({"folder": str(out), "sentences": sentences, "seed": seed, "made": made}))
        return
    print(f"{out}: {', '.join(made[:-1])} and {made[-1]}")


@text.command(
    epilog=as_epilog(
        "ndstack text prepare my-text/ --out corpus",
        "ndstack text prepare book.txt --out corpus --split 90/5/5 --tokenize words --size 10000",
        "ndstack text prepare other/ --out corpus2 --vocabulary corpus/vocabulary.txt",
    )
)
def prepare(
    source: Annotated[
        Path,
        typer.Argument(metavar="IN", help="A text file, or a folder with train.txt, valid.txt, test.txt."),
    ],
    out: OutFolder,
    size: Annotated[
        int | None, typer.Option(help="The largest number of types, including `<unk>` and `<eos>`.")
    ] = None,
    min_count: Annotated[int, typer.Option(min=1, help="Words that occur less often become `<unk>`.")] = 1,
    vocabulary: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A vocabulary, one word per line.")
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(metavar="A/B/C", help="The shares of training, validation and test lines of a file."),
    ] = None,
    tokenize: Annotated[
        Literal["spaces", "words"],
        typer.Option(help="Separate words at spaces alone, or at punctuation, too."),
    ] = "spaces",
    as_json: AsJson = False,
) -> None:
    """Convert text to a corpus, that is a vocabulary and files of indices, in constant memory.

    By default, words are separated by spaces alone; `<eos>` is added after every line. With --tokenize words,
    a word is a sequence of letters and digits, which may contain apostrophes, hyphens, and a point or comma
    between digits; any other character is a word by itself. --split takes lines in order: the first ones for
    training, the last ones for testing. The vocabulary is that of the training part; all other words become
    `<unk>`.
    """
    from ndstack.progress import progress_bar
    from ndstack.text.lines import parse_split
    from ndstack.text.preparation import bytes_to_read, prepare
    from ndstack.text.vocabulary import read_vocabulary

    known = None if vocabulary is None else read_vocabulary(vocabulary)
    shares = None if split is None else parse_split(split)
    with progress_bar(f"reading {source} (bytes)", bytes_to_read(source, known is None, shares)) as advance:
        corpus = prepare(
            source,
            out,
            size=size,
            min_count=min_count,
            vocabulary=known,
            split=shares,
            tokenize=tokenize,
            progress=advance,
        )
    _warn_about(corpus, tokenize)
    if as_json:
        print(corpus.header.model_dump_json())
        return
    apart = "spaces" if corpus.header.tokenize == "spaces" else "spaces and punctuation"
    print(f"{out}: {corpus.header.types:,} types, words separated by {apart}")
    for name, part in corpus.header.splits.items():
        share = part.unknown / part.tokens
        print(f"  {name:5} {part.tokens:>12,} tokens, {part.lines:>10,} lines, {share:.2%} <unk>")


def _warn_about(corpus: "TextCorpus", tokenize: str) -> None:
    """Warn of what training does not accept, and of what is probably not intended."""
    from ndstack.text.preparation import glued

    ends = glued(corpus.vocabulary)
    if tokenize == "spaces" and len(ends) > GLUED * len(corpus.vocabulary):
        warn(
            f"{len(ends) / len(corpus.vocabulary):.0%} of the word types end in punctuation, such as "
            f"{ends[0]!r}; --tokenize words separates it"
        )
    if "valid" not in corpus.header.splits:
        warn(
            f"{corpus.folder} has no validation part, which training needs; "
            "--split 90/5/5 makes one from one file"
        )


@text.command(
    epilog=as_epilog(
        "ndstack text train corpus --model vrns-3-3-5 --window 35 --hidden 256 --out run",
        "ndstack text train --resume run",
        "ndstack text train corpus --model lstm --out run2 --processes 2 --set training.clip=0.5",
    )
)
@unfold
def train(
    corpus: Annotated[
        Path | None, typer.Argument(metavar="CORPUS", help="A folder that `ndstack text prepare` made.")
    ] = None,
    model: ModelName = None,
    out: OutFolderIfGiven = None,
    resume: Resume = None,
    hidden: Annotated[int, typer.Option(min=1, help="The number of units, and the embedding size.")] = 256,
    window: Annotated[int, typer.Option(min=1, help="The window D of nondeterministic stacks.")] = 35,
    depth: Annotated[int, typer.Option(min=1, help="The depth limit of superposition stacks.")] = 10,
    adaptive: Annotated[
        bool, typer.Option("--adaptive", help="Use adaptive softmax, for many words.")
    ] = False,
    *,
    given: Annotated[
        Table,
        Flags(
            "corpus.rows",
            "corpus.length",
            "training.learning_rate",
            "training.clip",
            "training.max_epochs",
            *MACHINE,
            recipes={"": TEXT, "tf: ": TEXT_TRANSFORMER},
        ),
    ],
    options: TrainOptions,
) -> None:
    """Train a language model by truncated BPTT, by default with the recipe of section 7.3.

    The run is written to a new folder, --out. It can be interrupted at any time; --resume resumes it in the
    middle of an epoch, and the results are the same to the last bit. On a terminal, there are progress bars;
    otherwise, one line of JSON per epoch.
    """
    from ndstack.text import launch
    from ndstack.training import Run, change_settings

    flags: Table = {"options": {"output": "adaptive" if adaptive else None}}
    values = options.apply_settings({}, merge(flags, given))
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
    result = options.train(launch.train_on_text, folder, config)
    name = Run.open(folder).config.model
    if options.result_as_json:
        print(json.dumps({"run": str(folder), "model": name, **result.summary()}))
    else:
        print(
            f"{folder}: {name}: validation perplexity {result.best['perplexity']:.2f} at epoch "
            f"{result.best_epoch} of {result.epochs}; {result.reason}"
        )


@text.command(
    epilog=as_epilog("ndstack text evaluate run", "ndstack text evaluate run --split validation --rows 1")
)
def evaluate(
    run: RunFolder,
    split: Split = "test",
    corpus: Corpus = None,
    rows: Annotated[
        int | None, typer.Option(min=1, help="The number of rows; by default, as in training.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure the perplexity of the best model of a run over all tokens, `<eos>` included.

    The corpus is that of the run, unless --corpus names another one with the same vocabulary.
    """
    from ndstack.progress import progress_bar
    from ndstack.text import launch, task
    from ndstack.text.corpus import read_corpus

    folder, model = open_run(run)
    settings = launch.corpus_of(folder.config)
    data = launch.open_corpus(settings) if corpus is None else read_corpus(corpus)
    task.check_fit(data, model)
    part = task.batches(model, data[PARTS[split]], rows or settings.rows, settings.length)
    with progress_bar(f"reading {split}", len(part)) as advance:
        total = task.corpus_nats(model, part, progress=advance)
    value = task.perplexity(total)
    if as_json:
        row = {"split": split, "tokens": total.symbols, "cross_entropy": total.cross_entropy}
        print(json.dumps({"run": str(run), **row, "perplexity": value}))
    else:
        print(f"{split}: perplexity {value:.2f} over {total.symbols:,} tokens")


@text.command(
    epilog=as_epilog(
        "ndstack text generate run --count 5",
        "ndstack text generate run --prefix 'the company' --temperature 0.7",
    )
)
def generate(
    run: RunFolder,
    count: Count = 10,
    prefix: Prefix = "",
    max_length: MaxLength = 60,
    temperature: Temperature = 1.0,
    greedy: Greedy = False,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Generate sentences with the best model of a run, each after `<eos>`."""
    from ndstack.nn import greedy as take_best
    from ndstack.nn import sample
    from ndstack.text.vocabulary import Vocabulary

    _, model = open_run(run)
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


def open_run(run: Path) -> "tuple[Run, LanguageModel]":
    """Return a training run on text and its best model."""
    from ndstack.text.launch import corpus_of
    from ndstack.training import Run

    folder = Run.open(run)
    corpus_of(folder.config)
    return folder, folder.load()
