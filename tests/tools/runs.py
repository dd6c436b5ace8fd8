"""What tests that end runs in unfriendly ways have in common: a corpus, runs of
recipes/tiny.toml under mpirun, and their ranks as processes.
"""
import json
import os
import shutil
import signal
import subprocess
import sys
import time


def skip_without_mpirun():
    if shutil.which("mpirun") is None:
        print("SKIPPED: there is no mpirun; install openmpi-bin")
        sys.exit(77)


def build_corpus(delink, folder):
    text = os.path.join(folder, "text.txt")
    with open(text, "w", encoding="utf-8") as file:
        file.write("Of the making of many tests there is no end. " * 400)
    corpus = os.path.join(folder, "corpus")
    succeed([delink, "data", "build", "--bytes", "--out", corpus, text])
    return corpus


def sets(*pairs):
    """The words of a command that set these keys of its recipe."""
    return [word for pair in pairs for word in ("--set", pair)]


def succeed(words, **options):
    """What a command that must succeed prints."""
    done = subprocess.run(words, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stdout}{done.stderr}"
    return done.stdout


def rows(run):
    """The rows of a run's metrics.jsonl that are whole."""
    try:
        with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as file:
            return [json.loads(line) for line in file if line.endswith("\n")]
    except OSError:
        return []


def losses(run):
    """By step."""
    return {row["step"]: row["loss"] for row in rows(run) if "loss" in row}


def last_step(run):
    return max((row["step"] for row in rows(run)), default=0)


def parent_of(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        return int(file.read().rsplit(")", 1)[1].split()[1])


def rank_pids(parent):
    """The processes that mpirun started, by rank."""
    pids = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if parent_of(pid) != parent:
                continue
            with open(f"/proc/{pid}/environ", "rb") as file:
                environ = file.read().split(b"\0")
        except OSError:
            continue
        for variable in environ:
            if variable.startswith(b"OMPI_COMM_WORLD_RANK="):
                pids[int(variable.split(b"=")[1])] = int(pid)
    return pids


def alive(pid):
    """Whether a process is there and no corpse that waits to be collected."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


class Run:
    """A `delink` under mpirun, its output in a file; ended with the block."""

    def __init__(self, ranks, words, output):
        self.ranks, self.path = ranks, output
        with open(output, "w", encoding="utf-8") as file:
            self.mpirun = subprocess.Popen(["mpirun", "-np", str(ranks)] + words, stdout=file, stderr=file)
        self.pids = {}

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        if self.mpirun.poll() is None:
            for pid in rank_pids(self.mpirun.pid).values():
                os.kill(pid, signal.SIGKILL)
            self.mpirun.kill()
        self.mpirun.wait()

    def told(self):
        with open(self.path, encoding="utf-8") as file:
            return file.read()

    def find_ranks(self):
        """Waits until all ranks are there; false when the run ended before."""
        while len(self.pids) < self.ranks:
            self.pids = rank_pids(self.mpirun.pid)
            if self.mpirun.poll() is not None:
                return False
            time.sleep(0.005)
        return True

    def wait_for_step(self, run, step, seconds=100):
        """Waits until `step` is in the metrics; false when the run ended before."""
        end = time.monotonic() + seconds
        while last_step(run) < step:
            if self.mpirun.poll() is not None:
                return False
            assert time.monotonic() < end, f"the run did not get to step {step}:\n{self.told()}"
            time.sleep(0.005)
        return True

    def wait_for_end(self, seconds, joined=True):
        """Seconds until mpirun and all ranks are gone. Where one was killed that may not have `joined` the others yet,
        mpirun may wait for ever though all are gone; it is then ended with the block."""
        begin = time.monotonic()
        while self.mpirun.poll() is None or any(map(alive, self.pids.values())):
            if time.monotonic() > begin + seconds:
                left = [rank for rank, pid in self.pids.items() if alive(pid)]
                assert not left and not joined, f"after {seconds} s mpirun and ranks {left} are there:\n{self.told()}"
                break
            time.sleep(0.01)
        return time.monotonic() - begin
