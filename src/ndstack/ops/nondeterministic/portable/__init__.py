"""The nondeterministic stack in plain torch, for any device."""
