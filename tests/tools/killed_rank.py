#!/usr/bin/python3
"""Kills one rank of a run, then stops another: the others end within seconds,
with one message that names it and what it was doing, and the run resumes from
its last checkpoint. So does a run over a pipeline, of which a stage is killed
while the one before waits for what it would send, and one whose weights are
sharded, of which a rank is killed while others wait to gather them: with the
bits of a run that nobody killed. And a rank is stopped in such a gather, and one
of four that work on the same visits in the middle of one.

  killed_rank.py DELINK RECIPE

Exit status 77: skipped, there is no mpirun.
"""
import glob
import os
import re
import signal
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
        status = process.mpirun.returncode
        print(f"{how.name}: ended {took:.1f} s later, exit status {status}")
        assert status != 0
    ours = re.findall(rf"rank {rank} (is gone|gives no sign of life, stopped or cut off): it was (.*)", told)
    assert len(ours) == 1, f"expected one message of ours:\n{told}"
    print(f"  rank {rank} {ours[0][0]}: it was {ours[0][1]}")
    where = re.match(r"in step (\d+), (reading|saving|waiting for|[A-Z]\w*\b)", ours[0][1])
    assert where, ours[0][1]
    # What it did is exact; metrics are written a step later.
    assert step <= int(where[1]) <= step + 3, (step, where[1])
    return ours[0] + (status,)


def waits_for(run, rank):
    """What a rank's compute lane waits for, as its heartbeat says: "Recv(3,a)g of blocks/2"; None: nothing."""
    try:
        with open(os.path.join(run, "ranks", f"rank-{rank:05}"), encoding="utf-8") as file:
            compute = file.read().splitlines()[1]
    except (OSError, IndexError):
        return None
    found = re.match(r"compute \d+ waits-in-step \d+ (.*\S)", compute)
    return found and found[1]


def stop_where_the_first_waits(process, run, rank, what):
    """Stops a rank where rank 0 waits for it in `what`, a pattern; what that is."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        os.kill(process.pids[rank], signal.SIGSTOP)
        time.sleep(0.3)
        awaited = waits_for(run, 0)
        if re.match(what, awaited or ""):
            return awaited
        os.kill(process.pids[rank], signal.SIGCONT)
        time.sleep(0.01)
    raise AssertionError(f"rank 0 never waited for {what}, at last for {awaited}:\n{process.told()}")


def losses(run):
    return [(row["step"], row["loss"], row["grad_norm"]) for row in runs.rows(run) if "loss" in row]


def killed_where_others_wait(train, folder, output, exit_status, what):
    """The last rank is killed where rank 0 waits for it in `what`; the run goes on as if it had not been. Its steps."""
    ranks, sets, awaits = what
    train = train + runs.sets("run.checkpoint_every=5", *sets)
    run, straight = (os.path.join(folder, f"{name}-{sets[0]}") for name in ("killed", "straight"))
    with runs.Run(ranks, train + ["--out", run], output) as process:
        assert process.find_ranks() and process.wait_for_step(run, 6), process.told()
        awaited = stop_where_the_first_waits(process, run, ranks - 1, awaits)
        os.kill(process.pids[ranks - 1], signal.SIGKILL)
        took = process.wait_for_end(SECONDS)
        told = process.told()
    lines = re.findall(r"^.*\brank \d+ (?:is|gives|has) .*$", told, re.MULTILINE)
    assert len(lines) == 1 and f"rank {ranks - 1} is gone: it was in step " in lines[0], told
    assert process.mpirun.returncode == exit_status, (process.mpirun.returncode, exit_status)
    print(f"killed a rank while another waited for {awaited}: ended {took:.1f} s later\n  {lines[0]}")
    last = runs.last_step(run) + 3
    for out, resume in ((run, ["--resume"]), (straight, [])):
        runs.succeed(["mpirun", "-np", str(ranks)] + train + ["--out", out, "--until-step", str(last)] + resume)
    assert losses(run) == losses(straight) and losses(run)[-1][0] == last, "not the run that nobody killed"
    return [row for row in runs.rows(run) if "loss" in row]


def stopped_in_an_exchange(train, folder, output, what):
    """A rank is stopped where rank 0 waits for it in `what`: one line names it and where it is waited for."""
    ranks, sets, awaits = what
    run = os.path.join(folder, f"stopped-{sets[0]}")
    with runs.Run(ranks, train + ["--out", run] + runs.sets(*sets), output) as process:
        assert process.find_ranks() and process.wait_for_step(run, 1), process.told()
        awaited = stop_where_the_first_waits(process, run, 2, awaits)
        took = process.wait_for_end(SECONDS)
        told = process.told()
    lines = re.findall(r"^.*\brank \d+ (?:is|gives|has|was) .*$", told, re.MULTILINE)
    assert len(lines) == 1, told
    assert re.search(r"error: rank 2 gives no sign of life, stopped or cut off: it was in step \d+, .*; the others "
                     r"waited \S+ s \(run\.watchdog\); rank 0 was in step \d+, waiting for "
                     + re.escape(awaited) + r"(?: \(network lane: .*\))?; go on from the last checkpoint",
                     lines[0]), (awaited, lines)
    assert process.mpirun.returncode != 0
    print(f"stopped where the others waited for {awaited}: ended {took:.1f} s later\n  {lines[0]}")


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
        words = [DELINK, "train", RECIPE, "--threads", "1",
                 *runs.sets(f"data.train={corpus}/train", f"schedule.steps={STEPS}", f"run.watchdog={PATIENCE}",
                            "data.batch=12")]
        train = words + ["--out", run]
        killed = hurt(train, run, 1, signal.SIGKILL, output)
        assert killed[0] == "is gone", killed
        stopped = hurt(train + ["--resume"], run, 2, signal.SIGSTOP, output)
        assert stopped[0] != "is gone" and "the others waited" in stopped[1], stopped
        reached = runs.last_step(run)
        runs.succeed(train + ["--resume", "--until-step", str(reached + 1)])
        steps = [row["step"] for row in runs.rows(run) if "loss" in row]
        assert steps == list(range(1, reached + 2)), "steps are missing or doubled"
        assert not os.path.exists(os.path.join(run, "ranks")), "heartbeats are left"
        # It has been sent an input, with another micro-batch to come, and a gradient is wanted of it.
        steps = killed_where_others_wait(words, folder, output, killed[2],
                                         (2, ["stage.0.parallel.pipeline=2"], r"Recv\(\d+,[ab]\)g "))
        assert all(0 < row["bubble"] <= 1 and 0 < row["network_wait"] for row in steps), steps
        gather = (3, ["stage.0.parallel.zero=3"], r"Fetch\(\d+\)")
        killed_where_others_wait(words, folder, output, killed[2], gather)
        stopped_in_an_exchange(words, folder, output, gather)
        tensor = [word.replace("/tiny.toml", "/tiny_tensor.toml") for word in words]
        stopped_in_an_exchange(tensor, folder, output,
                               (4, ["stage.0.parallel.tensor=4"], r"(F|B)\(.* over tensor$"))
        killed_in_set_up(folder, output)


main()
