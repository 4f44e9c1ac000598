"""Scans of long strings by blocks of time steps; `forward` has the equations, Python calls `loops`."""
