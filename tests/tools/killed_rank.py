#!/usr/bin/python3
"""Kills one rank of a run, then stops another: the others end within seconds,
with one message that names it and what it was doing, and the run resumes from
its last checkpoint.

  killed_rank.py DELINK RECIPE

Exit status 77: skipped, there is no mpirun.
"""
import glob
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

import runs

DELINK, RECIPE = sys.argv[1:3]
RANKS = 3
PATIENCE = 3  # of the watchdog, in seconds
SECONDS = 20  # of a loaded machine; two or three otherwise
STEPS = 4000  # far more than run before the end


def hurt(words, run, rank, how, output):
    """What the run says when a rank is killed or stopped after a few steps."""
    with runs.Run(RANKS, words, output) as process:
        assert process.find_ranks() and process.wait_for_step(run, runs.last_step(run) + 12), process.told()
        os.kill(process.pids[rank], how)
        step = runs.last_step(run)
        took = process.wait_for_end(SECONDS)
        told = process.told()
        print(f"{how.name}: ended {took:.1f} s later, exit status {process.mpirun.returncode}")
        assert process.mpirun.returncode != 0
    ours = re.findall(rf"rank {rank} (is gone|gives no sign of life, stopped or cut off): it was (.*)", told)
    assert len(ours) == 1, f"expected one message of ours:\n{told}"
    print(f"  rank {rank} {ours[0][0]}: it was {ours[0][1]}")
    where = re.match(r"in step (\d+), (reading|saving|[A-Z]\w*\b)", ours[0][1])
    assert where, ours[0][1]
    # What it did is exact; metrics are written a step later.
    assert step <= int(where[1]) <= step + 3, (step, where[1])
    return ours[0]


def killed_in_set_up(folder, output):
    """What the others say of a rank that is killed before its run has a folder."""
    pipe, meeting = os.path.join(folder, "recipe.toml"), os.path.join(folder, "t")
    os.mkfifo(pipe)  # nobody writes: there all ranks stay
    os.mkdir(meeting)
    words = [DELINK, "train", pipe, "--out", os.path.join(folder, "never"), "--threads", "1"]
    with runs.Run(RANKS, ["-x", f"TMPDIR={meeting}"] + words, output) as process:
        end = time.monotonic() + 60
        while len(glob.glob(os.path.join(meeting, "delink-*", "rank-*"))) < RANKS:
            assert process.mpirun.poll() is None and time.monotonic() < end, process.told()
            time.sleep(0.01)
        assert process.find_ranks(), process.told()
        os.kill(process.pids[1], signal.SIGKILL)
        process.wait_for_end(SECONDS)
        told = process.told()
        assert process.mpirun.returncode != 0
    assert told.count("rank 1 is gone: it was starting") == 1, told
    print(f"killed while it was set up: named, exit status {process.mpirun.returncode}")


def main():
    runs.skip_without_mpirun()
    with tempfile.TemporaryDirectory() as folder:
        corpus, run = runs.build_corpus(DELINK, folder), os.path.join(folder, "run")
        output = os.path.join(folder, "output")
        train = [DELINK, "train", RECIPE, "--out", run, "--threads", "1", "--set", f"data.train={corpus}/train",
                 "--set", f"schedule.steps={STEPS}", "--set", f"run.watchdog={PATIENCE}", "--set", "data.batch=12"]
        killed = hurt(train, run, 1, signal.SIGKILL, output)
        assert killed[0] == "is gone", killed
        stopped = hurt(train + ["--resume"], run, 2, signal.SIGSTOP, output)
        assert stopped[0] != "is gone" and "the others waited" in stopped[1], stopped
        reached = runs.last_step(run)
        subprocess.run(train + ["--resume", "--until-step", str(reached + 1)], check=True, capture_output=True)
        steps = [row["step"] for row in runs.rows(run) if "loss" in row]
        assert steps == list(range(1, reached + 2)), "steps are missing or doubled"
        assert not os.path.exists(os.path.join(run, "ranks")), "heartbeats are left"
        killed_in_set_up(folder, output)


main()
