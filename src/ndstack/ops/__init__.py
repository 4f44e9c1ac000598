"""Lang's algorithm as tensor functions: a log-space reference, plain torch, and compiled code.

Importing this package compiles nothing and imports no backend.
"""
