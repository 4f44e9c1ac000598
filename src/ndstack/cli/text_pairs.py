"""Commands about translation: text prepare-pairs, text bleu."""

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from ndstack.cli.app import as_epilog
from ndstack.cli.arguments import AsJson, OutFolder, Split
from ndstack.cli.text import text


@text.command(
    "prepare-pairs",
    epilog=as_epilog(
        "ndstack text prepare-pairs corpus.de corpus.en --out pairs",
        "ndstack text prepare-pairs corpus.de corpus.en --out pairs --symbols subwords --size 8000",
    ),
)
def prepare_pairs(
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="A text file, with an input per line.")],
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="A text file, with an output per line.")],
    out: OutFolder,
    split: Annotated[
        str,
        typer.Option(metavar="A/B/C", help="The shares of training, validation and test lines."),
    ] = "90/5/5",
    symbols: Annotated[
        Literal["spaces", "words", "subwords"],
        typer.Option(help="Separate words at spaces, or at punctuation, too; or learn subwords."),
    ] = "spaces",
    size: Annotated[
        int | None, typer.Option(help="The largest number of types, including `<unk>` and `<eos>`.")
    ] = None,
    min_count: Annotated[int, typer.Option(min=1, help="Words that occur less often become `<unk>`.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Make a folder of pairs from two texts, for `ndstack train --pairs`.

    Line n of one text translates line n of the other. The vocabularies are those of the training lines. With
    --symbols subwords, byte-pair encoding is learned from them, of 8,000 subwords per side if no size is
    given; this needs the package tokenizers.
    """
    from ndstack.text.lines import parse_split
    from ndstack.text.translation import prepare_pairs

    data = prepare_pairs(
        source, target, out, split=parse_split(split), tokenize=symbols, size=size, min_count=min_count
    )
    counts = {part: len(getattr(data, part)) for part in ("train", "validation", "test")}
    if as_json:
        sizes = {"source": len(data.source), "target": len(data.target)}
        print(json.dumps({"folder": str(out), **counts, "symbols": sizes}))
        return
    shown = ", ".join(f"{count:,} {part}" for part, count in counts.items())
    print(f"{out}: {shown} pairs; {len(data.source):,} and {len(data.target):,} symbols")


@text.command(
    epilog=as_epilog("ndstack text bleu run", "ndstack text bleu run --beam 5 --split validation --json")
)
def bleu(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="A folder that `ndstack train --task transduce` made.")
    ],
    split: Split = "test",
    beam: Annotated[int | None, typer.Option(min=1, help="Beam search of this width.")] = None,
    as_json: AsJson = False,
) -> None:
    """Measure BLEU and chrF of the best model of a run; this needs the package sacrebleu."""
    from ndstack.progress import progress_bar
    from ndstack.text.translation import translate, translation_scores
    from ndstack.training import Run
    from ndstack.training.material import make_pair_data

    translation_scores([""], [""])  # is the package there?
    folder = Run.open(run)
    model = folder.load_transducer()
    pairs = getattr(make_pair_data(folder.config, test=split == "test"), split)
    with progress_bar(f"translating {split} sentences", len(pairs)) as advance:
        outputs, references = translate(model, pairs, beam=beam or 1, progress=advance)
    scores = translation_scores(outputs, references)
    if as_json:
        print(json.dumps({"split": split, "sentences": len(pairs), **scores}))
        return
    print(f"BLEU {scores['bleu']:.2f}, chrF {scores['chrf']:.2f} on {len(pairs):,} {split} sentences")
