"""The numbers that decide when a chart is not to be trusted (see `precision_guard`)."""

import math

import torch

LIMITS = {torch.float32: math.log(1e-7), torch.float64: math.log(1e-13)}
"""How much mass a chart may lose to underflow, as a logarithm."""
