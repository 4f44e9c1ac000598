"""Arithmetic expressions modulo 5: a grammar of all of them, sampling by length, and their values.

A bracketed expression consists of the digits 0 to 4, the operators +, - and *, brackets, and minus signs at
the beginning of the expression or after an opening bracket. Products bind more tightly than sums, and
operators associate to the left, as usual.
"""

import functools
from collections.abc import Mapping

from ndstack.grammars.grammar import PCFG
from ndstack.grammars.length_sampling import LengthTable, Random
from ndstack.transductions.transduction import Symbols, choose, no_input

MODULUS = 5
DIGITS = tuple(map(str, range(MODULUS)))
OPERATORS = ("+", "-", "*")
UNKNOWN = "x"
EXPRESSIONS = """
S -> T [0.4] | '-' T [0.1] | S '+' T [0.25] | S '-' T [0.25]
T -> F [0.6] | T '*' F [0.4]
F -> '0' [0.14] | '1' [0.14] | '2' [0.14] | '3' [0.14] | '4' [0.14] | '(' S ')' [0.3]
"""
"""A grammar in which every bracketed expression has exactly one derivation."""
_PRIORITY = {"+": 1, "-": 1, "*": 2}


@functools.cache
def _table() -> LengthTable:
    return LengthTable(PCFG.fromstring(EXPRESSIONS))


def draw_expression(length: int, rng: Random) -> Symbols:
    """Return a random bracketed expression, drawn with its probability in the grammar given the length."""
    return _table().sample(length, rng)


def draw_equation(length: int, rng: Random) -> Symbols:
    """Return a random equation of this length in one unknown, which has exactly one solution.

    One digit of a random expression is replaced by the unknown, and the value of the expression follows after
    an equals sign. Since the unknown occurs once, the left side is a linear function of it modulo 5, so there
    is exactly one solution unless the unknown is multiplied by 0; then another digit is tried, and after all
    of them another expression.
    """
    while True:
        symbols = draw_expression(length - 2, rng)
        value = evaluate(symbols)
        places = [place for place, symbol in enumerate(symbols) if symbol in DIGITS]
        while places:
            place = places.pop(int(rng.random() * len(places)))
            left = (*symbols[:place], UNKNOWN, *symbols[place + 1 :])
            if evaluate(left, {UNKNOWN: 0}) != evaluate(left, {UNKNOWN: 1}):
                return (*left, "=", str(value))


def solve_equation(symbols: Symbols) -> Symbols:
    """Return the solution of an equation, such as x*(2-4)=1."""
    wanted = f"an equation with exactly one {UNKNOWN} and exactly one solution, such as {UNKNOWN}+3=2"
    left, equals, right = symbols[:-2], symbols[-2:-1], symbols[-1:]
    if equals != ("=",) or right[0] not in DIGITS or left.count(UNKNOWN) != 1 or "=" in left:
        raise no_input(symbols, wanted)
    found = [digit for digit in DIGITS if evaluate(left, {UNKNOWN: int(digit)}) == int(right[0])]
    if len(found) != 1:
        raise no_input(symbols, wanted)
    return (found[0],)


def draw_simple(length: int, rng: Random) -> Symbols:
    """Return random digits and operators in alternation."""
    return tuple(choose(OPERATORS if place % 2 else DIGITS, rng) for place in range(length))


def evaluate_simple(symbols: Symbols) -> Symbols:
    """Return the value of an expression without brackets as one digit."""
    if not {*symbols[::2]} <= {*DIGITS} or not {*symbols[1::2]} <= {*OPERATORS}:
        raise no_input(symbols, "digits and operators in alternation, such as 1+2*3")
    return (str(evaluate(symbols)),)


def evaluate_brackets(symbols: Symbols) -> Symbols:
    """Return the value of a bracketed expression as one digit."""
    return (str(evaluate(symbols)),)


def evaluate(symbols: Symbols, values: Mapping[str, int] | None = None) -> int:
    """Return the value of an expression modulo 5, by Dijkstra's shunting-yard algorithm.

    Args:
        symbols: the expression.
        values: the values of unknowns.
    """
    known = {digit: int(digit) for digit in DIGITS} | dict(values or {})
    numbers: list[int] = []
    waiting: list[str] = []
    wants_operand, before = True, ""
    for symbol in ("(", *symbols, ")") if _balanced(symbols) else ():
        if symbol in known and wants_operand:
            numbers.append(known[symbol])
            wants_operand = False
        elif symbol == "(" and wants_operand:
            waiting.append(symbol)
        elif symbol == "-" and before == "(":  # a sign: subtract from 0
            numbers.append(0)
            waiting.append(symbol)
        elif symbol in _PRIORITY and not wants_operand:
            _reduce(numbers, waiting, _PRIORITY[symbol])
            waiting.append(symbol)
            wants_operand = True
        elif symbol == ")" and not wants_operand:
            _reduce(numbers, waiting, 0)
            waiting.pop()
        else:
            break
        before = symbol
    else:
        if numbers:
            return numbers[0] % MODULUS
    raise no_input(symbols, "an arithmetic expression, such as (1-2)*(-3)")


def _balanced(symbols: Symbols) -> bool:
    """Return whether every bracket that is opened is closed later."""
    depth = 0
    for symbol in symbols:
        depth += (symbol == "(") - (symbol == ")")
        if depth < 0:
            return False
    return depth == 0


def _reduce(numbers: list[int], waiting: list[str], least: int) -> None:
    """Carry out the waiting operators of at least this priority, up to the last open bracket."""
    while waiting and waiting[-1] != "(" and _PRIORITY[waiting[-1]] >= least:
        right, left, operator = numbers.pop(), numbers.pop(), waiting.pop()
        if operator == "*":
            numbers.append(left * right % MODULUS)
        else:
            numbers.append((left + right if operator == "+" else left - right) % MODULUS)
