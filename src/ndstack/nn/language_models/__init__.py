"""Language models: symbols in, logits out; and strings that they generate."""
