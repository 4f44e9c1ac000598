"""Transducers: strings in, distributions over strings out."""
