"""The nondeterministic stack: Lang's algorithm (chapters 4, 6, 8 and 9)."""
