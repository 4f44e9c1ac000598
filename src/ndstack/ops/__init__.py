"""The differentiable operations, one folder each.

The operation of a stack (nondeterministic, superposition, stratification) has a readable definition,
`reference.py`, and fast versions, which the tests compare with it. `lstm` is the controller, `fused` has an
LSTM and a stack as one operation, and `runtime` is what the compiled versions share. Importing this package
compiles nothing and imports no backend.
"""
