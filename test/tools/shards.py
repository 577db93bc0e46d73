# SPDX-License-Identifier: MIT
"""Reads lockstep's checkpoints without any library: arrays of the newest checkpoint of a folder."""
import array
import json
import math
import pathlib
import struct


def newest(folder):
    whole = sorted(path for path in pathlib.Path(folder).glob("step-*")
                   if not path.name.endswith(".partial") and (path / "manifest.json").exists())
    if not whole:
        raise SystemExit(f"no checkpoint in {folder}")
    return whole[-1]


def read_file(path):
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    found = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        values = array.array({"F32": "f", "F64": "d", "I64": "q", "U64": "Q"}[entry["dtype"]])
        values.frombytes(data[8 + length + begin:8 + length + end])
        found[name] = values
    return found


def weights(folder):
    """Names to values of the whole arrays (weights) of the newest checkpoint."""
    found = {}
    for path in sorted(newest(folder).glob("*.safetensors")):
        found.update({name: values for name, values in read_file(path).items()
                      if "/" not in name and "@" not in name and not name.startswith("parameter_server.")})
    return found


def relative_change(one, other, before):
    """|(one - before) - (other - before)| / |other - before|, L2 over all arrays."""
    above = below = 0.0
    assert one.keys() == other.keys() == before.keys(), (one.keys(), other.keys(), before.keys())
    for name in one:
        for a, b, c in zip(one[name], other[name], before[name]):
            above += (a - b) ** 2
            below += (b - c) ** 2
    return math.sqrt(above / below)
