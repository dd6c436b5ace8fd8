#!/usr/bin/python3
"""Reads a pseudo and a real checkpoint without us: links, shapes, values.

  read_checkpoint.py DUMP_CHECKPOINT

Exit status 77: skipped, h5py is not installed.
"""
import os
import shutil
import subprocess
import sys
import tempfile

try:
    import h5py
    import numpy as np
except ImportError as missing:
    print(f"SKIPPED: {missing}; install python3-h5py")
    sys.exit(77)

LAYERS = 4
# The set that a block's part belongs to begins at this block.
LEADER = {
    "pseudo": {"attn": lambda i: 0, "mlp": lambda i: i // 2 * 2, "norm1": lambda i: i, "norm2": lambda i: i},
    "real": {part: lambda i: i for part in ("attn", "mlp", "norm1", "norm2")},
}


def expected_link(stage, name):
    if name == "head/weight":
        return "embed/token/weight"  # a tied head, which delinking keeps
    parts = name.split("/")
    if parts[0] != "blocks":
        return None
    leader = LEADER[stage][parts[2]](int(parts[1]))
    return None if leader == int(parts[1]) else "/".join(["blocks", str(leader)] + parts[2:])


def check(folder, stage, step):
    [checkpoint] = os.listdir(os.path.join(folder, stage))
    assert checkpoint == f"step-{step:08d}", checkpoint
    # Moved, and read from another directory: the links are relative.
    moved = os.path.join(folder, "moved-" + stage)
    shutil.move(os.path.join(folder, stage, checkpoint), moved)
    subprocess.run(["sha256sum", "--quiet", "-c", "SHA256SUMS"], cwd=moved, check=True)
    links = tensors = 0
    with h5py.File(os.path.join(moved, "index.h5"), "r") as index, h5py.File(os.path.join(folder, stage + ".h5"), "r") as plain:
        assert index.attrs["step"] == step and index.attrs["format"] == 1
        assert index.attrs["stage"] in (stage, stage.encode())
        names = []
        plain["model"].visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
        assert f"blocks/{LAYERS - 1}/attn/qkv/weight" in names
        for name in names:
            want = expected_link(stage, name)
            for root in ("model", "optimizer"):
                link = index[root].get(name, getlink=True)
                assert isinstance(link, h5py.SoftLink) == (want is not None), (stage, root, name)
                if want is not None:
                    assert link.path == f"/{root}/{want}", (link.path, want)
                    links += 1
            for path in (f"model/{name}", f"optimizer/{name}/m", f"optimizer/{name}/v"):
                ours, theirs = np.array(plain[path]), np.array(index[path])
                assert theirs.dtype == np.float32 and ours.shape == theirs.shape, path
                assert np.array_equal(ours, theirs), (stage, path)
                tensors += 1
            assert np.abs(np.array(index[f"optimizer/{name}/v"])).max() > 0, name
            assert index[f"optimizer/{name}"].attrs["updates"] == step, name
    print(f"{stage}: {tensors} datasets equal, {links} links as expected")


def main():
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.argv[1], folder], check=True)
        check(folder, "pseudo", 2)
        check(folder, "real", 3)


main()
