"""The looks of all figures: one colour and one label for a model, labels at line ends, and marks."""

import numpy as np
import pytest
from matplotlib.patches import Rectangle

from ndstack import model_names, plotting
from ndstack.training.evaluation import Evaluation, Row
from ndstack.training.pictures import draw_by_length, draw_curves


@pytest.mark.parametrize(
    "name, label, family",
    [
        ("lstm", "LSTM", "LSTM"),
        ("rns-2-3", "RNS 2-3", "RNS"),
        ("NS+S+U", "RNS", "RNS"),
        ("RNS 2-3", "RNS 2-3", "RNS"),
        ("ns+s-2-3", "NS+S 2-3", "NS+S"),
        ("NS, |Q| = 1, |Γ| = 2", "NS, |Q| = 1, |Γ| = 2", "NS"),
        ("sup-h", "Sup. h", "Sup."),
        ("sup-3-3-3", "Sup. 3-3-3", "Sup."),
        ("tf", "Trans.", "Trans."),
        ("tf+vrns-3-3-5", "Trans. + VRNS 3-3-5", "Trans. + VRNS"),
        ("runs/sup-port", "runs/sup-port", None),
        ("sup-port", "sup-port", None),
    ],
)
def test_a_model_has_one_label(name, label, family):
    assert model_names.label(name) == label
    assert model_names.label(label) == label
    assert model_names.family(label) == family


def test_every_kind_has_a_colour_of_its_own_beside_those_it_is_compared_with():
    for name in model_names.NAMES:
        assert model_names.family(model_names.label(name)) in plotting.FAMILIES
    recurrent = [color for kind, color in plotting.FAMILIES.items() if not kind.startswith("Trans.")]
    assert len(set(recurrent)) == len(recurrent)


def test_colours_do_not_depend_on_the_figure_and_no_two_lines_look_the_same():
    first = plotting.model_styles(["rns-2-3", "lstm"])
    second = plotting.model_styles(["mine", "LSTM", "RNS 1-3", "RNS 2-3", "other", "Sup.", "Trans. + Sup."])
    assert first["rns-2-3"]["color"] == second["RNS 1-3"]["color"] == second["RNS 2-3"]["color"]
    assert first["lstm"]["color"] == second["LSTM"]["color"]
    looks = [tuple(style.values()) for style in second.values()]
    assert len(set(looks)) == len(looks)


def test_labels_are_moved_apart_and_keep_their_order():
    heights = [10.0, 10.0, 11.0, 60.0, 99.0]
    places = plotting._apart(heights, 8.0, 0.0, 100.0)
    assert places == sorted(places)
    assert np.diff(places).min() > 7.9
    assert places[0] > -0.1
    assert places[-1] < 100.1
    assert plotting._apart([50.0], 8.0, 0.0, 100.0) == [50.0]


def texts(axes):
    return {text.get_text(): text for text in axes.texts}


def test_curves_have_labels_where_they_end_the_lower_bound_and_a_log_scale_for_decades():
    history = [
        [{"epoch": e, "validation_difference": 0.4 / 3**e + least} for e in range(1, 9)] for least in (0.3, 0)
    ]
    axes = draw_curves({"lstm": history[0], "rns-2-3": history[1]}).axes[0]
    assert axes.get_legend() is None
    found = texts(axes)
    assert {"LSTM", "RNS 2-3", "lower bound"} == found.keys()
    assert found["RNS 2-3"].xy == pytest.approx((8, history[1][-1]["validation_difference"]))
    assert found["RNS 2-3"].get_color() == plotting.FAMILIES["RNS"]
    assert axes.get_yscale() == "symlog"
    assert draw_curves({"lstm": history[0]}).axes[0].get_yscale() == "linear"


def test_results_by_length_have_the_training_lengths_marked():
    scores = [Row(length, 10, 10 * length, 0.2 + length / 100, 0.1) for length in (10, 20, 30)]
    figure = draw_by_length({"lstm": Evaluation("test", scores[0], tuple(scores))}, training=(10, 20))
    assert {"LSTM", "lower bound", "training lengths"} == texts(figure.axes[0]).keys()
    (span,) = figure.axes[0].patches
    assert isinstance(span, Rectangle)
    assert (span.get_x(), span.get_width()) == (10, 10)
