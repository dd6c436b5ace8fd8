#!/usr/bin/python3
"""A blend that is changed mid-run, by a stage and by resuming with other weights,
stopped and gone on with on other numbers of ranks: how much of each source it has
read, exactly, and the losses of a run on one rank.

  blend_ranks.py DELINK RECIPE

The counts that checkpoints and metrics tell are held against the rule of
data/loader/blend.h in exact fractions, worked out here. Exit status 77: skipped,
there is no mpirun.
"""
import json
import os
import sys
import tempfile
from fractions import Fraction

import runs

BATCH, SEQ = 12, 32
LOSS_TOLERANCE = 2e-5
NAMES = ["prose", "code", "notes"]
# Until which step, on how many ranks, and the weights that the recipe gives the
# sources meanwhile; the second stage, from step 10 on, has a blend of its own.
PARTS = [(7, 2, [3, 1, 1]), (10, 3, [1, 4, 2]), (14, 1, [1, 4, 2]), (20, 2, [1, 4, 2])]
SECOND_STAGE = [2, 5, 0]


class Count:
    """Samples of each source: of those that may be next, the one that is due first."""

    def __init__(self):
        self.total = [0] * len(NAMES)
        self.begin([1] * len(NAMES))

    def begin(self, weights):
        self.shares = [Fraction(weight, sum(weights)) for weight in weights]
        self.here = [0] * len(NAMES)

    def draw(self, samples):
        present = [i for i, share in enumerate(self.shares) if share > 0]
        slack = Fraction(1, 2 * len(present) - 2)
        for _ in range(samples):
            now = sum(self.here) + 1
            ready = [i for i in present if now * self.shares[i] - self.here[i] >= slack]
            chosen = min(ready, key=lambda i: ((self.here[i] + 1 - slack) / self.shares[i], i))
            self.here[chosen] += 1
            self.total[chosen] += 1
            for i in present:
                assert abs(now * self.shares[i] - self.here[i]) < 1


def expected():
    """The counts after each step, by step."""
    count, after, weights = Count(), {}, None
    for step in range(1, PARTS[-1][0] + 1):
        now = SECOND_STAGE if step > 10 else next(part[2] for part in PARTS if step <= part[0])
        if now != weights:
            count.begin(now)
            weights = now
        count.draw(BATCH)
        after[step] = dict(zip(NAMES, count.total))
    return after


def build(delink, folder, name, letters):
    text = os.path.join(folder, f"{name}.txt")
    with open(text, "w", encoding="utf-8") as file:
        state = 1
        for _ in range(6000):
            state = state * 48271 % 2147483647
            file.write(letters[state % len(letters)])
    corpus = os.path.join(folder, name)
    runs.succeed([delink, "data", "build", "--bytes", "--validation", "0.1", "--out", corpus, text])
    return corpus


def train(delink, recipe, corpora, run, part, ranks, first):
    until, _, weights = part
    sources = ", ".join(f'{{name="{name}", train="{corpus}/train", weight={weight}}}'
                        for name, corpus, weight in zip(NAMES, corpora, weights))
    blend = ", ".join(f"{name}={weight}" for name, weight in zip(NAMES, SECOND_STAGE))
    words = [delink, "train", recipe, "--out", run, "--threads", "1", "--until-step", str(until),
             *runs.sets(f"data.source=[{sources}]", f"stage.1.blend={{{blend}}}", f"data.batch={BATCH}", "run.keep=0")]
    runs.succeed(["mpirun", "-np", str(ranks)] + words + ([] if first else ["--resume"]))


def check(delink, run, wanted):
    for step in sorted({part[0] for part in PARTS} | {5, 15}):
        checkpoint = os.path.join(run, "checkpoints", f"step-{step:08}")
        told = runs.succeed([delink, "inspect", checkpoint, "--json"])
        counts = {source["name"]: source["samples"] for source in json.loads(told)["sources"]}
        assert counts == wanted[step], f"step {step}: {counts}, not {wanted[step]}"
    steps = [row for row in runs.rows(run) if "loss" in row]
    assert [row["step"] for row in steps] == list(range(1, 21)), steps
    for row in steps:
        counts = {name: source["samples"] for name, source in row["sources"].items()}
        assert counts == wanted[row["step"]], f"step {row['step']}: {counts}, not {wanted[row['step']]}"
        assert row["tokens"] == SEQ * sum(counts.values())
    return [row["loss"] for row in steps]


def main():
    delink, recipe = sys.argv[1:]
    runs.skip_without_mpirun()
    wanted = expected()
    with tempfile.TemporaryDirectory() as folder:
        corpora = [build(delink, folder, name, letters)
                   for name, letters in zip(NAMES, ("abcdefg", "ABCDEFGH", "0123456789"))]
        losses = {}
        for name, alone in (("moved", False), ("alone", True)):
            run = os.path.join(folder, name)
            for part in PARTS:
                train(delink, recipe, corpora, run, part, 1 if alone else part[1], part is PARTS[0])
            losses[name] = check(delink, run, wanted)
    worst = max(abs(a - b) / b for a, b in zip(losses["moved"], losses["alone"]))
    assert worst < LOSS_TOLERANCE, f"losses differ by {worst:.1e}"
    print(f"counts of {len(NAMES)} sources are exact after each of 20 steps; "
          f"losses on 2, 3, 1 and 2 ranks within {worst:.1e} of those on 1")


main()
