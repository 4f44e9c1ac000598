"""The nondeterministic stack compiled for the CPU."""
