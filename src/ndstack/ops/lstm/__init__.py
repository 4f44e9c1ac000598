"""An LSTM as a controller: its weights, and its cell as one operation.

All that the rest of the package may use of this folder.
"""

from ndstack.ops.lstm.cell import lstm_cell
from ndstack.ops.lstm.weights import LSTMWeights

__all__ = ["LSTMWeights", "lstm_cell"]
