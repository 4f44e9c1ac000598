"""A page in the browser that shows what the stacks of a model do while it reads (`ndstack explore`)."""
