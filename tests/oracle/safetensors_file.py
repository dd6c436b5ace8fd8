"""Safetensors in NumPy, after the format's own description: for tests that look
at what the project reads and writes without any library that it could share
mistakes with.
"""
import json
import os
import struct

import numpy as np

# bf16 has no type in NumPy: its bits.
TYPES = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": np.uint16, "U8": np.uint8, "BOOL": np.bool_}


def read(path):
    """The tensors of a file by name, in the order of its data: (type, array)."""
    with open(path, "rb") as file:
        data = file.read()
    (length,) = struct.unpack("<Q", data[:8])
    assert length % 8 == 0, f"{path}: a header of {length} bytes"
    header = json.loads(data[8:8 + length])
    assert header.pop("__metadata__", {}).get("format") == "pt", path
    found, end = {}, 0
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, stop = entry["data_offsets"]
        assert begin == end, f"{path}: {name} begins at {begin}, not at {end}"
        bits = np.frombuffer(data, TYPES[entry["dtype"]], offset=8 + length + begin, count=int(np.prod(entry["shape"])))
        found[name] = (entry["dtype"], bits.reshape(entry["shape"]))
        assert bits.nbytes == stop - begin, f"{path}: {name}"
        end = stop
    assert 8 + length + end == len(data), f"{path}: bytes behind the last tensor"
    return found


def read_folder(folder):
    """Those of all files of a folder, as its index has them."""
    index = os.path.join(folder, "model.safetensors.index.json")
    if not os.path.exists(index):
        return read(os.path.join(folder, "model.safetensors"))
    with open(index, encoding="utf-8") as file:
        index = json.load(file)
    found = {}
    for name in sorted(set(index["weight_map"].values())):
        tensors = read(os.path.join(folder, name))
        assert set(tensors) == {key for key, file in index["weight_map"].items() if file == name}, name
        found.update(tensors)
    size = sum(array.nbytes for _, array in found.values())
    assert index["metadata"]["total_size"] == size, index["metadata"]
    return found


def write(path, tensors):
    """One file of (type, array) by name."""
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, (kind, array) in tensors.items():
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [end, end + array.nbytes]}
        end += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, array in tensors.values():
            file.write(np.ascontiguousarray(array).tobytes())


def float32(kind, array):
    """The values of a tensor, whatever its type."""
    if kind == "BF16":
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float32)
