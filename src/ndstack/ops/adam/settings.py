"""The settings of Adam."""

from typing import NamedTuple


class AdamSettings(NamedTuple):
    """The learning rate, how much of both moments is kept, and what is added to the denominator."""

    learning_rate: float
    first_decay: float = 0.9
    second_decay: float = 0.999
    eps: float = 1e-8
