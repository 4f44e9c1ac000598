"""Natural language: corpora of any length, perplexity, surprisals, syntactic generalization (chapters 7, 9)."""
