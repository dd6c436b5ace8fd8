#!/usr/bin/python3
"""Kills random ranks of a run of 60 steps at random moments, each time resumes,
and compares the end with the straight run's.

  kill_resume.py DELINK RECIPE [--kills N] [--seed N] [--homes]

A run goes on until it ends; then the next begins, until N ranks were killed.
The first run stays on 2 ranks and must end with the straight run's bits, the
second on 3; those that follow change the number of ranks every other time, and
are held to docs/equality.md. No rank outlives another's death by more than 10 s.
Of a failure the last command and all that it said are told.

With --homes every attempt draws which planes are at home on the host and who
updates them, runs stay on 2 ranks or on 3, and all must end with the bits of the
straight run, which has all on the device.

Exit status 77: skipped, there is no mpirun or no h5py.
"""
import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

import runs

try:
    import h5py
    import numpy as np
except ImportError as missing:
    print(f"SKIPPED: {missing}; install python3-h5py")
    sys.exit(77)

STEPS = 60
LR = 1e-3
LOSS_TOLERANCE = 2e-5
MEDIAN_TOLERANCE, TAIL_TOLERANCE = 0.01 * LR, 0.3 * LR
KILLS_A_RUN = 6  # at most, so that all kinds of runs come to an end
# Numbers of ranks of a run, one attempt after the other.
PATTERNS = [[2], [3], [2, 2, 3, 3], [3, 2, 2, 3]]
HOMES = (
    "", "resident=0.5", 'resident=0.25,update="host"', 'state="host"', 'update="host"', 'gradients="host"',
    'weights="host"', 'weights="host",gradients="host",state="host"', 'weights="host",gradients="host",update="host"',
    'rows=[{match="blocks/1/*",update="host"},{match="embed/*",weights="host"}],state="host"',
    'activations="host"', 'device="900KiB"', 'weights="host",gradients="host",state="host",activations="host"')


def tensors(run):
    found = {}

    def visit(group, path):
        for name in group:
            child, below = group[name], f"{path}/{name}"
            if isinstance(child, h5py.Dataset):
                found[below] = child[()]
            else:
                visit(child, below)

    with h5py.File(os.path.join(run, "checkpoints", f"step-{STEPS:08}", "index.h5"), "r") as file:
        for top in ("model", "optimizer"):
            visit(file[top], top)
    return found


def compare(run, straight, same_bits):
    steps = [row["step"] for row in runs.rows(run) if "loss" in row]
    assert steps == list(range(1, STEPS + 1)), f"steps are missing or doubled: {steps}"
    a, b = runs.losses(run), runs.losses(straight)
    x, y = tensors(run), tensors(straight)
    assert x.keys() == y.keys()
    if same_bits:
        assert a == b, "losses differ"
        for name, value in x.items():
            assert value.tobytes() == y[name].tobytes(), f"{name} differs"
        return "same bits"
    worst = max(abs(a[step] - b[step]) / abs(b[step]) for step in b)
    weights = np.concatenate([np.abs(x[n] - y[n]).ravel() for n in x if n.startswith("model/")])
    median, tail = np.quantile(weights, [0.5, 0.99])
    assert worst < LOSS_TOLERANCE, f"losses differ by {worst:.1e}"
    assert median < MEDIAN_TOLERANCE and tail < TAIL_TOLERANCE, f"weights differ by {median:.1e}, {tail:.1e}"
    return f"losses within {worst:.1e}, weights within {median / LR:.1e} and {tail / LR:.1e} of the learning rate"


def some_homes(draw):
    """Of both stages, as words of the command."""
    return runs.sets(*(f"stage.{stage}.offload={{{draw.choice(HOMES)}}}" for stage in (0, 1)))


def kill(process, run, draw):
    """Kills a rank: its number, or None when the run was faster, which then has
    ended well, and how long the others took to end."""
    if process.find_ranks():
        joined = draw.random() >= 0.2
        if joined:
            joined = process.wait_for_step(run, min(runs.last_step(run) + draw.randint(1, 14), STEPS))
        else:
            time.sleep(draw.uniform(0, 1))  # while it starts, perhaps
        time.sleep(draw.uniform(0, 0.03))  # anywhere in a step, or in a save
        rank = draw.randrange(process.ranks)
        if runs.alive(process.pids[rank]):
            os.kill(process.pids[rank], signal.SIGKILL)
            return rank, process.wait_for_end(10, joined)
    code = process.mpirun.wait(100)
    assert code == 0, f"ended by itself with {code}"
    return None, 0


class Commands:
    """Runs under mpirun, one after the other; of the last one what it said."""

    def __init__(self, folder):
        self.output, self.last = os.path.join(folder, "output"), []

    def start(self, ranks, words):
        self.last = ["mpirun", "-np", str(ranks)] + words
        return runs.Run(ranks, words, self.output)

    def finish(self, ranks, words):
        with self.start(ranks, words) as process:
            code = process.mpirun.wait()
        assert code == 0, f"ended with {code}"

    def told(self):
        with open(self.output, encoding="utf-8", errors="replace") as file:
            return f"{' '.join(self.last)}\n{file.read()}"


def run_all(options, folder, commands):
    """All runs of the options, in a folder."""
    draw = random.Random(options.seed)
    kills, rounds, slowest = 0, 0, 0
    corpus = runs.build_corpus(options.delink, folder)

    def words(run):
        return [options.delink, "train", options.recipe, "--out", run, "--threads", "1",
                *runs.sets(f"data.train={corpus}/train", "data.batch=12", f"schedule.steps={STEPS}",
                           "stage.0.until.steps=30", "stage.1.parallel.zero=1", "run.checkpoint_every=4")]

    def going_on(run):
        return words(run) + (some_homes(draw) if options.homes else []) + ["--resume"]

    straight = {}
    for ranks in (2, 3):
        straight[ranks] = os.path.join(folder, f"straight{ranks}")
        commands.finish(ranks, words(straight[ranks]))
    while kills < options.kills:
        pattern = PATTERNS[min(rounds, 2) if rounds < 3 else 2 + rounds % 2]
        if options.homes:
            pattern = PATTERNS[rounds % 2]
        run = os.path.join(folder, f"run{rounds}")
        here, history = 0, []
        limit = min(KILLS_A_RUN, options.kills - kills, 2 if options.kills < 10 else KILLS_A_RUN)
        while here < limit:
            ranks = pattern[len(history) % len(pattern)]
            with commands.start(ranks, going_on(run)) as process:
                rank, took = kill(process, run, draw)
            if rank is None:
                break
            here, slowest = here + 1, max(slowest, took)
            history.append(f"{rank}/{ranks} at {runs.last_step(run)} ({took:.1f} s)")
        ranks = pattern[len(history) % len(pattern)]
        commands.finish(ranks, going_on(run))
        verdict = compare(run, straight[ranks], len(pattern) == 1)
        kills, rounds = kills + here, rounds + 1
        print(f"run {rounds}: killed {', '.join(history) or 'none'}; ended on {ranks}: {verdict}", flush=True)
    print(f"{kills} kills over {rounds} runs; the others ended within {slowest:.1f} s")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("delink")
    parser.add_argument("recipe")
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--homes", action="store_true")
    options = parser.parse_args()
    runs.skip_without_mpirun()
    with tempfile.TemporaryDirectory() as folder:
        commands = Commands(folder)
        try:
            run_all(options, folder, commands)
        except (AssertionError, subprocess.SubprocessError):
            print(f"the last command: {commands.told()}", flush=True)
            raise


main()
