"""Models and states in files: what a model is made of as JSON, numbers as safetensors."""
