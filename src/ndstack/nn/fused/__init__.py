"""Controllers and stacks that run as one operation, which is many times faster than one after the other.

Stacks know nothing of controllers. What a pair of a controller and a kind of stack can do together is
registered here (`register`), and networks ask for it (`run_lstm`, `step_lstm`). The compiled loops are in
`ndstack.ops.fused`.
"""

from ndstack.nn.fused.lstm import run_lstm, step_lstm
from ndstack.nn.fused.nondeterministic import NondeterministicLSTM
from ndstack.nn.fused.registry import FusedLSTM, LSTMRun, LSTMState, find, register
from ndstack.ops.lstm import LSTMWeights

__all__ = [
    "FusedLSTM",
    "LSTMRun",
    "LSTMState",
    "LSTMWeights",
    "NondeterministicLSTM",
    "find",
    "register",
    "run_lstm",
    "step_lstm",
]
