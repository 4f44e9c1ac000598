"""Pairs of sentences for translation: prepared from parallel text, and scored with BLEU and chrF.

A folder of pairs has the form of `ndstack.transductions.pairs`, the vocabularies in `symbols.json`, and in
`inputs.json` how inputs are divided into symbols, so that a trained model can be given plain text. Words are
separated at spaces or punctuation, or divided into subwords by byte-pair encoding, which the package
`tokenizers` learns from the training part; `▁` stands for the space before a word. The scores are those of
the package `sacrebleu`.
"""

import dataclasses
import json
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Literal

from ndstack import files
from ndstack.errors import DatasetError, NdstackError
from ndstack.grammars.grammar import Word
from ndstack.nn import Transducer, beam_search
from ndstack.progress import Advance, no_progress
from ndstack.text.lines import separate
from ndstack.text.vocabulary import UNKNOWN, from_counts
from ndstack.transductions import Pair, PairData, read_pairs
from ndstack.transductions.pairs import SYMBOLS

if TYPE_CHECKING:
    from tokenizers import Tokenizer

TokenizePairs = Literal["spaces", "words", "subwords"]
SPACE = "▁"
"""What stands for the space before a word, in subwords."""
PARTS = ("train", "validation", "test")
INPUTS = "inputs.json"
DEFAULT_SIZE = 8000
"""The number of subwords if no size is given."""


def prepare_pairs(
    source: Path,
    target: Path,
    out: Path,
    *,
    split: tuple[int, int, int] = (90, 5, 5),
    tokenize: TokenizePairs = "spaces",
    size: int | None = None,
    min_count: int = 1,
) -> PairData:
    """Make a folder of pairs from two texts with the same number of lines, completely or not at all.

    Lines that are empty on one side are left out. The text is held in memory.

    Args:
        source: the text of inputs.
        target: the text of outputs, whose lines translate those of the other.
        out: a new or empty folder.
        split: the shares of training, validation and test lines, in order.
        tokenize: how lines are divided into symbols.
        size: the largest number of symbols of each side; None for no limit, or 8,000 subwords.
        min_count: the smallest number of occurrences in the training part with which a symbol is kept; all
            others become `<unk>`.
    """
    files.check_new(out)
    sides = [files.read_text(path, DatasetError).splitlines() for path in (source, target)]
    if len(sides[0]) != len(sides[1]):
        raise DatasetError(
            f"{source} has {len(sides[0]):,} lines and {target} {len(sides[1]):,}, expected as many: line n "
            "of one translates line n of the other"
        )
    lines = [pair for pair in zip(*sides, strict=True) if pair[0].strip() and pair[1].strip()]
    parts = _divide(lines, split)
    divided = [_Side([pair[side] for pair in parts["train"]], tokenize, size, min_count) for side in (0, 1)]
    with files.new_folder(out, "the pairs") as draft:
        for part, some in parts.items():
            rows = (
                "\t".join(" ".join(side(text)) for side, text in zip(divided, pair, strict=True))
                for pair in some
            )
            (draft / f"{part}.tsv").write_text("".join(row + "\n" for row in rows), encoding="utf-8")
        symbols = {name: side.symbols for name, side in zip(("source", "target"), divided, strict=True)}
        (draft / SYMBOLS).write_text(json.dumps(symbols, ensure_ascii=False) + "\n", encoding="utf-8")
        (draft / INPUTS).write_text(divided[0].description() + "\n", encoding="utf-8")
    return read_pairs(out)


