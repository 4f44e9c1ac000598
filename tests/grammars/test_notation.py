import nltk
import pytest
from hypothesis import given

from ndstack.errors import GrammarError
from ndstack.grammars import CFG, PCFG, Nonterminal, Rule, WeightedCFG, read_grammar
from tests.strategies import grammars, pcfgs


def test_reads_alternatives_epsilon_comments_and_continued_lines():
    grammar = read_grammar("# a comment\nS -> '0' S '0' [0.25] | \\\n  \"it's\" [1/4]\nS -> [5e-1]\n")
    S = Nonterminal("S")
    assert isinstance(grammar, PCFG)
    assert grammar.rules == (Rule(S, ("0", S, "0"), 0.25), Rule(S, ("it's",), 0.25), Rule(S, (), 0.5))
    assert grammar.terminals == ("0", "it's")


def test_a_last_line_that_goes_on_is_read():
    assert read_grammar("S -> 'a' | \\\n'b' \\") == CFG.fromstring("S -> 'a' | 'b'")


def test_grammar_without_weights_is_a_cfg():
    assert type(read_grammar("S -> 'a' S | 'b'")) is CFG


def test_start_directive_and_first_left_side():
    assert read_grammar("%start B\nA -> 'a'\nB -> A 'b'").start == Nonterminal("B")
    assert read_grammar("B -> A 'b'\nA -> 'a'").start == Nonterminal("B")


def test_equal_rules_are_merged_and_rules_of_weight_zero_dropped():
    grammar = PCFG.fromstring("S -> 'a' [0.25] | 'a' [0.25] | 'b' [0.5] | 'c' [0]")
    assert [(r.right, r.weight) for r in grammar.rules] == [(("a",), 0.5), (("b",), 0.5)]


def test_weighted_grammar_need_not_sum_to_one():
    assert WeightedCFG.fromstring("S -> 'a' [2] | 'b' S [0.1]").rules[0].weight == 2


@given(grammars())
def test_written_cfg_is_read_back_by_us_and_by_nltk(grammar):
    assert CFG.fromstring(str(grammar)) == grammar
    theirs = nltk.CFG.fromstring(str(grammar))
    assert {str(p) for p in theirs.productions()} == {
        f"{r.left} -> {str(r).split('-> ')[-1]}" if r.right else f"{r.left} -> " for r in grammar.rules
    }


@given(pcfgs())
def test_written_pcfg_is_read_back_by_us_and_by_nltk(grammar):
    assert PCFG.fromstring(str(grammar)) == grammar
    theirs = nltk.PCFG.fromstring(str(grammar))
    assert [p.prob() for p in theirs.productions()] == pytest.approx([r.weight for r in grammar.rules])


def test_small_weights_are_written_without_exponent():
    text = str(WeightedCFG.fromstring("S -> 'a' [1e-20]"))
    assert text == "S -> 'a' [0.00000000000000000001]"
    assert WeightedCFG.fromstring(text).rules[0].weight == 1e-20


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "the grammar is empty"),
        ("# only a comment\n", "the grammar is empty"),
        ("S -> 'a' [0.5] | 'b' [0.4]", "rules of S sum to 0.9 instead of 1 (last rule: S -> 'b' [0.4])"),
        ("S -> 'a' [1.5] | 'b' [-0.5]", "rule S -> 'b' has weight -0.5"),
        ("S -> 'a' [nan]", "rule S -> 'a' has weight nan"),
        ("S -> 'a' [inf]", "rule S -> 'a' has weight inf"),
        ("S -> 'a' [x]", "line 1: rule S -> 'a': [x] is not a number"),
        ("S -> 'a' [1/0]", "line 1: rule S -> 'a': [1/0] is not a number"),
        ("S -> 'a' [0.5] | 'b'", "line 1: rule S -> 'b' has no probability"),
        ("S -> 'a' | ε", "leave the right side empty for the empty string"),
        ("S -> 'a' T", "rule S -> 'a' T: nonterminal T has no rules"),
        ("S -> 'a'\nT -> 'b'", "rule T -> 'b': T cannot be reached from the start variable S"),
        ("S -> 'a' | T\nT -> T 'b'", "rule T -> T 'b': T derives no string of terminals"),
        ("%start T\nS -> 'a'", "the start variable T has no rules"),
        ("S -> 'a' -> 'b'", "line 1: \"S -> 'a' -> 'b'\" has a second ->"),
        ("S 'a'", "line 1: \"S 'a'\" is not a rule"),
        ("S -> 'a", "line 1: cannot read \"'a\""),
        ("S -> 'a' |\\\n'", "line 1: cannot read \"'\""),
        ("S -> ''", "has an empty terminal"),
        ("S -> 'a' [0.5] 'b'", "'b' follows a weight"),
    ],
)  # fmt: skip
def test_errors_name_the_rule_in_one_line(text, message):
    with pytest.raises(GrammarError) as error:
        read_grammar(text)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_plain_cfg_refuses_weights():
    with pytest.raises(GrammarError, match="grammar without weights"):
        CFG.fromstring("S -> 'a' [1]")
    with pytest.raises(GrammarError, match="grammar without weights"):
        CFG((Rule(Nonterminal("S"), ("a",), 0.5),), Nonterminal("S"))


