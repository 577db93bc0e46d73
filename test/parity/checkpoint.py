# SPDX-License-Identifier: MIT
"""Reads a checkpoint of lockstep with Python's safetensors, as engine/train/README.md describes it."""
import json
import pathlib
import zlib

import numpy
from safetensors import safe_open

FIRST_LINE = '{"crc32": "89abcdef",\n'


def read_manifest(folder):
    """manifest.json of a checkpoint's folder; ValueError where its checksum is wrong."""
    path = pathlib.Path(folder) / "manifest.json"
    text = path.read_bytes()
    manifest = json.loads(text)
    if int(manifest["crc32"], 16) != zlib.crc32(text[len(FIRST_LINE):]):
        raise ValueError(f"{path}: its checksum is wrong")
    if manifest["format"] != "lockstep checkpoint" or manifest["version"] != 1:
        raise ValueError(f"{path}: format {manifest['format']!r} {manifest['version']} is not known here")
    return manifest


def check_files(folder, manifest):
    """ValueError where a shard is not as long as it was written, or has other bytes."""
    for shard in manifest["shards"]:
        data = (pathlib.Path(folder) / shard["file"]).read_bytes()
        if len(data) != shard["bytes"] or zlib.crc32(data) != int(shard["crc32"], 16):
            raise ValueError(f"{shard['file']}: it is not as it was written")


def read_arrays(folder):
    """All arrays of a checkpoint, whole, by name; whoever wrote which piece."""
    folder = pathlib.Path(folder)
    manifest = read_manifest(folder)
    check_files(folder, manifest)
    files = {shard["file"]: safe_open(folder / shard["file"], "numpy") for shard in manifest["shards"]}
    arrays = {}
    for array in manifest["arrays"]:
        flat = numpy.zeros(int(numpy.prod(array["shape"])), array["dtype"])
        for piece in array["pieces"]:
            values = files[piece["file"]].get_tensor(piece["key"])
            flat[piece["begin"]:piece["end"]] = values.reshape(-1)
        arrays[array["name"]] = flat.reshape(array["shape"])
    return arrays


def newest(folder):
    """The newest checkpoint in a folder of them; the folder itself where it is one."""
    folder = pathlib.Path(folder)
    if (folder / "manifest.json").exists():
        return folder
    steps = sorted(path for path in folder.glob("step-*") if "." not in path.name)
    if not steps:
        raise ValueError(f"{folder}: no checkpoint is there")
    return steps[-1]
