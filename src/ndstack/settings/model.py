"""The options of a model besides its name: every one is declared here, and nowhere else."""

from typing import Annotated, Literal, NamedTuple

from pydantic import Field, JsonValue, PositiveFloat

from ndstack.settings.base import Layers, Rate, Settings, Size

InputKind = Literal["one-hot", "embedding"]
OutputKind = Literal["full", "adaptive"]
LayerInit = Literal["xavier", "uniform"]


class For(NamedTuple):
    """Marks an option that only some models have: those with this part."""

    part: str


RECURRENT = For("a recurrent network")
TRANSFORMER = For("a transformer")
SUPERPOSITION = For("a superposition stack")
NONDETERMINISTIC = For("a nondeterministic stack")
REGISTERED = For("a registered stack or network")
ATTENTIVE = For("a recurrent encoder and decoder")
TWO_WAY = For("stack attention in an encoder")


class ModelOptions(Settings):
    """The options of a model that `ndstack.nn.models.build` takes, besides its name."""

    hidden: Annotated[Size, RECURRENT] = 20
    """The number of units of a recurrent controller."""
    num_layers: Size | None = None
    """The number of layers; if not given, 1 in a recurrent controller and 5 in a transformer."""
    controller: Annotated[str, RECURRENT] = "lstm"
    """The kind of recurrent controller: "lstm", "gru", "rnn", or a registered one."""
    embedding: Annotated[Size | None, RECURRENT] = None
    """The size of the learned vectors that stand for the symbols that a network reads; if not given, a
    recurrent network reads one-hot vectors. A transformer always reads vectors of size `d_model`."""
    window: Annotated[Size | None, NONDETERMINISTIC] = None
    """D, the number of time steps that a nondeterministic stack looks back (chapter 7); if not given, all."""
    depth: Annotated[Size | None, SUPERPOSITION] = None
    """The greatest number of elements on a superposition stack (chapter 7); if not given, any number."""
    bottom_fix: Annotated[bool | None, NONDETERMINISTIC] = None
    """Whether the bottom of a nondeterministic stack can be replaced and uncovered; if not given, as where
    the model was introduced: in RNS and VRNS, but not in NS, NS+S and NS+U."""
    reading_layers: Annotated[Layers, RECURRENT] = 0
    """The number of tanh layers between the reading and the controller (section 11.2.2)."""
    output_reading: Annotated[bool, RECURRENT] = False
    """Whether the output depends on the newest reading directly (section 11.2.2)."""
    normalize_reading: Annotated[bool, RECURRENT] = True
    """Whether a nondeterministic stack reads probabilities; if not, it reads the weights of runs (section
    11.2.2)."""
    d_model: Annotated[Size, TRANSFORMER] = 32
    """The size of the vectors in a transformer."""
    heads: Annotated[Size, TRANSFORMER] = 4
    """The number of heads of scaled dot-product attention in a transformer."""
    feedforward: Annotated[Size, TRANSFORMER] = 64
    """The number of hidden units in the feedforward sublayers of a transformer."""
    dropout: Annotated[Rate, TRANSFORMER] = 0.1
    """The rate of dropout in a transformer."""
    attention: Annotated[bool, ATTENTIVE] = False
    """Whether a recurrent decoder attends to the outputs of the encoder."""
    both_ways: Annotated[bool, TWO_WAY] = False
    """Whether every stack of a transformer's encoder has a twin that reads from right to left."""
    output: OutputKind = "full"
    """The output layer: "full" is a linear layer; "adaptive" is an adaptive softmax for many symbols, of
    which the common ones come first in the alphabet."""
    layers_init: LayerInit = "xavier"
    """The initialization of fully connected layers (`ndstack.nn.initialize`)."""
    actions_init: LayerInit = "uniform"
    """The initialization of the layers for the actions of nondeterministic stacks in recurrent networks."""
    attention_actions_init: LayerInit = "xavier"
    """The initialization of the layers for the actions of stacks in stack attention."""
    pushes_init: LayerInit | None = None
    """The initialization of the layers for what recurrent networks push onto a nondeterministic stack; if not
    given, that of fully connected layers."""
    tanh_gain: PositiveFloat = 1.0
    """The factor of the Xavier weights in the layer that computes what is pushed onto a stratification
    stack."""
    stacks_apart: bool = False
    """Whether several superposition stacks count as having one layer each for Xavier's bound."""
    exp_pushes: bool = False
    """Whether stack attention pushes the exponential of what its layer computes."""
    init_bound: PositiveFloat = 0.1
    """The bound b of parameters that are initialized with uniform numbers from [-b, b]."""
    arguments: Annotated[dict[str, JsonValue], REGISTERED] = Field(default_factory=dict)
    """Further arguments of a registered stack or network, by name."""

    def __hash__(self) -> int:
        return hash(self.model_dump_json())


DEFAULTS = ModelOptions()
"""The default of every option, for the signatures of the classes that take it."""
