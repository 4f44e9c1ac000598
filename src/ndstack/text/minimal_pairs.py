"""Minimal pairs, as in BLiMP: which of two sentences, one of them ungrammatical, is more probable.

A file has one JSON object per line, with `sentence_good` and `sentence_bad`. Optionally, `linguistics_term`
(or `field`) names the phenomenon and `UID` the paradigm. A pair counts as right if the total surprisal of the
good sentence is smaller. Punctuation is separated from words first, unless the text is tokenised already.
"""

import dataclasses
import json
import re
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from ndstack import files
from ndstack.errors import first_problem
from ndstack.grammars.graphs import grouped
from ndstack.progress import Advance, no_progress
from ndstack.text.scoring import Scorer, checked
from ndstack.text.suites import SuiteError


class Pair(BaseModel):
    """Two sentences that differ as little as possible."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    sentence_good: str
    sentence_bad: str
    UID: str = ""
    linguistics_term: str = ""
    field: str = ""

    @property
    def phenomenon(self) -> str:
        """The phenomenon that is tested."""
        return self.linguistics_term or self.field or self.UID or "all"


@dataclasses.dataclass(frozen=True)
class PairResults:
    """For each pair, whether the good sentence was less surprising."""

    pairs: tuple[Pair, ...]
    right: tuple[bool, ...]

    @property
    def accuracy(self) -> float:
        """The share of pairs that are right."""
        return sum(self.right) / len(self.right)

    def by_phenomenon(self) -> dict[str, float]:
        """Return the accuracy for each phenomenon, in the order of the file."""
        groups = grouped(zip(self.pairs, self.right, strict=True), lambda result: result[0].phenomenon)
        return {name: sum(right for _, right in group) / len(group) for name, group in groups.items()}


def read_pairs(path: Path) -> list[Pair]:
    """Read a file of pairs; errors name the file and the line."""
    lines = files.read_text(path, SuiteError).split("\n")
    pairs = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            pairs.append(Pair.model_validate(json.loads(line)))
        except ValidationError as error:
            raise SuiteError(f"{path}, line {number}: {first_problem(error)}") from None
        except (ValueError, RecursionError) as error:
            raise SuiteError(f"{path}, line {number} is not JSON: {error}") from None
    if not pairs:
        raise SuiteError(f"{path} has no pairs; expected JSON lines with sentence_good and sentence_bad")
    return pairs


def evaluate_pairs(
    pairs: Sequence[Pair], scorer: Scorer, *, tokenized: bool = False, progress: Advance = no_progress
) -> PairResults:
    """Score pairs of sentences.

    Args:
        pairs: pairs from `read_pairs`.
        scorer: `ModelScorer(model)`, or any function from sentences to surprisals in bits.
        tokenized: whether words are separated by spaces alone; if not, punctuation is separated, too.
        progress: a function that is called with the number of pairs scored since the last call.
    """
    right: list[bool] = []
    split = str.split if tokenized else tokenize
    for first in range(0, len(pairs), 500):
        part = pairs[first : first + 500]
        sentences = [split(text) for pair in part for text in (pair.sentence_good, pair.sentence_bad)]
        totals = [sum(row) for row in checked(scorer, sentences)]
        right += [good < bad for good, bad in zip(totals[::2], totals[1::2], strict=True)]
        progress(len(part))
    return PairResults(tuple(pairs), tuple(right))


def tokenize(text: str) -> list[str]:
    """Return words, with punctuation and clitics separated as in the Penn Treebank: `did n't`, `Kim 's`."""
    text = re.sub(r"(?i)n't\b", " n't", text)
    text = re.sub(r"(?i)(?<=\w)('(?:s|re|ve|ll|d|m))\b", r" \1", text)
    return re.findall(r"n't|'\w+|[\w.]*\w(?:[-.]\w+)*|[^\w\s]", text, flags=re.IGNORECASE)
