"""English question formation and tense reinflection, after McCoy, Frank and Linzen (2020).

Two hypotheses explain all training pairs of each task. A hierarchical one refers to the structure of the
sentence: the auxiliary of the main clause is moved to the front; a verb agrees with its subject. A linear one
refers to the order of words alone: the first auxiliary is moved; a verb agrees with the noun before it. The
training set does not tell them apart, because questions and present tenses are only asked of sentences for
which both give the same output; sentences of all kinds are to be copied. The inputs of the generalization set
are sentences for which the two outputs differ.

The sentences are sampled by length from small probabilistic grammars of our own.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ndstack.grammars.grammar import PCFG, Word
from ndstack.grammars.length_sampling import LengthTable, Random
from ndstack.transductions.transduction import Symbols, Transduction, choose, no_input

Verdict = Literal["hierarchical", "linear", "other"]
Sentence = Callable[[Symbols], Symbols]

DETERMINERS = ("the", "my", "your", "our", "some")
ADJECTIVES = ("old", "young", "clever", "tired")
NOUNS = {
    "cat": "cats",
    "dog": "dogs",
    "horse": "horses",
    "rabbit": "rabbits",
    "doctor": "doctors",
    "teacher": "teachers",
    "pilot": "pilots",
    "singer": "singers",
}
AUXILIARIES = {"s": ("does", "doesn't"), "p": ("do", "don't")}
INTRANSITIVE = ("sleep", "smile", "wait", "laugh")
TRANSITIVE = ("see", "help", "follow", "admire", "visit")
PREPOSITIONS = ("near", "behind", "beside")
VERBS = {
    "admired": ("admires", "admire"),
    "followed": ("follows", "follow"),
    "helped": ("helps", "help"),
    "saw": ("sees", "see"),
    "visited": ("visits", "visit"),
}
"""The past tense of verbs, and their present tense with singular and plural subjects."""
NUMBER = {"s": tuple(NOUNS), "p": tuple(NOUNS.values())}
QUESTION, DECLARATIVE, PRESENT, PAST = "quest", "decl", "present", "past"


class EnglishTransduction(Transduction):
    """A transduction of English sentences that follows the hierarchical rule.

    Args:
        name: the name of the transduction.
        words: the words of inputs, and of outputs.
        draw: a function that returns a random input of a given length.
        lengths: the lengths that inputs can have.
        rules: the hierarchical rule and the linear one.
        generalization: the inputs that tell them apart.
    """

    def __init__(
        self,
        name: str,
        words: tuple[Sequence[str], Sequence[str]],
        draw: Callable[[int, Random], Symbols],
        lengths: frozenset[int],
        rules: "Rules",
        generalization: "EnglishTransduction | None" = None,
    ) -> None:
        super().__init__(
            name,
            *words,
            draw,
            rules.hierarchical,
            has_length=lengths.__contains__,
            scores_end=True,
            generalization=generalization,
        )
        self.rules = rules

    def apply_linear(self, source: Word) -> Word:
        """Return the output of the linear rule."""
        return self.rules.linear(tuple(source))

    def judge(self, source: Word, output: Word) -> Verdict:
        """Return with which rule an output agrees at the word where the rules differ.

        This is the first word of a question, and the main verb of a sentence in the present tense.
        """
        symbols, given = tuple(source), tuple(output)
        one, other = self.rules.hierarchical(symbols), self.rules.linear(symbols)
        place = next((i for i, words in enumerate(zip(one, other, strict=True)) if len({*words}) > 1), 0)
        word = given[place] if place < len(given) else ""
        if word == one[place]:
            return "hierarchical"
        return "linear" if word == other[place] else "other"


@dataclass(frozen=True)
class Rules:
    """Two functions from inputs to outputs."""

    hierarchical: Sentence
    linear: Sentence


def question_formation(name: str) -> Transduction:
    """Return the task of making questions: my dog that does wait doesn't sleep . quest."""
    plain, modified = _table(_question_rules(False)), _table(_question_rules(True))
    rules = Rules(lambda symbols: _question(symbols, True), lambda symbols: _question(symbols, False))
    general = _Sampler(
        {QUESTION: [modified]}, lambda symbols: rules.hierarchical(symbols)[0] != _first(symbols)
    )
    sampler = _Sampler({QUESTION: [plain], DECLARATIVE: [plain, modified]})
    words = tuple(dict.fromkeys((*plain.grammar.terminals, *modified.grammar.terminals)))
    return _pair(name, sampler, general, rules, ((*words, QUESTION, DECLARATIVE), (*words, "?")))


