"""The stratification stack (section 3.3.1)."""
