#!/usr/bin/python3
"""Runs over the stages of a pipeline whose ranks are processes: what they tell of
each step, of the switch and of validation is what the same data ranks tell
without a pipeline, to the last bit.

  pipeline_ranks.py DELINK RECIPE

Exit status 77: skipped, there is no mpirun.
"""
import os
import sys
import tempfile

import runs

ALIKE = ("step", "loss", "grad_norm", "validation_loss", "loss_before", "loss_after", "norms")
SETS = ["model.tied=false", "stage.0.share=none", "run.norms_every=5"]
# By data ranks: what is set besides for a pipeline of 2.
PIPELINES = {
    1: ["stage.1.parallel.schedule=zero-bubble"],
    2: ["stage.0.parallel.schedule=interleaved", "stage.1.parallel.zero=1"],
}


def train(delink, recipe, corpus, run, ranks, sets):
    runs.succeed(["mpirun", "-np", str(ranks), delink, "train", recipe, "--out", run, "--threads", "1",
                  *runs.sets(*SETS, f"data.train={corpus}/train", *sets)])
    return [{key: row[key] for key in ALIKE if key in row} for row in runs.rows(run)]


def main():
    delink, recipe = sys.argv[1:]
    runs.skip_without_mpirun()
    with tempfile.TemporaryDirectory() as folder:
        corpus = runs.build_corpus(delink, folder)
        for data, sets in PIPELINES.items():
            without = train(delink, recipe, corpus, os.path.join(folder, f"{data}"), data, [])
            over = train(delink, recipe, corpus, os.path.join(folder, f"{data}x2"), data * 2,
                         ["stage.0.parallel.pipeline=2"] + sets)
            assert len([row for row in without if "loss" in row]) == 20, without
            assert len(without) == len(over)
            for a, b in zip(without, over):
                assert a == b, f"data {data}: {a} without a pipeline, {b} with it"
    print("20 steps are the same over 2 processes as over 1, and over 4 as over 2")


main()
