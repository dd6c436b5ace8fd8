#!/usr/bin/python3
"""Many steps of a tiny model with planes at home on the host: what the process
holds stays as it is.

  offload_flat.py DELINK RECIPE [--steps N]

The real stage has blocks on either side, updated by the host and by the device,
with checkpoints and validations on the way. Resident memory, descriptors,
mappings and threads are looked at from a fifth of the steps on: at the end there
are as many, and as much to a few pages.
"""
import argparse
import os
import subprocess
import sys
import tempfile
import time

import runs

HOMES = 'resident=0.25,update="host",rows=[{match="*/attn/*",update="device"},{match="embed/*",gradients="host"}]'
# Pages that allocators and HDF5 come to hold by and by.
RISE = 512 << 10


class Steps:
    """How many are in a growing metrics.jsonl."""

    def __init__(self, path):
        self.path, self.at, self.count = path, 0, 0

    def now(self):
        if os.path.exists(self.path):
            with open(self.path, "rb") as file:
                file.seek(self.at)
                said = file.read()
            self.at += len(said)
            self.count += said.count(b'"loss":')
        return self.count


def held(pid):
    """Resident bytes, descriptors, mappings and threads; None where it is gone."""
    try:
        with open(f"/proc/{pid}/statm", encoding="utf-8") as file:
            resident = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        with open(f"/proc/{pid}/maps", encoding="utf-8") as file:
            mappings = sum(1 for _ in file)
        threads = len(os.listdir(f"/proc/{pid}/task"))
        return resident, len(os.listdir(f"/proc/{pid}/fd")), mappings, threads
    except OSError:
        return None


def watch(words, run, steps):
    """What was held at which step, from a fifth of them on."""
    seen = []
    counter = Steps(os.path.join(run, "metrics.jsonl"))
    said = run + ".log"
    with open(said, "w", encoding="utf-8") as file:
        process = subprocess.Popen(words, stdout=file, stderr=file)
    try:
        while process.poll() is None:
            time.sleep(0.005)
            step = counter.now()
            now = held(process.pid)
            # The last step has the end of the run behind it.
            if now is not None and steps // 5 <= step < steps:
                seen.append((step, *now))
    finally:
        process.kill()
        process.wait()
    with open(said, encoding="utf-8") as file:
        assert process.returncode == 0, file.read()[-2000:]
    return seen


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("delink")
    parser.add_argument("recipe")
    parser.add_argument("--steps", type=int, default=500)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        corpus, run = runs.build_corpus(options.delink, folder), os.path.join(folder, "run")
        pairs = [f"data.train={corpus}/train", "model.dim=16", "data.batch=4", "data.seq=16",
                 f"schedule.steps={options.steps}", "stage.0.until.steps=5", f"stage.1.offload={{{HOMES}}}",
                 f"run.checkpoint_every={options.steps // 20}", f"run.validate_every={options.steps // 20}",
                 "run.keep=2"]
        words = [options.delink, "train", options.recipe, "--out", run, "--threads", "1"]
        seen = watch(words + runs.sets(*pairs), run, options.steps)
    assert len(seen) > 20, f"looked {len(seen)} times only"
    names = ("bytes resident", "descriptors", "mappings", "threads")
    # The least, since more is held for a moment, as while a checkpoint is written.
    part = max(5, len(seen) // 5)
    for index, name in enumerate(names, 1):
        begin = min(row[index] for row in seen[:part])
        end = min(row[index] for row in seen[-part:])
        print(f"{name}: {begin} by step {seen[part - 1][0]}, {end} at the end")
        assert end <= begin + (RISE if index == 1 else 0), f"{name} grow: {begin} to {end}"
    print(f"{options.steps} steps, looked at {len(seen)} times")


if __name__ == "__main__":
    sys.exit(main())
