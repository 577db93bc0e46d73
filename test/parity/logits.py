#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Logits of mnist_cnn by PyTorch, with the weights of a lockstep checkpoint.

    logits.py CHECKPOINT IMAGES...

CHECKPOINT is a folder step-NNNNNNNNNN, or a folder of such; IMAGES are IDX files of 28x28 images, plain
or with .gz. Prints CSV as `lockstep predict --logits` does: index,predicted,l0,...,l9. Needs torch, numpy and
safetensors; parity.sh installs them."""
import gzip
import pathlib
import sys

import numpy
import torch

import checkpoint

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench/peers"))
import torch_network


def read_images(path):
    """Images as [rows, 1, 28, 28], pixels as lockstep scales them: (v / 255 - 0.5) * 2."""
    with (gzip.open if path.endswith(".gz") else open)(path, "rb") as file:
        data = file.read()
    magic, count, height, width = numpy.frombuffer(data, ">u4", 4)
    if magic != 0x803 or (height, width) != (28, 28):
        raise ValueError(f"{path}: not an IDX file of 28x28 images")
    pixels = numpy.frombuffer(data, "u1", offset=16).reshape(count, 1, height, width)
    return torch.from_numpy((pixels.astype("f4") / 255 - 0.5) * 2)


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    arrays = checkpoint.read_arrays(checkpoint.newest(sys.argv[1]))
    mnist_cnn = torch_network.Network("mnist_cnn", lambda name, shape: torch.from_numpy(arrays[name].astype("f8"))).eval()
    images = torch.cat([read_images(path) for path in sys.argv[2:]]).double()
    print("index,predicted," + ",".join(f"l{i}" for i in range(10)))
    with torch.no_grad():
        for begin in range(0, len(images), 100):
            for row, logits in enumerate(mnist_cnn(images[begin:begin + 100])):
                values = ",".join(f"{value:.9g}" for value in logits.tolist())
                print(f"{begin + row},{int(logits.argmax())},{values}")


if __name__ == "__main__":
    main()
