"""How close to underflow a product of a chart may come; for compiled code, which has no need of torch."""

MARGIN = 1e8
"""How far above the smallest normal number a product has to stay; adjoints, which can be as large
as the inverse of a probability, then have room too."""
