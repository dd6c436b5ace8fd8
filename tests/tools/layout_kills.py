#!/usr/bin/python3
"""Runs over random layouts that end early and go on over others.

  layout_kills.py DELINK RECIPE

A rank is killed at a random moment: the others are gone within seconds, exit
status and message say so, and the message names the rank and what another one
was kept in. Or the run is stopped, by --until-step or a signal. Then it goes on
to its end over another layout, of other ranks, with the losses of one rank to
the rounding of sums, or every fourth time over the same one, with the bits of a
run that nobody killed.

DELINK_KILLS and DELINK_PAIRS say how many of either, DELINK_SEED which.

Exit status 77: skipped, there is no mpirun.
"""
import itertools
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time

import runs

STEPS, BATCH = 12, 12
RANKS = (2, 3, 4, 5, 6, 8)
SECONDS = 10  # in which the others are gone
TOLERANCE = 2e-5  # docs/equality.md


def layouts(ranks):
    """All of one stage: axes, and the words that set it, with {stage} for which."""
    found = []
    axes = itertools.product((1, 2, 4), (1, 2, 4), (1, 2, 3, 4, 5, 6), (1, 2, 3, 4, 6), (1, 2, 3, 4, 6))
    for tensor, context, pipeline, data, micro in axes:
        if tensor * context * pipeline * data != ranks or BATCH % (data * micro):
            continue
        micro_batches = BATCH // (data * micro)
        if not 2 <= micro_batches <= 4:  # seconds, not minutes
            continue
        schedules = ["1f1b"] + (["zero-bubble"] if pipeline > 1 else [])
        # Two pieces a rank, of four blocks, the embedding and the head.
        if pipeline in (2, 3) and micro_batches % pipeline == 0:
            schedules.append("interleaved")
        for schedule, zero in itertools.product(schedules, (0, 1, 3)):
            words = ["--set", f"stage.{{stage}}.micro_batch={micro}", "--set",
                     f"stage.{{stage}}.parallel={{{{tensor={tensor},context={context},pipeline={pipeline},"
                     f"data={data},zero={zero},schedule=\"{schedule}\"}}}}"]
            found.append(((tensor, context, pipeline, data), words))
    return found


class Layout:
    """Of both stages, drawn; never of `not_ranks` ranks."""

    def __init__(self, draw, not_ranks=0):
        self.ranks = draw.choice([ranks for ranks in RANKS if ranks != not_ranks])
        first, second = draw.choices(layouts(self.ranks), k=2)
        # On the same mesh, the switch takes the second's batch through the first.
        stages = (first, first if first[0] == second[0] else second)
        self.words = [word.format(stage=stage) for stage in range(2) for word in stages[stage][1]]

    def __str__(self):
        sets = re.findall(r"micro_batch=(\d+).*?\{(.*?)\}", " ".join(self.words))
        return f"{self.ranks} ranks " + " then ".join(f"{axes},micro_batch={micro}" for micro, axes in sets)


def train(words, layout):
    runs.succeed(["mpirun", "-np", str(layout.ranks)] + words + layout.words)


def results(run):
    """Losses by step, and the validation's at the end."""
    rows = runs.rows(run)
    losses = [(row["step"], row["loss"]) for row in rows if "loss" in row]
    assert [step for step, _ in losses] == list(range(1, STEPS + 1)), f"steps are missing or doubled: {losses}"
    validated = [row["validation_loss"] for row in rows if "validation_loss" in row and row["step"] == STEPS]
    assert len(validated) == 1, validated
    return [loss for _, loss in losses] + validated


def difference(run, alone):
    most = max(abs(a - b) / b for a, b in zip(results(run)[-2:], alone[-2:]))
    assert most < TOLERANCE, f"losses at the end differ by {most:.1e}"
    return f"losses within {most:.1e}"


def check_message(told, rank, ranks):
    """That it names the dead rank once, and where it and a living one were; that."""
    found = re.findall(r"rank (\d+) is gone: it was (.*?); rank (\d+) was (.*?); go on", told)
    assert len(found) == 1, f"rank {rank} was killed, expected one message:\n{told}"
    gone, _, other, where = found[0]
    assert int(gone) == rank and int(other) != rank and int(other) < ranks, f"rank {rank} was killed:\n{told}"
    assert re.match(r"in step \d+, (waiting for )?[A-Za-z]\w*", where), told
    return f"rank {other} was {where}"


