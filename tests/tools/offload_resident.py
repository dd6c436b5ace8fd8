#!/usr/bin/python3
"""What a run with planes at home on the host has resident, beside its plan.

  offload_resident.py DELINK RECIPE [--dim N]

A model whose weights, gradients and state take some 200 MiB takes a few steps
with different homes, over a switch and with a checkpoint. The largest resident
set of the process, as it says itself, must be within 1.05 of what `delink plan`
says of device and host, and what it says of the program, and within budgets and
that, where there are some. It would not be if only the weights were held twice.
"""
import argparse
import json
import os
import tempfile

import runs

MIB = 1 << 20
ALL = 'weights="host",gradients="host",state="host"'
BUDGETS = 100, 180  # MiB
BUDGETED = 'device="{}MiB",host="{}MiB"'.format(*BUDGETS)
# Of the pseudo and of the real stage; the real one has all planes.
HOMES = (("", ""), ("", ALL), ("", 'resident=0.0,update="host"'), ("", BUDGETED), (ALL, 'update="host"'))


def words(corpus, dim, homes):
    pairs = [f"model.dim={dim}", f"model.ffn={4 * dim}", "model.layers=8", f"data.train={corpus}/train",
             "stage.0.until.steps=2", "schedule.steps=4", "run.micro_batch=4", "run.validate_every=0",
             "run.checkpoint_every=0"]
    pairs += [f"stage.{stage}.offload={{{said}}}" for stage, said in enumerate(homes)]
    return runs.sets(*pairs)


def planned(delink, recipe, settings):
    """The plan, and the most that it says of device and host at a time."""
    plan = json.loads(runs.succeed([delink, "plan", recipe, "--json", *settings]))
    stages = [stage["bytes"] for stage in plan["stages"]]
    hosts = [stage.get("host", 0) for stage in stages]
    tiers = [stage["total"] + host for stage, host in zip(stages, hosts)]
    # The switch has both stages' planes.
    tiers.append(plan["stages"][1]["switch_bytes"] + sum(hosts))
    return plan, max(tiers)


def peak(delink, recipe, settings, out):
    runs.succeed([delink, "train", recipe, *settings, "--out", out, "--threads", "1"])
    return max(row.get("peak_memory", 0) for row in runs.rows(out))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("delink")
    parser.add_argument("recipe")
    parser.add_argument("--dim", type=int, default=320)
    arguments = parser.parse_args()
    delink, recipe = map(os.path.abspath, (arguments.delink, arguments.recipe))
    with tempfile.TemporaryDirectory() as folder:
        corpus = runs.build_corpus(delink, folder)
        program = 0
        for number, homes in reversed(list(enumerate(HOMES))):
            settings = words(corpus, arguments.dim, homes)
            plan, tiers = planned(delink, recipe, settings)
            program = plan.get("program_bytes", program)  # the resident run, which is last, does not say
            most = peak(delink, recipe, settings, os.path.join(folder, f"run{number}"))
            text = (f"{homes}: {most / MIB:.1f} MiB resident at most, planned {tiers / MIB:.1f} and the program's "
                    f"{program / MIB:.1f}")
            assert most <= 1.05 * tiers + program, text
            if BUDGETED in homes:
                assert most <= sum(BUDGETS) * MIB + program, f"{text}: more than budgets"
            weights = plan["stages"][1]["unique_parameters"] * 4
            assert most + weights > 1.05 * tiers + program, f"{text}: would not show what is held twice"
            print(text)


if __name__ == "__main__":
    main()
