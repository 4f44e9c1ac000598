import re
from xml.etree import ElementTree

from ndstack.automata import Lang, Transition, run_svg, stack_wfa_svg, unmarked_reversal_pda
from ndstack.automata.pda import RestrictedWPDA
from ndstack.semirings import COUNTING, REAL, VITERBI

NAMESPACE = "{http://www.w3.org/2000/svg}"


def texts(svg):
    return [e.text for e in ElementTree.fromstring(svg).iter(f"{NAMESPACE}text")]


def test_svg_shows_every_state_and_edge_once():
    wfa = Lang(unmarked_reversal_pda(), REAL, "0110").stack_wfa()
    svg = stack_wfa_svg(wfa)
    labels = [wfa.label(s) for s in wfa.states if wfa.label(s)]
    assert sorted(t for t in texts(svg) if t and ", " in t) == sorted(labels)
    assert svg.count("marker-end") == len(wfa.edges)
    assert svg.count("stroke-dasharray") == 2  # the edges of t = 4 are new


def test_accept_states_have_a_double_border():
    wfa = Lang(unmarked_reversal_pda(), REAL, "0110").stack_wfa()
    boxes = stack_wfa_svg(wfa).count("<rect") - 1
    assert boxes == len(wfa.states) + len(wfa.accept)


def test_weights_are_shown_on_request():
    wfa = Lang(unmarked_reversal_pda(), COUNTING, "00").stack_wfa()
    assert "⊥ / 1" in texts(stack_wfa_svg(wfa, weights=True))
    assert "⊥ / 1" not in texts(stack_wfa_svg(wfa))


def test_labels_are_escaped():
    pda = RestrictedWPDA((Transition("q", "a", ("⊥",), "q", ("⊥", "<&>")),), "q", frozenset({"q"}))
    assert "<&>" in texts(stack_wfa_svg(Lang(pda, REAL, "a").stack_wfa()))


def test_nothing_lies_outside_the_picture():
    svg = run_svg(Lang(unmarked_reversal_pda(), REAL, "00110011"))
    root = ElementTree.fromstring(svg)
    width, height = float(root.get("width")), float(root.get("height"))
    offset = 0.0
    for group in root.iter(f"{NAMESPACE}g"):
        offset = float(re.search(r"translate\(0 ([\d.]+)\)", group.get("transform"))[1])
        for box in group.iter(f"{NAMESPACE}rect"):
            assert 0 <= float(box.get("x")) <= width - float(box.get("width"))
            assert offset + float(box.get("y")) + float(box.get("height")) <= height
        for path in group.iter(f"{NAMESPACE}path"):
            ys = [float(y) for _, y in re.findall(r"(-?[\d.]+),(-?[\d.]+)", path.get("d"))]
            assert offset + max(ys) <= height


def test_run_picture_has_a_panel_for_each_time():
    svg = run_svg(Lang(unmarked_reversal_pda(), REAL, "0110"))
    assert [t for t in texts(svg) if t and t.startswith("t = ")] == [f"t = {t}" for t in range(5)]


def test_graphviz_source_names_states_and_edges():
    wfa = Lang(unmarked_reversal_pda(), REAL, "0110").stack_wfa()
    source = wfa.to_graphviz(weights=True).source
    assert source.count("->") == len(wfa.edges)
    assert 'label="4, q2, ⊥" peripheries=2' in source
    assert 'label="⊥ / 1.0" style=dashed' in source


def test_viterbi_weights_are_shown_as_numbers():
    svg = stack_wfa_svg(Lang(unmarked_reversal_pda(), VITERBI, "0110").stack_wfa(), weights=True)
    assert "⊥ / 0" in texts(svg)
