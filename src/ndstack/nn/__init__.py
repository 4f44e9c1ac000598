"""Networks that own a stack (chapters 3 to 10): the recurrent ones, stack attention, language models."""

from ndstack.nn import models
from ndstack.nn.language_models.generation import Generated, beam_search, greedy, sample
from ndstack.nn.language_models.language_model import LanguageModel
from ndstack.nn.networks.attention import AttentionState, DotProductAttention, StackAttention
from ndstack.nn.networks.backbone import Backbone
from ndstack.nn.networks.encoder_decoder import EncoderDecoder, EncoderDecoderState
from ndstack.nn.networks.initialization import initialize
from ndstack.nn.networks.output_only import OutputOnly
from ndstack.nn.networks.ragged import RaggedState
from ndstack.nn.networks.recurrent_encoder_decoder import RecurrentDecoderState, RecurrentEncoderDecoder
from ndstack.nn.networks.rnn import BidirectionalState, RNNState, StackRNN
from ndstack.nn.networks.sequence_to_sequence import SequenceToSequence
from ndstack.nn.networks.state import NetworkState
from ndstack.nn.networks.transformer import Transformer, TransformerState
from ndstack.nn.proofs.recognition import Recognizer, recognize_lines, recognizer
from ndstack.nn.storage.files import load, load_transducer
from ndstack.nn.transducers.models import build_transducer
from ndstack.nn.transducers.transducer import Conditional, Transducer

__all__ = [
    "AttentionState",
    "Backbone",
    "BidirectionalState",
    "Conditional",
    "DotProductAttention",
    "EncoderDecoder",
    "EncoderDecoderState",
    "Generated",
    "LanguageModel",
    "NetworkState",
    "OutputOnly",
    "RNNState",
    "RaggedState",
    "Recognizer",
    "RecurrentDecoderState",
    "RecurrentEncoderDecoder",
    "SequenceToSequence",
    "StackAttention",
    "StackRNN",
    "Transducer",
    "Transformer",
    "TransformerState",
    "beam_search",
    "build_transducer",
    "greedy",
    "initialize",
    "load",
    "load_transducer",
    "models",
    "recognize_lines",
    "recognizer",
    "sample",
]
