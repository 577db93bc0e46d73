# SPDX-License-Identifier: MIT
"""The networks of networks.py for PyTorch, with lockstep's names of parameters."""
import math

import torch
import torch.nn.functional as F
from torch import nn

import networks

AVERAGES, EPSILON = 0.1, 1e-5  # PyTorch's momentum is the share of the new batch


def initial(name, shape):
    if not name.endswith(".weight"):
        return torch.ones(shape) if name.endswith((".scale", ".variance")) else torch.zeros(shape)
    # He et al., 2015: the variance is 2 over the numbers that are summed.
    return torch.randn(shape) * (2 / math.prod(shape[1:])) ** 0.5


def laid_out(value):
    """[filters, height, width, channels] as PyTorch's [filters, channels, height, width]; others as they are."""
    return value.permute(0, 3, 1, 2).contiguous() if value.dim() == 4 else value


class Network(nn.Module):
    """Images are [rows, channels, height, width]. The moving averages are buffers, and move in training mode only.

    `value` gives what a parameter or an average begins with, by its name and lockstep's shape.
    """

    def __init__(self, model, value=initial):
        super().__init__()
        self.network = networks.NETWORKS[model]
        shapes = networks.Shapes(model)
        for name, shape in shapes.parameters.items():
            self.register_parameter(self.key(name), nn.Parameter(laid_out(value(name, shape))))
        for name, shape in shapes.averages.items():
            self.register_buffer(self.key(name), value(name, shape))

    @staticmethod
    def key(name):
        return name.replace(".", "/")  # PyTorch has no dots in the name of a parameter

    def of(self, name):
        return getattr(self, self.key(name))

    def forward(self, x):
        return self.network(self, x)

    def convolution(self, x, name, filters, size, stride=1, padding=0, bias=True):
        return F.conv2d(x, self.of(name + ".weight"), self.of(name + ".bias") if bias else None, stride, padding)

    def batch_norm(self, x, name):
        return F.batch_norm(x, self.of(name + ".mean"), self.of(name + ".variance"), self.of(name + ".scale"),
                            self.of(name + ".shift"), self.training, AVERAGES, EPSILON)

    def dense(self, x, name, units):
        return F.linear(x, self.of(name + ".weight"), self.of(name + ".bias"))

    def relu(self, x):
        return F.relu(x, inplace=True)

    def add(self, x, y):
        return x + y

    def max_pool(self, x, size, stride, padding=0):
        return F.max_pool2d(x, size, stride, padding)

    def mean(self, x):
        return F.adaptive_avg_pool2d(x, 1).flatten(1)

    def flatten(self, x):
        # In lockstep's order: height, width, channels. Not a copy where channels lie last.
        return x.permute(0, 2, 3, 1).flatten(1)
