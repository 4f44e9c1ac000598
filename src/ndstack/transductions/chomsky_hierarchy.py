"""The fifteen tasks of the Chomsky-hierarchy benchmark of Delétang et al. (2023), as transductions.

Models are trained on inputs of lengths 1 to 40 and tested on lengths 41 to 500; the score is the accuracy per
symbol, averaged over the test lengths. Where an output may have several lengths for one length of inputs, its
end counts like a symbol. Numbers of additions and multiplications are written with the least significant bit
first, roots and radicands with the most significant bit first.
"""

import itertools
import math
from collections.abc import Callable
from typing import Literal, NamedTuple

from ndstack.grammars.length_sampling import Random
from ndstack.transductions import arithmetic
from ndstack.transductions.transduction import Symbols, Transduction, choose, choose_many, no_input

Level = Literal["regular", "deterministic context-free", "context-sensitive"]
TRAIN_LENGTHS = (1, 40)
"""The smallest and the greatest length of training inputs in the paper."""
TEST_LENGTHS = (41, 500)
"""The same for test inputs."""
LETTERS, BITS = ("a", "b"), ("0", "1")
CYCLE = 5
"""The number of places of cycle navigation, and of the symbols of bucket sort."""
BLANK = "_"
PUSHES = {"push-a": "a", "push-b": "b"}
POP = "pop"
_MOVES = {"stay": 0, "up": 1, "down": -1}


class Task(NamedTuple):
    """A task of the benchmark."""

    level: Level
    description: str
    make: Callable[[str], Transduction]


def _letters(solve: Callable[[Symbols], Symbols], target: Symbols = LETTERS) -> Callable[[str], Transduction]:
    """Return a maker of transductions of all strings of two letters."""
    return lambda name: Transduction(name, LETTERS, target, _draw_letters, solve)


def _draw_letters(length: int, rng: Random) -> Symbols:
    return choose_many(LETTERS, length, rng)


def _even_pairs(symbols: Symbols) -> Symbols:
    changes = sum(one != other for one, other in itertools.pairwise(symbols))
    return (BITS[changes % 2 == 0],)


def _parity(symbols: Symbols) -> Symbols:
    return (BITS[symbols.count("b") % 2 == 0],)


def _odds_first(symbols: Symbols) -> Symbols:
    return symbols[::2] + symbols[1::2]


def _simple_arithmetic(name: str) -> Transduction:
    symbols = (*arithmetic.DIGITS, *arithmetic.OPERATORS)
    draw, solve = arithmetic.draw_simple, arithmetic.evaluate_simple
    return Transduction(name, symbols, arithmetic.DIGITS, draw, solve, has_length=lambda n: n % 2 == 1)


def _brackets(name: str) -> Transduction:
    symbols = (*arithmetic.DIGITS, *arithmetic.OPERATORS, "(", ")")
    draw, solve = arithmetic.draw_expression, arithmetic.evaluate_brackets
    return Transduction(name, symbols, arithmetic.DIGITS, draw, solve)


def _equation(name: str) -> Transduction:
    symbols = (*arithmetic.DIGITS, *arithmetic.OPERATORS, "(", ")", arithmetic.UNKNOWN, "=")
    draw, solve = arithmetic.draw_equation, arithmetic.solve_equation
    return Transduction(name, symbols, arithmetic.DIGITS, draw, solve, has_length=lambda n: n >= 3)


def _cycle(name: str) -> Transduction:
    def solve(symbols: Symbols) -> Symbols:
        return (str(sum(_MOVES[symbol] for symbol in symbols) % CYCLE),)

    places = tuple(map(str, range(CYCLE)))
    return Transduction(name, tuple(_MOVES), places, lambda n, rng: choose_many(tuple(_MOVES), n, rng), solve)


def _stack(name: str) -> Transduction:
    actions = (*PUSHES, POP)

    def draw(length: int, rng: Random) -> Symbols:
        height = 1 + int(rng.random() * max(length - 1, 1))
        return choose_many(LETTERS, height, rng) + choose_many(actions, length - height, rng)

    def solve(symbols: Symbols) -> Symbols:
        height = next((i for i, symbol in enumerate(symbols) if symbol in actions), len(symbols))
        if {*symbols[height:]} & {*LETTERS}:
            raise no_input(symbols, "the letters of a stack from bottom to top, then actions")
        stack = list(symbols[:height])
        for action in symbols[height:]:
            if action in PUSHES:
                stack.append(PUSHES[action])
            elif stack:
                stack.pop()
        return tuple(reversed(stack))

    return Transduction(name, (*LETTERS, *actions), LETTERS, draw, solve, scores_end=True)


