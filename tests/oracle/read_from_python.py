#!/usr/bin/python3
"""docs/python.md, tried: its lines read what the program has written.

  read_from_python.py DELINK DUMP_LOGITS

A pseudo model, one that was delinked and one that came from Hugging Face, each
with the weights that it has. Exit status 77: skipped, something is not installed.
"""
import os
import sys
import tempfile

try:
    import h5py
    import numpy as np
except ImportError as missing:
    print(f"SKIPPED: {missing}; install python3-h5py and python3-numpy")
    sys.exit(77)
try:
    import torch
except ImportError as missing:
    print(f"SKIPPED: {missing}; install python3-torch")
    sys.exit(77)

import own_models
import safetensors_file
from converting import Fixture, Program


# docs: load
def load(checkpoint):
    """The weights of a checkpoint (its step folder) by name. Layers that share
    have the same tensor."""
    weights, tensors = {}, {}

    def walk(group, path):
        for name, item in group.items():  # follows links, which visititems does not
            if isinstance(item, h5py.Group):
                walk(item, path + name + "/")
            else:
                address = h5py.h5o.get_info(item.id).addr
                if address not in tensors:
                    tensors[address] = torch.from_numpy(item[()])
                weights[path + name] = tensors[address]

    with h5py.File(os.path.join(checkpoint, "index.h5"), "r") as file:
        walk(file["model"], "")
    return weights
# docs: end


# docs: qkv
def heads(qkv, heads, kv_heads):
    """Queries, keys and values of a packed projection, its weight or bias."""
    width = qkv.shape[0] // (heads + 2 * kv_heads)
    return torch.split(qkv, [heads * width, kv_heads * width, kv_heads * width])
# docs: end


# docs: npz
def save(path, weights):
    np.savez(path, **{name.replace("/", "."): tensor.numpy() for name, tensor in weights.items()})
# docs: end


def step_folder(run):
    root = os.path.join(run, "checkpoints") if os.path.isdir(os.path.join(run, "checkpoints")) else run
    return os.path.join(root, max(name for name in os.listdir(root) if name.startswith("step-")))


def check_own(program):
    for share in ("all", "none"):
        run = own_models.train(program, "qwen2", share=share)
        weights = load(step_folder(run))
        first, last = (weights[f"blocks/{i}/attn/qkv/weight"] for i in (0, 3))
        assert (first is last) == (share == "all"), share
        assert weights["head/weight"] is weights["embed/token/weight"], "the head is tied"
        # What goes out is what the lines read.
        out = safetensors_file.read_folder(program.convert(run))
        for i in range(4):
            for part in ("weight", "bias"):
                pieces = heads(weights[f"blocks/{i}/attn/qkv/{part}"], 6, 2)
                for letter, piece in zip("qkv", pieces):
                    theirs = out[f"model.layers.{i}.self_attn.{letter}_proj.{part}"][1]
                    assert np.array_equal(piece.numpy(), theirs), (i, letter, part)
        assert len(set(map(id, weights.values()))) < len(weights)


def check_published(program):
    fixture = Fixture("gpt2")
    weights = load(step_folder(program.convert(fixture.folder)))
    theirs = fixture.tensors["transformer.h.1.mlp.c_fc.weight"][1]
    assert np.array_equal(weights["blocks/1/mlp/up/weight"].numpy(), theirs.T)
    positions = fixture.tensors["transformer.wpe.weight"][1]
    assert np.array_equal(weights["embed/position/weight"].numpy(), positions)
    path = program.path("weights.npz")
    save(path, weights)
    with np.load(path) as file:
        assert len(file.files) == len(weights)
        assert np.array_equal(file["embed.position.weight"], positions)


def main():
    with tempfile.TemporaryDirectory() as folder:
        program = Program(*sys.argv[1:], folder)
        check_own(program)
        check_published(program)


main()
