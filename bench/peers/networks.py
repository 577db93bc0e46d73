# SPDX-License-Identifier: MIT
"""The networks of the comparison, each written once, with the names and shapes of lockstep's models.

A network is a function of an object that makes operations and of the images [rows, height, width, channels]
(as the peer lays them out) or [rows, numbers]. The object has

  convolution(x, name, filters, size, stride=1, padding=0, bias=True)
  batch_norm(x, name)      momentum 0.9 of the moving averages, epsilon 1e-5
  relu(x)   add(x, y)   max_pool(x, size, stride, padding=0)   mean(x) over all places   flatten(x)
  dense(x, name, units)

and keeps the parameters under the names that it is given. What is padded for max_pool is never negative.
"""
# name -> shape of an image, classes, rows of a process in the comparison
INPUTS = {
    "mnist_cnn": ((28, 28, 1), 10, 128),
    "mlp": ((784,), 10, 128),
    "mlp_wide": ((784,), 10, 128),
    "resnet20": ((32, 32, 3), 10, 128),
    "resnet50": ((224, 224, 3), 1000, 16),
}


def mnist_cnn(make, x):
    x = make.relu(make.convolution(x, "conv1", 32, 3))
    x = make.relu(make.convolution(x, "conv2", 64, 3))
    x = make.flatten(make.max_pool(x, 2, 2))
    x = make.relu(make.dense(x, "dense1", 128))
    return make.dense(x, "dense2", 10)


def mlp(make, x, width=512):
    x = make.relu(make.dense(x, "dense1", width))
    x = make.relu(make.dense(x, "dense2", width))
    return make.dense(x, "dense3", 10)


def mlp_wide(make, x):
    return mlp(make, x, 4096)


def normalised(make, x, name, number, filters, size, stride=1):
    """A convolution without bias, padded so that stride 1 keeps the size, and its batch norm."""
    x = make.convolution(x, f"{name}conv{number}", filters, size, stride, size // 2, bias=False)
    return make.batch_norm(x, f"{name}bn{number}")


def shortcut(make, x, name, filters, stride, project):
    """The input itself, or where the block changes the shape a 1x1 convolution of it."""
    if not project:
        return x
    x = make.convolution(x, name + "shortcut", filters, 1, stride, bias=False)
    return make.batch_norm(x, name + "shortcut_bn")


def resnet20(make, x):
    """He et al., 2015, for 32x32 images: three stages of three blocks of two 3x3 convolutions, with projections."""
    x = make.relu(normalised(make, x, "", 1, 16, 3))
    for stage, filters in enumerate((16, 32, 64), 1):
        for block in (1, 2, 3):
            name, stride = f"stage{stage}.block{block}.", 2 if stage > 1 and block == 1 else 1
            y = make.relu(normalised(make, x, name, 1, filters, 3, stride))
            y = normalised(make, y, name, 2, filters, 3)
            x = make.relu(make.add(y, shortcut(make, x, name, filters, stride, stride != 1)))
    return make.dense(make.mean(x), "fc", 10)


def resnet50(make, x):
    """He et al., 2015, version 1.5: where a block halves the image its 3x3 convolution does, not its first."""
    x = make.relu(normalised(make, x, "", 1, 64, 7, 2))
    x = make.max_pool(x, 3, 2, 1)
    for stage, (blocks, filters) in enumerate(((3, 64), (4, 128), (6, 256), (3, 512)), 1):
        for block in range(1, blocks + 1):
            name, stride = f"stage{stage}.block{block}.", 2 if stage > 1 and block == 1 else 1
            y = make.relu(normalised(make, x, name, 1, filters, 1))
            y = make.relu(normalised(make, y, name, 2, filters, 3, stride))
            y = normalised(make, y, name, 3, 4 * filters, 1)
            x = make.relu(make.add(y, shortcut(make, x, name, 4 * filters, stride, block == 1)))
    return make.dense(make.mean(x), "fc", 1000)


NETWORKS = {network.__name__: network for network in (mnist_cnn, mlp, mlp_wide, resnet20, resnet50)}


class Shapes:
    """Makes no operations, and goes through a network for what it keeps; `x` is the shape of one image."""

    def __init__(self, model):
        self.parameters, self.averages = {}, {}
        self.logits = NETWORKS[model](self, INPUTS[model][0])

    def convolution(self, x, name, filters, size, stride=1, padding=0, bias=True):
        self.parameters[name + ".weight"] = (filters, size, size, x[2])
        if bias:
            self.parameters[name + ".bias"] = (filters,)
        return (*self.places(x, size, stride, padding), filters)

    def batch_norm(self, x, name):
        self.parameters[name + ".scale"] = self.parameters[name + ".shift"] = (x[-1],)
        self.averages[name + ".mean"] = self.averages[name + ".variance"] = (x[-1],)
        return x

    def dense(self, x, name, units):
        self.parameters[name + ".weight"] = (units, *x)
        self.parameters[name + ".bias"] = (units,)
        return (units,)

    def max_pool(self, x, size, stride, padding=0):
        return (*self.places(x, size, stride, padding), x[2])

    @staticmethod
    def places(x, size, stride, padding):
        return tuple((side + 2 * padding - size) // stride + 1 for side in x[:2])

    def relu(self, x):
        return x

    def add(self, x, y):
        assert x == y, f"{x} and {y}"
        return x

    def mean(self, x):
        return x[2:]

    def flatten(self, x):
        return (x[0] * x[1] * x[2],)
