"""Networks that own a stack (chapters 3 to 10): the recurrent ones, stack attention, language models."""
