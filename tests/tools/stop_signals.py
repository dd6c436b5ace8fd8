#!/usr/bin/python3
"""SIGINT and SIGTERM end a run after a checkpoint, SIGUSR1 writes one and goes
on, a second signal ends at once; alone and under mpirun. What was stopped goes
on to the straight run's bits.

  stop_signals.py DELINK RECIPE

Exit status 77: skipped, there is no mpirun.
"""
import os
import re
import signal
import subprocess
import sys
import tempfile

import runs

DELINK, RECIPE = sys.argv[1:3]
SECONDS = 20


class Alone(runs.Run):
    """A `delink` without mpirun."""

    def __init__(self, words, output):
        with open(output, "w", encoding="utf-8") as file:
            self.path, self.pids = output, {}
            self.mpirun = subprocess.Popen(words, stdout=file, stderr=file)


def checkpoints(run):
    return sorted(int(name[5:]) for name in os.listdir(os.path.join(run, "checkpoints")) if name[5:].isdigit())


def stop(process, run, how, ahead=12):
    assert process.wait_for_step(run, runs.last_step(run) + ahead), process.told()
    process.mpirun.send_signal(how)
    process.wait_for_end(SECONDS)
    told = process.told()
    stopped = re.findall(r"(SIG\w+): stopped after step (\d+)", told)
    assert len(stopped) == 1, told
    assert checkpoints(run)[-1] == int(stopped[0][1]) == runs.last_step(run), told
    return stopped[0][0], process.mpirun.returncode


def main():
    runs.skip_without_mpirun()
    with tempfile.TemporaryDirectory() as folder:
        corpus, output = runs.build_corpus(DELINK, folder), os.path.join(folder, "output")

        def words(run):
            # mpirun reads nothing while it ends: a full pipe would hold the ranks up.
            return [DELINK, "train", RECIPE, "--out", run, "--threads", "1",
                    *runs.sets(f"data.train={corpus}/train", "schedule.steps=40000", "run.checkpoint_every=1000",
                               "run.validate_every=0", "run.keep=0", "run.log_every=1000")]

        alone = os.path.join(folder, "alone")
        with Alone(words(alone), output) as process:
            assert stop(process, alone, signal.SIGTERM) == ("SIGTERM", 128 + signal.SIGTERM)
        with Alone(words(alone) + ["--resume"], output) as process:
            assert process.wait_for_step(alone, runs.last_step(alone) + 12)
            before = checkpoints(alone)
            process.mpirun.send_signal(signal.SIGUSR1)
            assert process.wait_for_step(alone, runs.last_step(alone) + 12)
            asked = checkpoints(alone)
            assert len(asked) == len(before) + 1, asked
            assert stop(process, alone, signal.SIGINT) == ("SIGINT", 128 + signal.SIGINT)

        # Two at once: the second does what it does to other programs.
        hurried = os.path.join(folder, "hurried")
        with Alone(words(hurried), output) as process:
            assert process.wait_for_step(hurried, 12)
            process.mpirun.send_signal(signal.SIGSTOP)
            process.mpirun.send_signal(signal.SIGINT)
            process.mpirun.send_signal(signal.SIGTERM)
            process.mpirun.send_signal(signal.SIGCONT)
            process.wait_for_end(SECONDS)
            # Which of them comes second is the system's choice.
            assert process.mpirun.returncode in (-signal.SIGINT, -signal.SIGTERM), process.mpirun.returncode
            assert "stopped after" not in process.told()

        # To mpirun, which waits a second, hands it on and kills what is left
        # another second later, unless told otherwise.
        os.environ["OMPI_MCA_odls_base_sigkill_timeout"] = "3"
        several = os.path.join(folder, "several")
        with runs.Run(2, words(several), output) as process:
            assert process.find_ranks()
            assert stop(process, several, signal.SIGTERM)[0] == "SIGTERM"
        # To one rank: all stop.
        with runs.Run(2, words(several) + ["--resume"], output) as process:
            assert process.find_ranks() and process.wait_for_step(several, runs.last_step(several) + 12)
            os.kill(process.pids[1], signal.SIGTERM)
            process.wait_for_end(SECONDS)
            assert process.told().count("SIGTERM: stopped after step") == 1, process.told()
            assert process.mpirun.returncode == 128 + signal.SIGTERM

        last = runs.last_step(several)
        straight = os.path.join(folder, "straight")
        runs.succeed(["mpirun", "-np", "2"] + words(straight) + ["--until-step", str(last)])
        assert runs.losses(several) == runs.losses(straight), "a run that was stopped is another run"
        print(f"stopped twice before step {last}, and the same run")


main()