def tense_reinflection(name: str) -> Transduction:
    """Return the task of the present tense: the dogs near my cat saw the pilot . present."""
    plain, modified = _table(_tense_rules(False)), _table(_tense_rules(True))
    rules = Rules(lambda symbols: _inflect(symbols, True), lambda symbols: _inflect(symbols, False))

    def differ(symbols: Symbols) -> bool:
        return rules.hierarchical(symbols) != rules.linear(symbols)

    general = _Sampler({PRESENT: [modified]}, differ)
    sampler = _Sampler(
        {PRESENT: [plain, modified], PAST: [plain, modified]},
        lambda symbols: symbols[-1] == PAST or not differ(symbols),
    )
    words = modified.grammar.terminals
    forms = [form for pair in VERBS.values() for form in pair]
    return _pair(name, sampler, general, rules, ((*words, PRESENT, PAST), (*words, *forms)))


def _pair(
    name: str,
    sampler: "_Sampler",
    general: "_Sampler",
    rules: Rules,
    words: tuple[Sequence[str], Sequence[str]],
) -> EnglishTransduction:
    """Return a task together with its generalization set."""
    other = EnglishTransduction(f"{name} (generalization)", words, general.draw, general.lengths, rules)
    return EnglishTransduction(name, words, sampler.draw, sampler.lengths, rules, other)


class _Sampler:
    """Random inputs: first the last word, then a grammar, both uniformly, and then a sentence of the grammar.

    Args:
        kinds: the grammars of the sentences before each last word.
        wanted: a function that returns whether an input belongs to the set; others are drawn again.
    """

    longest = 30

    def __init__(
        self,
        kinds: Mapping[str, Sequence[LengthTable]],
        wanted: Callable[[Symbols], bool] = lambda symbols: True,
    ) -> None:
        self.kinds, self.wanted = kinds, wanted
        all_tables = (table for tables in kinds.values() for table in tables)
        self.lengths = frozenset(n + 1 for table in all_tables for n in table.lengths(1, self.longest))

    def draw(self, length: int, rng: Random) -> Symbols:
        """Return an input of this length."""
        size = length - 1
        fitting = {
            mark: [one for one in some if one.lengths(size, size)] for mark, some in self.kinds.items()
        }
        marks = [mark for mark, tables in fitting.items() if tables]
        while True:
            mark = choose(marks, rng)
            table = fitting[mark][int(rng.random() * len(fitting[mark]))]
            symbols = (*table.sample(size, rng), mark)
            if self.wanted(symbols):
                return symbols


def _question(symbols: Symbols, hierarchical: bool) -> Symbols:
    """Return a question, or the copy of a declarative sentence.

    Every clause of the grammar has one auxiliary. So that of the main clause is the second one if the subject
    has a relative clause, which is the case if "that" precedes the first auxiliary.
    """
    places = [place for place, word in enumerate(symbols) if word in _ALL_AUXILIARIES]
    if symbols[-2:] not in ((".", QUESTION), (".", DECLARATIVE)) or not places:
        raise no_input(symbols, f"a sentence with an auxiliary, then . and {QUESTION} or {DECLARATIVE}")
    sentence = symbols[:-2]
    if symbols[-1] == DECLARATIVE:
        return (*sentence, ".")
    modified = "that" in sentence[: places[0]]
    if modified and len(places) < 2:
        raise no_input(symbols, "an auxiliary of the main clause")
    place = places[1 if hierarchical and modified else 0]
    return (sentence[place], *sentence[:place], *sentence[place + 1 :], "?")


