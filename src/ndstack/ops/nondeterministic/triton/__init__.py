"""The nondeterministic stack on GPUs: torch operations and kernels of our own, in Triton.

| file | what it holds |
|---|---|
| `strips.py` | what goes step by step inside a block of steps; everything else is the portable backend's |
| `scan.py` | whole sequences, and steps, with these kernels |
| `fused.py`, `fused_back.py` | an LSTM, its action layer and its stack over whole sequences, as one kernel |
| `run.py` | the differentiable operation around these two |
| `lost_mass.py` | what underflow can have cost such a sequence |

Every kernel has one program per sequence, with the chart in global memory. Importing this package does not
import `triton`; importing its kernels does.
"""
