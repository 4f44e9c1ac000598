"""Networks that own a stack (chapters 3 to 10): the recurrent ones, stack attention, language models."""

from ndstack.nn import models
from ndstack.nn.attention import AttentionState, DotProductAttention, StackAttention
from ndstack.nn.backbone import Backbone
from ndstack.nn.generation import Generated, beam_search, greedy, sample
from ndstack.nn.initialization import initialize
from ndstack.nn.language_model import LanguageModel
from ndstack.nn.recognition import Recognizer, recognize_lines, recognizer
from ndstack.nn.rnn import RNNState, StackRNN
from ndstack.nn.state import NetworkState
from ndstack.nn.storage import load
from ndstack.nn.transformer import Transformer, TransformerState

__all__ = [
    "AttentionState",
    "Backbone",
    "DotProductAttention",
    "Generated",
    "LanguageModel",
    "NetworkState",
    "RNNState",
    "Recognizer",
    "StackAttention",
    "StackRNN",
    "Transformer",
    "TransformerState",
    "beam_search",
    "greedy",
    "initialize",
    "load",
    "models",
    "recognize_lines",
    "recognizer",
    "sample",
]
