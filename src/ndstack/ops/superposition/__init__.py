"""The superposition stack (section 3.3.2)."""
