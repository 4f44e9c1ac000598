"""An LSTM: its cell as one operation."""
