import pytest
from hypothesis import given
from hypothesis import strategies as st

from ndstack.text.formulas import FormulaError, Operation, conjuncts, is_true, parse_formula, regions

VALUES = {(1, "a"): 1.0, (2, "a"): 2.5, (1, "b"): 3.0, (2, "b"): 2.5, (None, "a"): 3.5, (None, "b"): 5.5}


def holds(text):
    return is_true(parse_formula(text), lambda region, condition: VALUES[region, condition])


@pytest.mark.parametrize(
    "text, truth",
    [
        ("(1;%a%) < (1;%b%)", True),
        ("(1;%a%)>(1;%b%)", False),
        ("(2;%a%) = (2;%b%)", True),
        ("[(2;%a%) > (2;%b%)]", False),
        ("(*;%a%) < (*;%b%)", True),
        ("( ( 1 ; %a% ) + (2;%a%) ) = (*;%a%)", True),
        ("[(1;%b%) - (1;%a%)] - [(2;%b%)-(2;%a%)] > 1.99", True),
        ("[(1;%b%) - (1;%a%)] + [(2;%b%)-(2;%a%)] > 2", False),
        ("(1;%a%) - (1;%b%) - (2;%a%) = -4.5", True),
        ("(1;%a%) - [(1;%b%) - (2;%a%)] = .5", True),
        ("[(1;%a%) < (1;%b%)] & [(2;%a%) < (2;%b%)]", False),
        ("[(1;%a%) < (1;%b%)] | [(2;%a%) < (2;%b%)]", True),
        ("(1;%a%) > 5 & (1;%a%) > 6 | (2;%b%) > 0", True),
        ("(2;%b%) > 0 | (1;%a%) > 5 & (1;%a%) > 6", True),
        ("((2;%b%) > 0 | (1;%a%) > 5) & (1;%a%) > 6", False),
    ],
)
def test_truth_is_that_computed_by_hand(text, truth):
    assert holds(text) is truth


@pytest.mark.parametrize(
    "text, message",
    [
        ("(1;%a%)", "is a number"),
        ("(1;%a%) <", "expected a region.*got the end"),
        ("(1;%a%) < (1;%b%", r"'\(' at character 11|cannot be part of a formula"),
        ("[(1;%a%) < (1;%b%))", r"expected '\]', got '\)' at character 19"),
        ("(1;%a%) < (1;%b%) (1;%a%)", "expected the end"),
        ("(1;%a%) & (1;%b%)", "between two comparisons"),
        ("(1;%a%) < (1;%b%) < 3", "between two numbers"),
        ("[(1;%a%) < 1] + 2 > 0", "between two numbers"),
        ("(1;%a%) * 2 > 3", "'\\* 2 > 3' cannot be part"),
        ("", "expected a region"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text, message):
    with pytest.raises(FormulaError, match=message):
        parse_formula(text)


def test_conjuncts_and_regions():
    formula = parse_formula("[(1;%a%) < (1;%b%)] & [[(2;%a%)>0] & [(*;%b%) > 1 | 0 > 1]]")
    assert [part.sign for part in conjuncts(formula)] == ["<", ">", "|"]
    assert [(one.number, one.condition) for one in regions(formula)] == [
        (1, "a"),
        (1, "b"),
        (2, "a"),
        (None, "b"),
    ]


NUMBERS = st.recursive(
    st.sampled_from([*VALUES, 0, 1, 2.5]),
    lambda inner: st.tuples(st.sampled_from("+-"), inner, inner),
    max_leaves=5,
)
CLAIMS = st.recursive(
    st.tuples(st.sampled_from("<>="), NUMBERS, NUMBERS),
    lambda inner: st.tuples(st.sampled_from("&|"), inner, inner),
    max_leaves=4,
)


@given(CLAIMS, st.lists(st.sampled_from(["()", "[]"]), min_size=1, max_size=5))
def test_any_formula_means_what_python_says_it_means(claim, brackets):
    turn = iter(range(10**6))

    def show(part):
        if isinstance(part, (int, float)):
            return str(part), repr(part)
        if len(part) == 2:
            return f"({'*' if part[0] is None else part[0]};%{part[1]}%)", repr(VALUES[part])
        own = brackets[next(turn) % len(brackets)]
        left, right = show(part[1]), show(part[2])
        sign = {"=": "==", "&": "and", "|": "or"}.get(part[0], part[0])
        return f"{own[0]}{left[0]} {part[0]} {right[0]}{own[1]}", f"({left[1]} {sign} {right[1]})"

    ours, pythons = show(claim)
    assert isinstance(parse_formula(ours), Operation)
    assert holds(ours) == eval(pythons)