def _divide(
    lines: Sequence[tuple[str, str]], split: tuple[int, int, int]
) -> dict[str, list[tuple[str, str]]]:
    count, total = len(lines), sum(split)
    bounds = [0, count * split[0] // total, count * (split[0] + split[1]) // total, count]
    parts = {part: list(lines[bounds[i] : bounds[i + 1]]) for i, part in enumerate(PARTS)}
    for part, share in zip(PARTS, split, strict=True):
        if not parts[part] and (share or part != "test"):
            raise DatasetError(
                f"{count} pairs of lines divided {split} leave none for {part}; give more lines"
            )
    return {part: some for part, some in parts.items() if some}


class _Side:
    """How the lines of one side are divided into symbols."""

    def __init__(
        self, lines: Sequence[str], tokenize: TokenizePairs, size: int | None, min_count: int
    ) -> None:
        self.tokenize: TokenizePairs = tokenize
        self.learned = _learn_subwords(lines, size or DEFAULT_SIZE) if tokenize == "subwords" else None
        counts = Counter(symbol for line in lines for symbol in self._symbols(line))
        limit = None if size is None or self.learned is not None else size
        self.symbols = from_counts(counts, limit, min_count).words
        self._known = frozenset(self.symbols)

    def __call__(self, line: str) -> list[str]:
        return [symbol if symbol in self._known else UNKNOWN for symbol in self._symbols(line)]

    def description(self) -> str:
        """Return how lines are divided, as JSON; see `as_symbols`."""
        return json.dumps(
            {"tokenize": self.tokenize, "subwords": self.learned and self.learned.to_str()},
            ensure_ascii=False,
        )

    def _symbols(self, line: str) -> list[str]:
        return _divided(line, self.tokenize, self.learned)


def _divided(line: str, tokenize: TokenizePairs, learned: "Tokenizer | None") -> list[str]:
    if learned is None:
        return separate(line, "words" if tokenize == "words" else "spaces")
    return list(learned.encode(line).tokens)


def as_symbols(text: str, alphabet: Collection[str], folder: Path | None = None) -> Word:
    """Return an input of a transducer as its symbols.

    A text is divided as the training pairs were, if `prepare_pairs` made them, or else at spaces; if all
    symbols are characters, it is taken as it is. Symbols that are not in the alphabet become `<unk>`, if that
    is in it.

    Args:
        text: a sentence, or symbols with spaces between them.
        alphabet: the symbols of inputs.
        folder: the folder of the training pairs, if they were read from files.
    """
    if all(len(symbol) == 1 for symbol in alphabet):
        return text
    symbols = text.split()
    if not all(symbol in alphabet for symbol in symbols) or not text.startswith(SPACE):
        symbols = _as_prepared(text, alphabet, folder)
    if UNKNOWN in alphabet:
        symbols = [symbol if symbol in alphabet else UNKNOWN for symbol in symbols]
    return tuple(symbols)


@dataclasses.dataclass(frozen=True)
class _Inputs:
    """What `inputs.json` holds."""

    tokenize: TokenizePairs
    subwords: str | None


def _as_prepared(text: str, alphabet: Collection[str], folder: Path | None) -> list[str]:
    path = None if folder is None else folder / INPUTS
    if path is None or not path.is_file():
        if any(symbol.startswith(SPACE) for symbol in alphabet):
            raise NdstackError(
                f"plain text given to a model of subwords, but {path or INPUTS} is not there, which says how "
                "it is divided; give subwords with spaces between them, or prepare the pairs again"
            )
        return text.split()
    how = files.read_json_as(path, _Inputs, "how inputs are divided")
    if how.subwords is None:
        return _divided(text, how.tokenize, None)
    try:
        return _divided(text, how.tokenize, _tokenizers().Tokenizer.from_str(how.subwords))
    except NdstackError:
        raise
    except Exception as error:  # of this kind are the errors of the package
        raise DatasetError(f"{path} does not describe subwords: {error}") from None


def _tokenizers() -> ModuleType:
    try:
        import tokenizers
    except ImportError:
        raise NdstackError(
            "subwords need the package tokenizers: pip install 'ndstack[translation]'"
        ) from None
    return tokenizers


def _learn_subwords(lines: Sequence[str], size: int) -> "Tokenizer":
    """Return byte-pair encoding with this number of subwords."""
    _tokenizers()
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    learned = Tokenizer(models.BPE(unk_token=UNKNOWN))
    learned.pre_tokenizer = pre_tokenizers.Metaspace(replacement=SPACE)
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=[UNKNOWN], show_progress=False)
    learned.train_from_iterator(lines, trainer)
    return learned


def as_sentence(symbols: Word) -> str:
    """Return symbols as text: joined with spaces; subwords without them, and with spaces for `▁`."""
    if any(symbol.startswith(SPACE) for symbol in symbols):
        return "".join(symbols).replace(SPACE, " ").strip()
    return " ".join(symbols)


def translation_scores(outputs: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """Return BLEU and chrF of translations, each with one reference, from 0 to 100.

    Args:
        outputs: the sentences of a model.
        references: the correct translations.
    """
    try:
        import sacrebleu
    except ImportError:
        raise NdstackError(
            "BLEU and chrF need the package sacrebleu: pip install 'ndstack[translation]'"
        ) from None
    one_each = [list(references)]
    return {
        "bleu": sacrebleu.corpus_bleu(list(outputs), one_each).score,
        "chrf": sacrebleu.corpus_chrf(list(outputs), one_each).score,
    }


def translate(
    model: Transducer, pairs: Sequence[Pair], *, beam: int = 1, progress: Advance = no_progress
) -> tuple[list[str], list[str]]:
    """Return the translations of the inputs of pairs, and the references.

    Args:
        model: a transducer.
        pairs: inputs and their correct outputs.
        beam: the width of the beam.
        progress: a function that is called with 1 after each pair.
    """
    outputs = []
    for pair in pairs:
        best = beam_search(model.given([pair.source]), [()], 2 * len(pair.source) + 10, beam)[0]
        outputs.append(as_sentence(best[0].word))
        progress(1)
    return outputs, [as_sentence(pair.target) for pair in pairs]