def kill(words, run, layout, output, draw):
    """What was said and how long it took; None where the run was faster."""
    with runs.Run(layout.ranks, words + layout.words, output) as process:
        if not process.find_ranks():
            raise AssertionError(f"{layout}: {process.told()}")
        if draw.random() < 0.2:
            time.sleep(draw.uniform(0, 1))  # while it starts, perhaps
        elif not process.wait_for_step(run, draw.randint(1, STEPS - 2)):
            return None
        time.sleep(draw.uniform(0, 0.1))
        step, rank = runs.last_step(run), draw.randrange(layout.ranks)
        if step >= STEPS - 1 or not runs.alive(process.pids[rank]):
            return None
        os.kill(process.pids[rank], signal.SIGKILL)
        took = process.wait_for_end(SECONDS)
        told, status = process.told(), process.mpirun.returncode
    assert status != 0, f"{layout}: exit status 0 though rank {rank} was killed:\n{told}"
    # Before the ranks have met, only mpirun knows of a death.
    said = check_message(told, rank, layout.ranks) if step > 0 else "it was starting"
    return f"rank {rank} killed after step {step}, all gone {took:.1f} s later, exit status {status}; {said}"


def stop(words, run, layout, output, draw):
    """Stops a run on its way: what did."""
    step = draw.randint(1, STEPS - 4)
    if draw.random() < 0.5:
        train(words + ["--until-step", str(step)], layout)
        assert runs.last_step(run) == step, runs.last_step(run)
        return f"--until-step {step}"
    with runs.Run(layout.ranks, words + layout.words, output) as process:
        assert process.find_ranks() and process.wait_for_step(run, step), f"{layout}: {process.told()}"
        # To a rank: mpirun gives its ranks two seconds only.
        os.kill(process.pids[draw.randrange(layout.ranks)], signal.SIGINT)
        process.wait_for_end(60)
        told = process.told()
    stopped = re.findall(r"SIGINT: stopped after step (\d+)", told)
    assert len(stopped) == 1 and int(stopped[0]) == runs.last_step(run), f"{layout}: {told}"
    return f"SIGINT after step {stopped[0]}"


def main():
    delink, recipe = map(os.path.abspath, sys.argv[1:])
    recipe = os.path.join(os.path.dirname(recipe), "tiny_tensor.toml")
    kills, pairs = (int(os.environ.get(name, 2)) for name in ("DELINK_KILLS", "DELINK_PAIRS"))
    draw = random.Random(int(os.environ.get("DELINK_SEED", 3)))
    runs.skip_without_mpirun()
    with tempfile.TemporaryDirectory() as folder:
        corpus, output = runs.build_corpus(delink, folder), os.path.join(folder, "output")

        def words(name):
            return [delink, "train", recipe, "--out", os.path.join(folder, name), "--threads", "1", "--resume",
                    *runs.sets(f"data.train={corpus}/train", f"data.batch={BATCH}", f"schedule.steps={STEPS}",
                               f"stage.0.until.steps={STEPS // 2}", "run.checkpoint_every=3",
                               f"run.validate_every={STEPS}")]

        runs.succeed(words("alone") + ["--set", "stage.0.parallel={tensor=1}"])
        alone = results(os.path.join(folder, "alone"))
        number = 0
        while number < kills + pairs:
            name = f"run{number}"
            run, layout = os.path.join(folder, name), Layout(draw)
            shutil.rmtree(run, ignore_errors=True)
            how = (kill if number < kills else stop)(words(name), run, layout, output, draw)
            if how is None:  # it was faster: another one
                continue
            print(f"{name}: {layout}\n  {how}", flush=True)
            if number < kills and number % 4 == 1:
                train(words(name), layout)
                train(words(f"straight{number}"), layout)
                assert results(run) == results(os.path.join(folder, f"straight{number}")), "bits differ"
                print("  went on over the same ranks: same bits", flush=True)
            else:
                other = Layout(draw, layout.ranks)
                train(words(name), other)
                print(f"  went on over {other}: {difference(run, alone)}", flush=True)
            number += 1
    print(f"{kills} runs were killed and {pairs} stopped; all went on to the end")


main()
