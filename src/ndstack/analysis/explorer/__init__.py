"""The explorer: a page in the browser that shows the stacks of a model while it reads (`ndstack explore`)."""
