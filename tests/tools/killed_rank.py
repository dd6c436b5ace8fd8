#!/usr/bin/python3
"""Kills one rank of a run: the others end within seconds, with one message that
names it, and the run resumes from its last checkpoint.

  killed_rank.py DELINK RECIPE

Exit status 77: skipped, there is no mpirun.
"""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

DELINK, RECIPE = sys.argv[1:3]
SECONDS = 20  # of a loaded machine; two or three otherwise
STEPS = 4000  # far more than run before the kill


def rank_pid(parent, rank):
    """The process of a rank that mpirun started, or None."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                environ = file.read().split(b"\0")
            with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
                owner = int(file.read().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue
        if owner == parent and b"OMPI_COMM_WORLD_RANK=%d" % rank in environ:
            return int(pid)
    return None


def rows(run):
    try:
        with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as file:
            return [json.loads(line) for line in file if line.endswith("\n")]
    except OSError:
        return []


def main():
    if shutil.which("mpirun") is None:
        print("SKIPPED: there is no mpirun; install openmpi-bin")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        text, corpus, run = (os.path.join(folder, name) for name in ("text.txt", "corpus", "run"))
        with open(text, "w", encoding="utf-8") as file:
            file.write("Of the making of many tests there is no end. " * 400)
        subprocess.run([DELINK, "data", "build", "--bytes", "--out", corpus, text], check=True, capture_output=True)
        train = [DELINK, "train", RECIPE, "--out", run, "--set", f"data.train={corpus}/train",
                 "--set", f"schedule.steps={STEPS}"]
        with open(os.path.join(folder, "output"), "w+", encoding="utf-8") as output:
            with subprocess.Popen(["mpirun", "-np", "2"] + train, stdout=output, stderr=output) as mpirun:
                begin = time.monotonic()
                while not any(row["step"] >= 12 for row in rows(run)):
                    assert mpirun.poll() is None and time.monotonic() < begin + 100, "the run did not get going"
                    time.sleep(0.05)
                os.kill(rank_pid(mpirun.pid, 1), signal.SIGKILL)
                killed = time.monotonic()
                code = mpirun.wait(SECONDS)
            output.seek(0)
            told = output.read()
        print(f"ended {time.monotonic() - killed:.1f} s after the kill, exit status {code}")
        assert code != 0
        assert told.count("rank 1") == 1, told
        assert "signal 9" in told, told
        reached = rows(run)[-1]["step"]
        subprocess.run(train + ["--resume", "--until-step", str(reached + 1)], check=True, capture_output=True)
        steps = [row["step"] for row in rows(run) if "loss" in row]
        assert steps == list(range(1, reached + 2)), "steps are missing or doubled"


main()
