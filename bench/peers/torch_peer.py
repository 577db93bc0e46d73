#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""PyTorch's training step on one core, or one rank of DistributedDataParallel with gloo.

usage: torch_peer.py [--model MODEL] [--steps N] [--layout ...] [--mode ...] [--update ...] [--buckets ...]

The defaults are the fastest public setting that was found; the other values are what was tried.
"""
import os

import peer

peer.one_thread()
import numpy
import torch
import torch.distributed
from torch import nn

flags = peer.flags({
    "layout": ["channels_last", "contiguous"],
    "mode": ["eager", "compile"],
    "update": ["fused", "foreach", "loop"],
    "buckets": ["25", "4", "100"],  # MiB, of DistributedDataParallel
})
torch.set_num_threads(1)
torch.set_num_interop_threads(1)
torch.manual_seed(1)
convolutional = flags.model == "mnist_cnn"


def build():
    if convolutional:
        return nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(),
                             nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64 * 12 * 12, 128), nn.ReLU(),
                             nn.Linear(128, 10))
    width = peer.HIDDEN[flags.model]
    return nn.Sequential(nn.Linear(784, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
                         nn.Linear(width, 10))


model = build()
images, labels = peer.batch(numpy, (1, 28, 28) if convolutional else (784,))
images, labels = torch.from_numpy(images), torch.from_numpy(labels)
setting = [flags.mode]
if convolutional:
    setting.append(flags.layout)
    if flags.layout == "channels_last":
        model = model.to(memory_format=torch.channels_last)
        images = images.to(memory_format=torch.channels_last)
if peer.processes() > 1:
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.distributed.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(
        model, gradient_as_bucket_view=True, static_graph=True, bucket_cap_mb=int(flags.buckets))
    setting.append(f"DistributedDataParallel, gloo, gradient_as_bucket_view, static_graph, buckets of "
                   f"{flags.buckets} MiB")
optimizer = torch.optim.SGD(model.parameters(), lr=peer.RATE, momentum=peer.MOMENTUM,
                            fused=flags.update == "fused", foreach=flags.update == "foreach")
loss_of = nn.CrossEntropyLoss()
if flags.mode == "compile":
    model = torch.compile(model)
setting += [f"{flags.update} SGD, set_to_none, float32, 1 thread"]


def step():
    optimizer.zero_grad(set_to_none=True)
    loss = loss_of(model(images), labels)
    loss.backward()
    optimizer.step()
    return loss.detach()


result = peer.measure(step, float)(flags.steps)
peer.report(f"PyTorch {torch.__version__.split('+')[0]}", ", ".join(setting), flags.model, result)
if peer.processes() > 1:
    torch.distributed.destroy_process_group()
