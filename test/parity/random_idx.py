#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes a small data set of smooth random 28x28 images as IDX files: random_idx.py FOLDER."""
import pathlib
import struct
import sys

import numpy


def write(folder, prefix, count, random):
    noise = random.random((count, 28, 28))
    for axis in (1, 2):  # each pixel takes from its neighbours
        noise = sum(numpy.roll(noise, shift, axis) for shift in (-1, 0, 1)) / 3
    low, high = noise.min(), noise.max()
    images = ((noise - low) / (high - low) * 255).round().astype("u1")
    labels = (images.reshape(count, -1)[:, :10].argmax(1)).astype("u1")
    (folder / f"{prefix}-images-idx3-ubyte").write_bytes(struct.pack(">IIII", 0x803, count, 28, 28) + images.tobytes())
    (folder / f"{prefix}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 0x801, count) + labels.tobytes())


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    random = numpy.random.default_rng(1)
    write(folder, "train", 640, random)
    write(folder, "t10k", 200, random)


if __name__ == "__main__":
    main()