def test_missing_and_binary_files_are_named(tmp_path):
    with pytest.raises(GrammarError, match=r"cannot read the grammar file .*nowhere\.cfg: No such file"):
        read_grammar(tmp_path / "nowhere.cfg")
    (tmp_path / "binary.cfg").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(GrammarError, match="it is not UTF-8 text"):
        read_grammar(tmp_path / "binary.cfg")


def test_a_byte_order_mark_is_no_harm(tmp_path):
    (tmp_path / "bom.cfg").write_text("S -> 'a'", encoding="utf-8-sig")
    assert read_grammar(tmp_path / "bom.cfg").terminals == ("a",)


def test_sums_that_miss_by_rounding_are_made_exact():
    grammar = PCFG.fromstring("S -> 'a' [0.3333333333] | 'b' [0.3333333333] | 'c' [0.3333333333]")
    assert sum(r.weight for r in grammar.rules) == pytest.approx(1, abs=1e-15)
    assert grammar.rules_for(grammar.start) == grammar.rules
    assert PCFG.fromstring(str(grammar)) == grammar


def test_error_in_a_file_names_the_file(tmp_path):
    file = tmp_path / "bad.cfg"
    file.write_text("S -> T")
    with pytest.raises(GrammarError, match=r"bad\.cfg: rule S -> T"):
        read_grammar(file)


def test_names_that_cannot_be_written_are_refused():
    S = Nonterminal("S'")
    with pytest.raises(GrammarError, match="cannot be written"):
        str(CFG((Rule(S, ("a",)),), S))
    with pytest.raises(GrammarError, match="a line break"):
        str(CFG((Rule(Nonterminal("S"), ("a\u2028",)),), Nonterminal("S")))
    with pytest.raises(GrammarError, match="a right side is a tuple"):
        CFG((Rule(Nonterminal("S"), ("",)),), Nonterminal("S"))
    with pytest.raises(GrammarError, match="both kinds of quotes"):
        str(CFG((Rule(Nonterminal("S"), ("'\"",)),), Nonterminal("S")))


@pytest.mark.parametrize("arrow", ["→", "::=", ":=", "=>", "⇒", "-->", ":", "="])
@pytest.mark.parametrize("rule", ["S {} 'a' S | 'b'", "S{} 'a'", "S {} NP VP [1]", "<S> {} 'a'"])
def test_other_arrows_are_refused_with_the_right_one(arrow, rule):
    with pytest.raises(GrammarError, match=r"line 2: .* has .* where an arrow is expected; use ->") as error:
        read_grammar("# a comment\n" + rule.format(arrow))
    assert f"has {arrow} where" in str(error.value)
    assert "\n" not in str(error.value)
    assert read_grammar(f"S -> 'a' '{arrow}' | '{arrow}'").terminals == ("a", arrow)