def _missing_duplicate(name: str) -> Transduction:
    def draw(length: int, rng: Random) -> Symbols:
        half = choose_many(LETTERS, length // 2, rng)
        place = int(rng.random() * length)
        return tuple(BLANK if i == place else symbol for i, symbol in enumerate(half + half))

    def solve(symbols: Symbols) -> Symbols:
        half = len(symbols) // 2
        copies = list(zip(symbols[:half], symbols[half:], strict=True))
        gaps = [pair for pair in copies if BLANK in pair]
        if symbols.count(BLANK) != 1 or any(a != b for a, b in copies if BLANK not in (a, b)):
            raise no_input(symbols, f"a string twice, with {BLANK} in one place, such as ab{BLANK}b")
        return (gaps[0][gaps[0][0] == BLANK],)

    return Transduction(
        name, (*LETTERS, BLANK), LETTERS, draw, solve, has_length=lambda n: n >= 2 and n % 2 == 0
    )


def _operation(sign: str, operate: Callable[[int, int], int]) -> Callable[[str], Transduction]:
    """Return a maker of an operation on two binary numbers, whose least significant bit is the first."""

    def draw(length: int, rng: Random) -> Symbols:
        first = 1 + int(rng.random() * (length - 2))
        return (*choose_many(BITS, first, rng), sign, *choose_many(BITS, length - 1 - first, rng))

    def solve(symbols: Symbols) -> Symbols:
        left, found, right = "".join(symbols).partition(sign)
        if not left or not found or not right or sign in right:
            raise no_input(symbols, f"two binary numbers with {sign} between them")
        return tuple(f"{operate(int(left[::-1], 2), int(right[::-1], 2)):b}"[::-1])

    def make(name: str) -> Transduction:
        return Transduction(
            name, (*BITS, sign), BITS, draw, solve, has_length=lambda n: n >= 3, scores_end=True
        )

    return make


def _square_root(name: str) -> Transduction:
    def solve(symbols: Symbols) -> Symbols:
        size = (len(symbols) + 1) // 2
        return tuple(f"{math.isqrt(int(''.join(symbols), 2)):0{size}b}")

    return Transduction(name, BITS, BITS, lambda n, rng: choose_many(BITS, n, rng), solve)


def _bucket_sort(name: str) -> Transduction:
    symbols = tuple(map(str, range(CYCLE)))

    def draw(length: int, rng: Random) -> Symbols:
        return tuple(choose(symbols, rng) for _ in range(length))

    return Transduction(name, symbols, symbols, draw, lambda given: tuple(sorted(given)))


TASKS: dict[str, Task] = {
    "even-pairs": Task("regular", "1 if letters change an even number of times", _letters(_even_pairs, BITS)),
    "modular-arithmetic": Task("regular", "the value modulo 5, without brackets", _simple_arithmetic),
    "parity-check": Task("regular", "1 if the number of b is even", _letters(_parity, BITS)),
    "cycle-navigation": Task("regular", "the place on a circle of five after all moves", _cycle),
    "stack-manipulation": Task(
        "deterministic context-free", "the stack after all actions, from top to bottom", _stack
    ),
    "reverse-string": Task(
        "deterministic context-free", "the string reversed", _letters(lambda symbols: symbols[::-1])
    ),
    "modular-arithmetic-brackets": Task(
        "deterministic context-free", "the value modulo 5, with brackets", _brackets
    ),
    "solve-equation": Task("deterministic context-free", "the unknown of an equation modulo 5", _equation),
    "duplicate-string": Task(
        "context-sensitive", "the string twice", _letters(lambda symbols: symbols + symbols)
    ),
    "missing-duplicate": Task("context-sensitive", "the symbol missing in w w", _missing_duplicate),
    "odds-first": Task("context-sensitive", "symbols 1, 3, 5, ..., then 2, 4, 6, ...", _letters(_odds_first)),
    "binary-addition": Task(
        "context-sensitive", "the sum of two binary numbers", _operation("+", lambda a, b: a + b)
    ),
    "binary-multiplication": Task(
        "context-sensitive", "the product of two binary numbers", _operation("*", lambda a, b: a * b)
    ),
    "compute-sqrt": Task(
        "context-sensitive", "the square root of a binary number, rounded down", _square_root
    ),
    "bucket-sort": Task("context-sensitive", "the symbols 0 to 4 sorted", _bucket_sort),
}
"""The tasks by name, in the order of the paper's table."""
