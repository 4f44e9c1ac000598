"""A package that adds a stack, a language and a network to ndstack, by an entry point.

Once it is installed (`pip install examples/plugin`), these commands work in every process:

    ndstack train twins --model balance-2 --out runs/balance
    ndstack train twins --model shortcut+rns-2-3 --out runs/shortcut
"""

import dataclasses

import torch
from torch import Tensor

import ndstack
from ndstack import languages
from ndstack.languages import Language
from ndstack.nn import Backbone, NetworkState, StackRNN
from ndstack.stacks import Stack, State
from ndstack.stacks.state import Device


@dataclasses.dataclass(frozen=True, eq=False)
class BalanceState(State):
    """The balances, which are also the reading."""

    balances: Tensor
    """[B, size]."""


@ndstack.register.stack("balance")
class Balance(Stack[BalanceState]):
    """Numbers that go up and down: what is left of a stack whose symbols are all the same.

    Args:
        size: how many numbers there are.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size  # kept under the name of the argument, so that models can be saved
        self.action_size, self.push_size, self.reading_size = 2 * size, 0, size

    def start(
        self, batch_size: int, *, dtype: torch.dtype | None = None, device: Device = None
    ) -> BalanceState:
        """Return balances of zero."""
        zeros = torch.zeros(batch_size, self.size, dtype=dtype, device=device)
        return BalanceState(zeros, zeros)

    def _step(self, state: BalanceState, actions: Tensor, pushed: Tensor | None) -> BalanceState:
        up, down = actions.sigmoid().chunk(2, dim=1)
        balances = (state.balances + up - down).relu()
        return BalanceState(balances, balances)


@ndstack.register.language("twins")
def twins() -> Language:
    """Return the language of as many a's as there are b's after them."""
    return languages.from_grammar("S -> 'a' S 'b' | 'a' 'b'")


@ndstack.register.network("shortcut")
class Shortcut(Backbone):
    """A recurrent network whose input also goes straight to its output.

    Args:
        input_size: of the vectors.
        hidden_size: of the controller.
        stack: any stack, or none.
    """

    def __init__(self, input_size: int, hidden_size: int = 10, stack: Stack[State] | None = None) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.output_size = input_size, hidden_size, hidden_size
        self.rnn = StackRNN(input_size, hidden_size, stack)
        self.straight = torch.nn.Linear(input_size, hidden_size)

    @property
    def stack(self) -> Stack[State] | None:
        """The argument."""
        return self.rnn.stack

    def start(self, batch_size: int, dtype: torch.dtype | None = None, device: Device = None) -> NetworkState:
        """Return the state of the recurrent network."""
        return self.rnn.start(batch_size, dtype, device)

    def forward(self, x: Tensor, state: NetworkState | None = None) -> tuple[Tensor, NetworkState]:
        """Read a sequence, or continue one."""
        output, state = self.rnn(x, state)
        return output + self.straight(x), state

    def initial_output(self, state: NetworkState) -> Tensor:
        """Return what the first symbol is predicted from."""
        return self.rnn.initial_output(state)
