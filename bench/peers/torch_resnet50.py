#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""PyTorch's training step on one GPU: resnet50 in batches of 256 and 32, and mnist_cnn in batches of 128.

usage: torch_resnet50.py [--models MODEL...] [--modes MODE...] [--steps N] [--warm-up N]

Channels last, torch.autocast to bfloat16 over float32 weights, cuDNN's and TF32's fastest kernels, fused SGD with
momentum, one batch of random images that lies on the GPU as bfloat16. Modes: eager; compiled, by torch.compile;
graphed, the whole step recorded as a CUDA graph and replayed; and both. Each case is one line of JSON: median
milliseconds of a step by the GPU's clock, images a second, MiB of the GPU at most, the first and the last loss, which
must be lower; or what went wrong. Without PyTorch or a GPU: one line, and exit code 77.
"""
import argparse
import json
import statistics
import sys

import networks
import peer

SKIPPED = 77
BATCHES = {"resnet50": (256, 32), "mnist_cnn": (128,)}
MODES = ("eager", "compiled", "graphed", "compiled_graphed")


def parsed():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=list(BATCHES), default=list(BATCHES))
    parser.add_argument("--modes", nargs="+", choices=MODES, default=MODES)
    parser.add_argument("--steps", type=int, default=30, help="timed ones")
    parser.add_argument("--warm-up", type=int, default=10, help="steps before them")
    return parser.parse_args()


def library():
    """PyTorch, or the end of the program."""
    try:
        import torch
    except ImportError:
        print("skipped: PyTorch is not installed")
        sys.exit(SKIPPED)
    if not torch.cuda.is_available():
        print(f"skipped: PyTorch {torch.__version__} sees no GPU")
        sys.exit(SKIPPED)
    return torch


def step_of(torch, model_name, rows, compiled):
    """A function that does one step and returns its loss, on the GPU."""
    import torch_network
    torch.manual_seed(1)
    image, classes, _ = networks.INPUTS[model_name]
    model = torch_network.Network(model_name).cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=peer.RATE, momentum=peer.MOMENTUM, fused=True)
    images = torch.rand(rows, image[2], *image[:2], device="cuda", dtype=torch.bfloat16)
    images = images.to(memory_format=torch.channels_last)
    labels = torch.randint(0, classes, (rows,), device="cuda")
    run = torch.compile(model) if compiled else model

    def step():
        optimizer.zero_grad(set_to_none=True)
        # Each weight is cast once a step, so a cache of casts would save nothing.
        with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
            logits = run(images)
        loss = torch.nn.functional.cross_entropy(logits.float(), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()
    return step


def recorded(torch, step):
    """The same step as a CUDA graph. Recording wants a stream that ran the step before."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()

    def replay():
        graph.replay()
        return loss
    return replay


def measured(torch, model, rows, mode, flags):
    if "compiled" in mode:
        torch.compiler.reset()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    step = step_of(torch, model, rows, "compiled" in mode)
    first = float(step())
    if "graphed" in mode:
        step = recorded(torch, step)
    for _ in range(flags.warm_up):
        step()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(flags.steps + 1)]
    marks[0].record()
    for mark in marks[1:]:
        loss = step()
        mark.record()
    torch.cuda.synchronize()
    last = float(loss)
    milliseconds = statistics.median(a.elapsed_time(b) for a, b in zip(marks, marks[1:]))
    if not last < first:
        raise RuntimeError(f"the loss did not fall: {first} to {last}")
    return {"milliseconds": milliseconds, "examples_per_second": rows / milliseconds * 1e3,
            "gpu_mib": torch.cuda.max_memory_reserved() / 2**20, "losses": [first, last]}


def main():
    flags = parsed()
    torch = library()
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = True
    failed = False
    for model in flags.models:
        for rows in BATCHES[model]:
            for mode in flags.modes:
                case = {"peer": f"PyTorch {torch.__version__.split('+')[0]}", "cudnn": torch.backends.cudnn.version(),
                        "gpu": torch.cuda.get_device_name(), "model": model, "dtype": "bfloat16", "batch": rows,
                        "mode": mode}
                try:
                    case |= measured(torch, model, rows, mode, flags)
                except Exception as error:  # The other cases are worth having.
                    case["error"] = f"{type(error).__name__}: {error}".splitlines()[0]
                    failed = True
                print(json.dumps(case), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
