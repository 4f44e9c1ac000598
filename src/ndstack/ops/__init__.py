"""The differentiable operations, one folder each: nondeterministic, superposition, stratification, lstm, fused.

A stack's operation has a readable definition (`naive.py`) and fast versions, which the tests compare with it. `fused`
has an LSTM and a stack as one operation, and `runtime` is what the compiled versions share. Importing this
package compiles nothing and imports no backend.
"""
