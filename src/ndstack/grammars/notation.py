"""Grammar files in NLTK's notation: `S -> '0' S '0' [0.49] | [0.51]`.

Unlike NLTK's reader, this one accepts weights that are fractions (`[1/3]`) or in exponent notation, and every
error names its line. NLTK can read what is written here.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ndstack.errors import GrammarError
from ndstack.grammars.grammar import CFG, PCFG, Nonterminal, Rule, Symbol

NAME = r"[\w/][\w/^<>-]*"
_TOKEN = re.compile(
    rf"""\s*(?: (?P<arrow>->) | (?P<bar>\|) | \[(?P<weight>[^\]]*)\]
         | '(?P<single>[^']*)' | "(?P<double>[^"]*)" | (?P<name>{NAME}) )\s*""",
    re.VERBOSE,
)


def read_grammar(source: str | Path) -> CFG:
    """Return the grammar in a file (a `Path`) or a text (a `str`): a PCFG if it has weights, else a CFG."""
    text = _read_file(source) if isinstance(source, Path) else source
    where = f"{source}: " if isinstance(source, Path) else ""
    try:
        weighted = any("[" in re.sub(r"'[^']*'|\"[^\"]*\"", "", line) for _, line in _lines(text))
        return PCFG.fromstring(text) if weighted else CFG.fromstring(text)
    except GrammarError as error:
        raise GrammarError(f"{where}{error}") from None


def parse_rules(text: str, *, weighted: bool) -> tuple[list[Rule], Nonterminal]:
    """Return the rules of a text and the start variable (`%start X`, or the first left side)."""
    rules: list[Rule] = []
    start: Nonterminal | None = None
    for number, line in _lines(text):
        if directive := re.fullmatch(rf"%start\s+({NAME})\s*", line):
            start = Nonterminal(directive[1])
            continue
        try:
            rules += _parse_line(line, weighted=weighted)
        except GrammarError as error:
            raise GrammarError(f"line {number}: {error}") from None
    if not rules:
        raise GrammarError("the grammar is empty; write at least one rule, such as S -> 'a' S 'b' | 'c'")
    return rules, start or rules[0].left


def format_rules(grammar: CFG) -> str:
    """Return the grammar in NLTK's notation, one rule per line, those of the start variable first."""
    lines = []
    for left in grammar.nonterminals:
        for rule in grammar.rules_for(left):
            _check_writable(rule)
            # without an exponent, because NLTK cannot read one
            weight = np.format_float_positional(rule.weight, trim="0")
            lines.append(f"{rule} [{weight}]" if grammar.weighted else f"{rule}")
    return "\n".join(lines)


def _read_file(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise GrammarError(f"cannot read the grammar file {path}: {reason}") from None


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield logical lines with their numbers, without blank lines and comments; `\\` continues a line."""
    pending, first = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not pending and (not line or line.startswith("#")):
            continue
        first = first if pending else number
        if line.endswith("\\"):
            pending += line[:-1] + " "
        else:
            yield first, pending + line
            pending = ""
    if pending:
        yield first, pending


def _tokens(line: str) -> Iterator[tuple[str, str]]:
    position = 0
    while position < len(line):
        match = _TOKEN.match(line, position)
        if match is None:
            raise GrammarError(
                f"cannot read {line[position:]!r}; expected a nonterminal, a quoted terminal, "
                "a weight in [ ] or |"
            )
        position = match.end()
        yield match.lastgroup or "", match[match.lastgroup or 0]


_OTHER_ARROW = re.compile(rf"<?{NAME}>?\s*(::=|:=|=>|→|⇒|⟶|-->|–>|—>|−>|:|=)")


def _parse_line(line: str, *, weighted: bool) -> Iterator[Rule]:
    if (other := _OTHER_ARROW.match(line)) is not None:
        raise GrammarError(
            f"{line!r} has {other[1]} where an arrow is expected; use ->, as in S -> 'a' S | 'b'"
        )
    tokens = list(_tokens(line))
    if len(tokens) < 2 or tokens[0][0] != "name" or tokens[1][0] != "arrow":
        raise GrammarError(f"{line!r} is not a rule; expected NONTERMINAL -> SYMBOLS")
    left = Nonterminal(tokens[0][1])
    right: list[Symbol] = []
    weight: float | None = None
    for kind, value in [*tokens[2:], ("bar", "|")]:
        if kind == "bar":
            yield _rule(left, right, weight, weighted=weighted)
            right, weight = [], None
        elif kind == "arrow":
            raise GrammarError(f"{line!r} has a second ->; write one rule per line")
        elif weight is not None:
            raise GrammarError(f"{line!r}: {value!r} follows a weight; expected | or the line's end")
        elif kind == "weight":
            weight = _weight(value, Rule(left, tuple(right)))
        elif kind == "name":
            right.append(Nonterminal(value))
        elif not value:
            raise GrammarError(f"{line!r} has an empty terminal; leave the right side empty for ε")
        else:
            right.append(value)


def _rule(left: Nonterminal, right: list[Symbol], weight: float | None, *, weighted: bool) -> Rule:
    rule = Rule(left, tuple(right), 1.0 if weight is None else weight)
    if weighted and weight is None:
        raise GrammarError(f"rule {rule} has no probability; write it after the rule: {rule} [0.5]")
    if not weighted and weight is not None:
        raise GrammarError(f"rule {rule} has a weight in a grammar without weights; use PCFG")
    return rule


def _weight(text: str, rule: Rule) -> float:
    numerator, _, denominator = text.partition("/")
    try:
        return float(numerator) / float(denominator or 1)
    except (ValueError, ZeroDivisionError):
        raise GrammarError(
            f"rule {rule}: [{text}] is not a number; write [0.25], [1/4] or [2.5e-1]"
        ) from None


def _check_writable(rule: Rule) -> None:
    for symbol in rule.right:
        if isinstance(symbol, str) and "'" in symbol and '"' in symbol:
            raise GrammarError(f"terminal {symbol!r} contains both kinds of quotes and cannot be written")
        if isinstance(symbol, str) and symbol.splitlines() != [symbol]:
            raise GrammarError(f"terminal {symbol!r} contains a line break and cannot be written")
    for symbol in (rule.left, *rule.right):
        if isinstance(symbol, Nonterminal) and not re.fullmatch(NAME, symbol.name):
            raise GrammarError(f"nonterminal {symbol.name!r} cannot be written in NLTK's notation")
