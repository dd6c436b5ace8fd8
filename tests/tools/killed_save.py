#!/usr/bin/python3
"""Kills a rank in the middle of saving: what was being written is not taken for
a checkpoint, and the run goes on from the one before, on other ranks.

  killed_save.py DELINK RECIPE

Exit status 77: skipped, there is no mpirun.
"""
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

import runs

DELINK, RECIPE = sys.argv[1:3]
SECONDS = 20


def saving(run, rank):
    """Whether a rank says that it is saving."""
    try:
        with open(os.path.join(run, "ranks", f"rank-{rank:05}"), encoding="utf-8") as file:
            return "saving a checkpoint" in file.read()
    except OSError:
        return False


def kill_in_save(words, run, ranks, victim, output):
    """The last whole checkpoint's step, and what the killed save left."""
    with runs.Run(ranks, words, output) as process:
        assert process.find_ranks() and process.wait_for_step(run, runs.last_step(run) + 3), process.told()
        end = time.monotonic() + SECONDS
        while not saving(run, victim):
            assert time.monotonic() < end and process.mpirun.poll() is None, process.told()
        os.kill(process.pids[victim], signal.SIGKILL)
        process.wait_for_end(SECONDS)
        told = process.told()
    assert f"rank {victim} is gone: it was in step" in told and "saving a checkpoint" in told, told
    left = [name for name in os.listdir(os.path.join(run, "checkpoints")) if name.endswith(".tmp")]
    for name in left:
        assert "SHA256SUMS" not in os.listdir(os.path.join(run, "checkpoints", name)), "digests before the end"
    seen = subprocess.run([DELINK, "inspect", run, "--json"], check=True, capture_output=True)
    assert not seen.stderr, "a checkpoint that is damaged was passed over"
    return json.loads(seen.stdout)["step"], left


def main():
    runs.skip_without_mpirun()
    with tempfile.TemporaryDirectory() as folder:
        corpus, run = runs.build_corpus(DELINK, folder), os.path.join(folder, "run")
        output = os.path.join(folder, "output")
        # A model that takes longer to save than to train; a save at every step.
        words = [DELINK, "train", RECIPE, "--out", run, "--threads", "1",
                 *runs.sets(f"data.train={corpus}/train", "model.dim=192", "data.batch=6", "run.micro_batch=1",
                            "data.seq=8", "run.checkpoint_every=1", "stage.0.until.steps=1", "schedule.steps=500",
                            "run.validate_every=0")]
        # A kill may come when the save is just through: again, until one does not.
        remains = []
        for ranks, victim in ((2, 1), (3, 0)) * 6:
            step, left = kill_in_save(words + ["--resume"], run, ranks, victim, output)
            reached = runs.last_step(run)
            assert reached - 1 <= step <= reached, (step, reached)
            remains += left
            print(f"rank {victim} of {ranks} killed while saving step {reached}: {step} is whole, {left} is left")
            if ranks == 3 and remains:
                break
        # On another number of ranks; what was left is removed.
        runs.succeed(words + ["--resume", "--until-step", str(reached + 1)])
        now = os.listdir(os.path.join(run, "checkpoints"))
        assert f"step-{reached + 1:08}" in now and not any(name.endswith(".tmp") for name in now), now
        assert remains, "no save was interrupted: make the model larger"


main()
