#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""PyTorch's training step on one core, or one rank of DistributedDataParallel with gloo.

usage: torch_peer.py [--model MODEL] [--dtype ...] [--steps N] [--layout ...] [--mode ...] [--update ...]
                     [--casts ...] [--buckets ...]

The defaults are the fastest public setting that was found; the other values are what was tried. --casts says how
--dtype bfloat16 is had: by torch.autocast, or by a model that is bfloat16 as a whole, weights and their update too.
(float32 that oneDNN may round as it reads, fp32_precision "bf16", was no faster than float32.)
"""
import contextlib
import os
import sys

import peer

peer.one_thread()
import numpy
import torch
import torch.distributed
from torch import nn

import torch_network

flags = peer.flags({
    "layout": ["channels_last", "contiguous"],
    "mode": ["eager", "compile"],
    "update": ["fused", "foreach", "loop"],
    "casts": ["autocast", "whole"],
    "buckets": ["25", "4", "100"],  # MiB, of DistributedDataParallel
})
loaded = peer.peak_mib()
torch.set_num_threads(1)
torch.set_num_interop_threads(1)
torch.manual_seed(1)
model = torch_network.Network(flags.model)
images, labels = peer.batch(numpy, flags.model)
images, labels = torch.from_numpy(images), torch.from_numpy(labels)
setting = [flags.mode]
if images.dim() == 4:
    setting.append(flags.layout)
    images = images.permute(0, 3, 1, 2)
    images = images if flags.layout == "channels_last" else images.contiguous()
    if flags.layout == "channels_last":
        model = model.to(memory_format=torch.channels_last)
casts = contextlib.nullcontext
if flags.dtype == "float32":
    setting.append("float32")
else:
    setting.append(f"bfloat16, {flags.casts}")
    if flags.casts == "autocast":
        casts = lambda: torch.autocast("cpu", torch.bfloat16)
    else:
        model, images = model.bfloat16(), images.bfloat16()
if peer.processes() > 1:
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.distributed.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(
        model, gradient_as_bucket_view=True, static_graph=True, broadcast_buffers=False,
        bucket_cap_mb=int(flags.buckets))
    setting.append(f"DistributedDataParallel, gloo, gradient_as_bucket_view, static_graph, buckets of "
                   f"{flags.buckets} MiB")
optimizer = torch.optim.SGD(model.parameters(), lr=peer.RATE, momentum=peer.MOMENTUM,
                            fused=flags.update == "fused", foreach=flags.update == "foreach")
loss_of = nn.CrossEntropyLoss()
if flags.mode == "compile":
    model = torch.compile(model)
setting += [f"{flags.update} SGD, set_to_none, 1 thread"]


def step():
    optimizer.zero_grad(set_to_none=True)
    with casts():
        logits = model(images)
    loss = loss_of(logits.float(), labels)
    loss.backward()
    optimizer.step()
    return loss.detach()


result = peer.measure(step, float)(flags.steps, flags.warm_up)
peer.report(f"PyTorch {torch.__version__.split('+')[0]}", ", ".join(setting), flags, result, loaded)
if peer.processes() > 1:
    # Without the interpreter's end, at which a thread of gloo that still runs aborts the process at times.
    torch.distributed.barrier()
    sys.stdout.flush()
    os._exit(0)
