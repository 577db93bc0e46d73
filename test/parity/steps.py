#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Training steps of lockstep and of PyTorch from one set of weights, with one set of batches.

    steps.py PARITY_STEPS [--models M,...] [--kernels K,...]

PARITY_STEPS is the program of steps.cpp. What PyTorch computes in float64 is taken as right, so that differences are
the error of float32; beside stands how far PyTorch is off in float32. Held are the loss of the first step and its
gradients, all of them as one vector, in the norm relative to that vector: to 1e-5 with the direct kernels and to 1e-4
with those that are chosen without being told; and the losses of all steps, to 1e-3. Told is also the parameter whose
own gradient is worst, relative to it, which is not held: some gradients are next to nothing beside their sums.

Exit 1 where something is off by more. Needs torch, numpy and safetensors; parity.sh installs them."""
import argparse
import json
import math
import pathlib
import subprocess
import sys
import tempfile

import numpy
import torch
from safetensors.numpy import load_file, save_file

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench/peers"))
import networks
import torch_network

MOMENTUM = 0.9
STEPS = {"mnist_cnn": (20, 32), "resnet20": (20, 32), "resnet50": (3, 4)}  # and rows of a batch
RATES = {"mnist_cnn": 0.01, "resnet20": 0.001, "resnet50": 0.001}
FIRST_STEP = {"direct": 1e-5, "auto": 1e-4}
ALL_LOSSES = 1e-3


def start(model, random):
    """Weights, in lockstep's layout.

    Gradients jump where the input of a ReLU crosses zero, so that one number of millions that lies within rounding
    of it would hide what arithmetic is off by. Hence the shifts: per channel plus or minus some deviations of what
    they are added to, so that few numbers come near zero and each ReLU still has many on both sides. All norms of a
    stage have the same signs, since their outputs are added.
    """
    signs = {}

    def sign(name, shape):
        key = name.partition(".")[0] if name.startswith("stage") else name, shape
        return signs.setdefault(key, random.choice([-1.0, 1.0], shape))

    def value(name, shape):
        if name.endswith(".weight"):
            return random.normal(0, (2 / math.prod(shape[1:])) ** 0.5, shape) * (0.1 if name.startswith("fc") else 1)
        if name.endswith(".scale"):
            return random.uniform(0.5, 1.5, shape)
        return sign(name, shape) * random.uniform(3, 4, shape) * (0.1 if name.startswith(("fc", "dense")) else 1)
    return {name: value(name, shape).astype("f4") for name, shape in networks.Shapes(model).parameters.items()}


def batches(model, random):
    """Images of noise in [-1, 1), [steps, rows, height, width, channels], and labels, [steps, rows]."""
    shape, classes, _ = networks.INPUTS[model]
    return random.uniform(-1, 1, (*STEPS[model], *shape)).astype("f4"), random.integers(0, classes, STEPS[model])


def ours(program, model, kernels, weights, images, labels):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        save_file(weights, folder / "weights")
        save_file({"images": images.reshape(*images.shape[:2], -1), "labels": labels.astype("f4")}, folder / "batches")
        done = subprocess.run(
            [program, "--model", model, "--kernels", kernels, "--weights", folder / "weights", "--batches",
             folder / "batches", "--out", folder / "gradients", "--rate", str(RATES[model]), "--momentum", str(MOMENTUM)],
            capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(done.stderr.strip())
        return json.loads(done.stdout)["losses"], load_file(folder / "gradients")


def theirs(model, dtype, weights, images, labels):
    network = torch_network.Network(
        model, lambda name, shape: torch.tensor(weights[name], dtype=dtype) if name in weights
        else torch_network.initial(name, shape).to(dtype))
    optimizer = torch.optim.SGD(network.parameters(), lr=RATES[model], momentum=MOMENTUM)
    losses, gradients = [], {}
    for x, y in zip(torch.from_numpy(images), torch.from_numpy(labels)):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(network(x.to(dtype).movedim(-1, 1)), y)
        loss.backward()
        losses.append(loss.item())
        gradients = gradients or {name: gradient_of(network, name) for name in weights}
        optimizer.step()
    return losses, gradients


def gradient_of(network, name):
    """In lockstep's layout."""
    gradient = network.of(name).grad
    return (gradient.permute(0, 2, 3, 1) if gradient.dim() == 4 else gradient).double().numpy().copy()


def off(found, right):
    """How far a result is from another: first loss, gradients, worst gradient of one parameter and its name, losses."""
    losses, gradients = found
    difference = {name: numpy.linalg.norm(gradients[name] - value) for name, value in right[1].items()}
    size = {name: numpy.linalg.norm(value) for name, value in right[1].items()}
    whole = math.hypot(*difference.values()) / math.hypot(*size.values())
    worst = max(size, key=lambda name: difference[name] / size[name])
    each = [abs(a / b - 1) for a, b in zip(losses, right[0], strict=True)]
    return each[0], whole, difference[worst] / size[worst], worst, max(each)


def compare(program, model, kernels):
    """Prints a line for each; False where one of ours is off by more than it may."""
    random = numpy.random.default_rng(1)
    weights, (images, labels) = start(model, random), batches(model, random)
    right = theirs(model, torch.float64, weights, images, labels)
    print(f"{model}: {len(right[0])} steps of {images.shape[1]}, losses {right[0][0]:.4f} to {right[0][-1]:.4f}", flush=True)
    fine = True
    results = {"PyTorch float32": theirs(model, torch.float32, weights, images, labels)}
    for choice in kernels:
        results[f"lockstep {choice}"] = ours(program, model, choice, weights, images, labels)
    for name, found in results.items():
        first, whole, worst, where, all_losses = off(found, right)
        bound = FIRST_STEP.get(name.removeprefix("lockstep "), math.inf)
        held = max(first, whole) <= bound and (all_losses <= ALL_LOSSES or bound == math.inf)
        fine &= held
        print(f"  {name:16} first loss {first:.1e}, gradients {whole:.1e} (worst {worst:.1e}, {where}), "
              f"all losses {all_losses:.1e}" + ("" if held else f": wanted are {bound:.0e}, and {ALL_LOSSES:.0e} of all losses"),
              flush=True)
    return fine


def known(names):
    def parse(text):
        for name in text.split(","):
            if name not in names:
                raise argparse.ArgumentTypeError(f"'{name}' is not known; known are {', '.join(names)}")
        return text.split(",")
    return parse


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--models", type=known(STEPS), default=list(STEPS))
    parser.add_argument("--kernels", type=known(FIRST_STEP), default=list(FIRST_STEP))
    options = parser.parse_args()
    torch.manual_seed(1)
    if not all([compare(options.program, model, options.kernels) for model in options.models]):
        sys.exit("lockstep is off by more than it may")


if __name__ == "__main__":
    main()
