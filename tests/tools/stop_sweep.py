#!/usr/bin/python3
"""Ctrl-C ends a sweep: the runs at work save and end, alone and under mpirun,
and the same command goes on from there.

  stop_sweep.py DELINK RECIPE

Exit status 77: skipped, there is no mpirun.
"""
import csv
import os
import signal
import subprocess
import sys
import tempfile
import time

import runs

DELINK, RECIPE = sys.argv[1:3]
SECONDS = 60


def spec(corpus, ranks, steps):
    return f"""
recipe = "{os.path.abspath(RECIPE)}"
ranks = {ranks}
set = ["data.train={corpus}/train", "schedule.steps={steps}", "run.validate_every=0", "run.checkpoint_every=0",
       "run.log_every=1000"]
[[axis]]
key = "optimizer.lr"
values = [1e-3, 2e-3, 3e-3]
"""


def table(out):
    with open(os.path.join(out, "sweep.csv"), encoding="utf-8", newline="") as file:
        return {row["lr"]: row for row in csv.DictReader(file)}


def stop_and_go_on(folder, corpus, ranks, jobs, steps):
    path, out = os.path.join(folder, f"{ranks}.toml"), os.path.join(folder, f"out{ranks}")
    with open(path, "w", encoding="utf-8") as file:
        file.write(spec(corpus, ranks, steps))
    words = [DELINK, "sweep", path, "--out", out, "--jobs", str(jobs)]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        at_work = [os.path.join(out, "runs", f"lr={lr}") for lr in ("0.001", "0.002")[:jobs]]
        end = time.monotonic() + SECONDS
        while any(runs.last_step(run) < 10 for run in at_work):
            assert process.poll() is None and time.monotonic() < end
            time.sleep(0.005)
        # As a terminal does: to all of the foreground's process group.
        os.killpg(process.pid, signal.SIGINT)
        _, told = process.communicate(timeout=SECONDS)
        assert process.returncode == 128 + signal.SIGINT, (process.returncode, told)
    rows = table(out)
    for index, (run, row) in enumerate(zip(at_work, rows.values())):
        step = runs.last_step(run)
        assert 10 <= step < steps, (index, step)
        assert row["status"] == "cut", row
        assert os.path.isdir(os.path.join(run, "checkpoints", f"step-{step:08}")), os.listdir(run)
    assert [row["status"] for row in rows.values()][jobs:] == ["waiting"] * (3 - jobs), rows
    done = subprocess.run(words, capture_output=True, text=True, timeout=5 * SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    assert "goes on" in done.stderr, done.stderr
    for row in table(out).values():
        assert (row["status"], row["steps"]) == ("finished", str(steps)), row


def main():
    runs.skip_without_mpirun()
    with tempfile.TemporaryDirectory() as folder:
        corpus = runs.build_corpus(DELINK, folder)
        stop_and_go_on(folder, corpus, 1, 2, 500)
        stop_and_go_on(folder, corpus, 2, 1, 150)
    print("ok")


if __name__ == "__main__":
    main()
