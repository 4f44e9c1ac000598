"""Neural networks with nondeterministic stacks, and the theory that goes with them."""

__version__ = "0.1.0"
