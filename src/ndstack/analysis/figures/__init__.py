"""Pictures of stacks: heat maps, runs, stack WFAs and principal components, for files and notebooks."""

from ndstack.analysis.figures.animation import Animation, animate_stacks
from ndstack.analysis.figures.evolution import Evolution, draw_evolution
from ndstack.analysis.figures.heat_maps import draw_actions, draw_attention, draw_predictions, draw_readings
from ndstack.analysis.figures.pca import draw_pca, readings_by_next_symbol
from ndstack.analysis.figures.picture import Picture
from ndstack.analysis.figures.run_pictures import draw_nltk_tree, draw_stacks, draw_tree
from ndstack.analysis.figures.stack_wfa_picture import draw_wfa

__all__ = [
    "Animation",
    "Evolution",
    "Picture",
    "animate_stacks",
    "draw_actions",
    "draw_attention",
    "draw_evolution",
    "draw_nltk_tree",
    "draw_pca",
    "draw_predictions",
    "draw_readings",
    "draw_stacks",
    "draw_tree",
    "draw_wfa",
    "readings_by_next_symbol",
]
