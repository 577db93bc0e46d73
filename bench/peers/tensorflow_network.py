# SPDX-License-Identifier: MIT
"""The networks of networks.py for TensorFlow, in functions of tf.nn, or in layers of Keras. Images are
[rows, height, width, channels]."""
import math

import tensorflow as tf

import networks

KEPT, EPSILON = 0.9, 1e-5  # of a moving average, each step


class PlainNetwork:
    """Functions of tf.nn over tf.Variables, which are float32; `dtype` is what all operations but the batch norm's
    statistics are computed in: casts of weights are part of the step."""

    def __init__(self, model, dtype=tf.float32):
        self.network, self.dtype = networks.NETWORKS[model], dtype
        shapes = networks.Shapes(model)
        self.variables = {name: tf.Variable(self.initial(name, shape)) for name, shape in shapes.parameters.items()}
        self.trainable_variables = list(self.variables.values())
        for name, shape in shapes.averages.items():
            self.variables[name] = tf.Variable(self.initial(name, shape), trainable=False)

    @staticmethod
    def initial(name, shape):
        if not name.endswith(".weight"):
            return tf.ones(shape) if name.endswith((".scale", ".variance")) else tf.zeros(shape)
        deviation = (2 / math.prod(shape[1:])) ** 0.5  # He et al., 2015
        return tf.random.normal((*shape[1:], shape[0]), stddev=deviation)

    def __call__(self, x, training=True):
        return tf.cast(self.network(self, tf.cast(x, self.dtype)), tf.float32)

    def of(self, name):
        return tf.cast(self.variables[name], self.dtype)

    def convolution(self, x, name, filters, size, stride=1, padding=0, bias=True):
        # conv2d with explicit padding is slow, with bfloat16 thirty times. SAME is this padding for stride 1 alone.
        same = padding and stride == 1
        x = tf.nn.conv2d(x if same else self.around(x, padding), self.of(name + ".weight"), stride,
                         "SAME" if same else "VALID")
        return tf.nn.bias_add(x, self.of(name + ".bias")) if bias else x

    def batch_norm(self, x, name):
        mean, variance = self.variables[name + ".mean"], self.variables[name + ".variance"]
        x, new_mean, new_variance = tf.compat.v1.nn.fused_batch_norm(
            x, self.variables[name + ".scale"], self.variables[name + ".shift"], mean, variance, EPSILON,
            exponential_avg_factor=1 - KEPT)
        mean.assign(new_mean)
        variance.assign(new_variance)
        return x

    def dense(self, x, name, units):
        return tf.nn.bias_add(tf.matmul(x, self.of(name + ".weight")), self.of(name + ".bias"))

    def relu(self, x):
        return tf.nn.relu(x)

    def add(self, x, y):
        return x + y

    def max_pool(self, x, size, stride, padding=0):
        return tf.nn.max_pool2d(self.around(x, padding), size, stride, "VALID")

    @staticmethod
    def around(x, padding):
        return tf.pad(x, [[0, 0], [padding] * 2, [padding] * 2, [0, 0]]) if padding else x

    def mean(self, x):
        return tf.reduce_mean(x, (1, 2))

    def flatten(self, x):
        return tf.reshape(x, (-1, math.prod(x.shape[1:])))


class KerasLayers:
    """Makes layers of Keras; their dtype is that of Keras' global policy."""

    def convolution(self, x, name, filters, size, stride=1, padding=0, bias=True):
        if padding and stride > 1:
            x, padding = tf.keras.layers.ZeroPadding2D(padding)(x), 0
        return tf.keras.layers.Conv2D(filters, size, stride, "same" if padding else "valid", use_bias=bias,
                                      kernel_initializer="he_normal")(x)

    def batch_norm(self, x, name):
        return tf.keras.layers.BatchNormalization(momentum=KEPT, epsilon=EPSILON)(x)

    def dense(self, x, name, units):
        return tf.keras.layers.Dense(units, kernel_initializer="he_normal")(x)

    def relu(self, x):
        return tf.keras.layers.ReLU()(x)

    def add(self, x, y):
        return tf.keras.layers.Add()([x, y])

    def max_pool(self, x, size, stride, padding=0):
        x = tf.keras.layers.ZeroPadding2D(padding)(x) if padding else x
        return tf.keras.layers.MaxPooling2D(size, stride)(x)

    def mean(self, x):
        return tf.keras.layers.GlobalAveragePooling2D()(x)

    def flatten(self, x):
        return tf.keras.layers.Flatten()(x)


def keras_network(model):
    """Its logits are float32 under every policy."""
    images = tf.keras.Input(networks.INPUTS[model][0])
    logits = networks.NETWORKS[model](KerasLayers(), images)
    return tf.keras.Model(images, tf.keras.layers.Activation("linear", dtype="float32")(logits))
