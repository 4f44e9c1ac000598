"""Controllers and stacks that run as one operation."""