_ALL_AUXILIARIES = frozenset(word for words in AUXILIARIES.values() for word in words)
_ALL_NOUNS = {word: number for number, words in NUMBER.items() for word in words}


def _first(symbols: Symbols) -> str:
    """Return the first auxiliary."""
    return next(word for word in symbols if word in _ALL_AUXILIARIES)


def _inflect(symbols: Symbols, hierarchical: bool) -> Symbols:
    """Return a sentence in the present tense, or its copy.

    Both verbs of a sentence of the grammar have the first noun as their subject.
    """
    nouns = [word for word in symbols if word in _ALL_NOUNS]
    if (
        symbols[-1:] not in ((PRESENT,), (PAST,))
        or symbols[-2:-1] != (".",)
        or symbols[0] in VERBS
        or not nouns
    ):
        raise no_input(symbols, f"a sentence in the past tense, then . and {PRESENT} or {PAST}")
    sentence = symbols[:-1]
    if symbols[-1] == PAST:
        return sentence
    made, last = [], nouns[0]
    for word in sentence:
        last = word if word in _ALL_NOUNS else last
        number = _ALL_NOUNS[nouns[0] if hierarchical else last]
        made.append(VERBS[word]["sp".index(number)] if word in VERBS else word)
    return tuple(made)


def _table(rules: Iterator[str]) -> LengthTable:
    return LengthTable(PCFG.fromstring("\n".join(rules)))


def _words(left: str, words: Sequence[str]) -> str:
    """Return rules for equally likely words; NLTK's notation needs double quotes around apostrophes."""
    return f"{left} -> " + " | ".join(f'"{word}" [{1 / len(words)!r}]' for word in words)


def _noun_phrases() -> Iterator[str]:
    for number, nouns in NUMBER.items():
        yield f"NP{number} -> D N{number} [0.7] | D A N{number} [0.3]"
        yield _words(f"N{number}", nouns)
    yield _words("D", DETERMINERS)
    yield _words("A", ADJECTIVES)


def _question_rules(modified: bool) -> Iterator[str]:
    """Yield the grammar of sentences with auxiliaries, whose subject has a relative clause or not."""
    clause = {number: f"R{number} " if modified else "" for number in "sp"}
    yield " | ".join(
        f"{'S -> ' if number == 's' else ''}NP{number} {clause[number]}VP{number} '.' [0.5]"
        for number in "sp"
    )
    for number in "sp":
        yield f"VP{number} -> X{number} I [0.3] | X{number} T O [0.7]"
        yield (
            f"R{number} -> 'that' X{number} I [0.3] | 'that' X{number} T NPs [0.2] | "
            f"'that' X{number} T NPp [0.2] | 'that' NPs Xs T [0.15] | 'that' NPp Xp T [0.15]"
        )
        yield _words(f"X{number}", AUXILIARIES[number])
    yield "O -> NPs [0.3] | NPp [0.3] | NPs Rs [0.2] | NPp Rp [0.2]"
    yield _words("I", INTRANSITIVE)
    yield _words("T", TRANSITIVE)
    yield from _noun_phrases()


def _tense_rules(modified: bool) -> Iterator[str]:
    """Yield the grammar of sentences in the past tense; a phrase or clause may follow the subject."""
    yield "S -> SU V NP '.' [1.0]"
    yield "SU -> NP P NP [0.6] | NP 'that' V NP [0.4]" if modified else "SU -> NP [1.0]"
    yield "NP -> NPs [0.5] | NPp [0.5]"
    yield _words("V", tuple(VERBS))
    if modified:
        yield _words("P", PREPOSITIONS)
    yield from _noun_phrases()
