#!/usr/bin/python3
"""Holds runs that grow against plain torch in float64.

  growth_oracle.py DELINK [--runs N] [--seed S]

Trains small models by the program in float32, whose first stage visits a few
blocks and whose later ones more, and repeats each from the weights that the
program begins with: losses and gradient norms of all steps, losses on both sides
of the switches, and at the end all weights and counts of updates. Runs are drawn
from the seed so that every two choices that go together meet in one. What begins
fresh is looked at in a checkpoint that was grown by hand: it must be what a run
of all blocks begins with. At last each run is repeated wrongly in some ways,
which must be seen. Exit status 77: skipped, something is not installed.
"""
import argparse
import copy
import functools
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile

try:
    import h5py
    import numpy as np
    import torch
except ImportError as missing:
    print(f"SKIPPED: {missing}; install python3-torch and python3-h5py")
    sys.exit(77)

from growth_replay import BETAS, CLIP, DECAY, EPS, LAYERS, LR, MOMENTUM, MUON_LR, PARTS, RESIDUAL, WRONG, Replay, Stage
from torch_models import Gpt, Llama, tensors

SEQ, BATCH, STEPS = 24, 8, 12
# float32 against float64, relative, over all steps.
LOSS, NORM = 1e-6, 1e-5
# AdamW turns rounding noise of tiny gradients into whole steps.
MEDIAN, TAIL = 0.001, 0.01  # of the learning rate; median and 99 %
# What is done wrongly differs by so much more than LOSS, or, both in float64, by
# rounding alone.
SEEN, SAME = 3, 1e-11
FULL = bool(os.environ.get("DELINK_FULL_TESTS"))

AXES = {
    "model": ("gpt tied", "gpt untied", "llama tied", "llama untied"),
    "optimizer": ("adamw", "muon"),
    "share": ("none", "all", "groups", "parts"),
    "depth": (1, 2, 3, 5),
    "visit": ("first", "even"),
    "switches": (1, 2),
    "links": ("cut", "some stay"),
    "grow": ("copy", "cycle", "random", "zero"),
    "state": ("scale", "copy", "reset"),
}
# Of each share what it is in the first stage, and with fewer links.
SHARES = {
    "none": ("none", None),
    "all": ("all", "groups:4"),
    "groups": ("groups:2", "groups:4"),
    "parts": ({"attention": "all", "mlp": "cycle:2"}, {"attention": "groups:2", "mlp": "cycle:4"}),
}
SIZES = {"layers": LAYERS, "dim": 16, "heads": 4, "ffn": 40, "norm_eps": 1e-5, "init_std": 0.1}
MODELS = {"gpt": {"kv_heads": 4}, "llama": {"kv_heads": 2, "head_dim": 6, "rope_theta": 100.0, "qk_norm": True, "qkv_bias": True, "window": 20, "z_loss": 0.01}}
# What torch_models has other names for.
OPTIONS = {"variant": "layer_norm", "interleaved": 0, "scaling": "none", "factor": 1.0}


def stages_of(row):
    first, fewer = SHARES[row["share"]]
    left = "none" if row["links"] == "cut" else fewer
    grow = {"visit": row["visit"], "grow": row["grow"], "state": row["state"], "steps": STEPS // (row["switches"] + 1)}
    depths, shares = [row["depth"], LAYERS], [first, left]
    if row["switches"] == 2:
        depths, shares = [row["depth"], 2 * row["depth"], LAYERS], [first, left, "none"]
    return [Stage(share, depth, **grow) for share, depth in zip(shares, depths)]


def new_sets(old, new, part):
    """Blocks that share, none of which was visited before."""
    return [blocks for blocks in new.sets(part) if not set(blocks) & set(old.visited())]


def allowed(row):
    """Whether the program takes such a run, and something of it begins as `grow`
    says. Where no state may change there is but one policy."""
    # A block that begins with zeros shares with none that was there before.
    if row["links"] != "cut" and (row["share"] == "none" or row["grow"] == "zero"):
        return False
    if row["share"] == "none" and row["grow"] in ("random", "zero") and row["state"] != "scale":
        return False
    stages = stages_of(row)
    if any(a.depth >= b.depth or not set(a.visited()) <= set(b.visited()) for a, b in itertools.pairwise(stages)):
        return False
    if not any(new_sets(a, b, part) for a, b in itertools.pairwise(stages) for part in PARTS):
        return False
    sets = [({s.set_of(part, b) for b in range(LAYERS)}, {s.set_of(part, b) for b in s.visited()}) for s in stages for part in PARTS]
    return all(len(every) == LAYERS or every == visited for every, visited in sets)


def draw(count, seed):
    """At least `count` runs in which every two values meet that may."""
    rng = random.Random(seed)
    rows = [row for values in itertools.product(*AXES.values()) if allowed(row := dict(zip(AXES, values)))]
    rng.shuffle(rows)
    pairs = [frozenset(itertools.combinations(row.items(), 2)) for row in rows]
    missing, drawn = set().union(*pairs), []
    while missing or len(drawn) < count:
        best = max(range(len(rows)), key=lambda i: len(missing & pairs[i])) if missing else rng.randrange(len(rows))
        drawn.append(rows[best])
        missing -= pairs[best]
    return drawn


def toml(value):
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {toml(v)}" for key, v in value.items()) + "}"
    return json.dumps(value)


def recipe(corpus, row, stages):
    kind, tied = row["model"].split()
    muon = row["optimizer"] == "muon"
    sections = {
        "[model]": {"kind": kind, "tied": tied == "tied", **SIZES, **MODELS[kind]},
        "[data]": {"train": f"{corpus}/train", "seq": SEQ, "batch": BATCH, "validation_batches": 1, "shuffle": False},
        "[optimizer]": {"kind": row["optimizer"], "lr": MUON_LR if muon else LR, "betas": list(BETAS), "eps": EPS, "decay": DECAY, "clip": CLIP,
                        **({"adamw_lr": LR, "momentum": MOMENTUM} if muon else {})},
        "[schedule]": {"kind": "constant", "steps": STEPS},
        "[run]": {"device": "cpu", "threads": 1, "micro_batch": 2, "log_every": 1, "validate_every": 0, "checkpoint_every": 0, "keep": 0},
    }
    text = "".join(name + "\n" + "".join(f"{key} = {toml(value)}\n" for key, value in keys.items()) for name, keys in sections.items())
    for i, stage in enumerate(stages):
        text += f"[[stage]]\nshare = {toml(stage.share)}\ndepth = {stage.depth}\nvisit = {toml(stage.visit)}\n"
        if i > 0:
            text += f"grow = {toml(stage.grow)}\nstate = {toml(stage.state)}\n"
        if i + 1 < len(stages):
            text += f"until = {{steps = {(i + 1) * stage.steps}}}\n"
    return text


class Program:
    def __init__(self, delink, folder):
        self.delink, self.folder = delink, folder
        text, self.corpus = os.path.join(folder, "text.txt"), os.path.join(folder, "corpus")
        rng = random.Random(1)
        words = ["the ", "slab ", "of ", "a ", "layer ", "holds ", "its ", "weights ", "and ", "moves. "]
        with open(text, "w", encoding="utf-8") as file:
            file.write("".join(rng.choice(words) for _ in range(2000)))
        self.call("data", "build", "--bytes", "--validation", "0.1", "--out", self.corpus, text)

    def call(self, *words):
        ended = subprocess.run([self.delink, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
        assert ended.returncode == 0, f"delink {' '.join(words)}\n{ended.stdout}"

    def train(self, name, row, stages, *more):
        out, path = (os.path.join(self.folder, name + end) for end in ("", ".toml"))
        with open(path, "w", encoding="utf-8") as file:
            file.write(recipe(self.corpus, row, stages))
        self.call("train", path, "--out", out, *more)
        return out

    @functools.cache
    def start(self, model):
        """What a run of all blocks, none shared, begins with: nothing has moved
        after a step of rate 0."""
        row = {"model": model, "optimizer": "adamw"}
        out = self.train("start " + model, row, [Stage("none")], "--until-step", "1", "--set", "optimizer.lr=0.0")
        with h5py.File(checkpoint(os.path.join(out, "checkpoints"), 1)) as file:
            return tensors(file["model"])

    @functools.cache
    def tokens(self, side):
        with h5py.File(os.path.join(self.corpus, side, "index.h5")) as file:
            return torch.tensor(np.array(file["tokens"], dtype=np.int64))

    def batch(self, side, index):
        inputs = self.tokens(side)[index * BATCH * SEQ:][: BATCH * SEQ + 1]
        return inputs[:-1].view(BATCH, SEQ), inputs[1:].view(BATCH, SEQ)


def checkpoint(folder, step):
    return os.path.join(folder, f"step-{step:08}", "index.h5")


def told(out):
    """Of the steps loss and gradient norm, of the switches the loss before and after."""
    with open(os.path.join(out, "metrics.jsonl"), encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    return ([(row["loss"], row["grad_norm"]) for row in rows if "grad_norm" in row],
            [(row["loss_before"], row["loss_after"]) for row in rows if row.get("event") == "delink"])


def replay(replayed, program, stages, begun=(), enough=lambda *told: False):
    """The same of `replayed`, which goes through these stages, after the steps
    that it has begun with, until what it has told is enough."""
    steps, switches = list(begun), []
    for stage in stages:
        before = replayed.loss(*program.batch("validation", 0)) if steps else None
        replayed.enter(stage)
        if steps:
            switches.append((before, replayed.loss(*program.batch("validation", 0))))
        for _ in range(stage.steps):
            if enough(steps, switches):
                return steps, switches
            steps.append(replayed.train(*program.batch("train", len(steps))))
    return steps, switches


def new_replay(program, row):
    model = row["model"].split()[0]
    options = {**SIZES, **MODELS[model], **OPTIONS}
    return Replay({"gpt": Gpt, "llama": Llama}[model], options, program.start(row["model"]), row["optimizer"] == "muon")


def errors(ours, theirs):
    """The largest, relative, of the losses of steps, of gradient norms, and of
    the losses at switches, as far as theirs go."""
    error, at_switches = (np.abs(np.array(a[:len(b)]) / b - 1).max(axis=0) for a, b in zip(ours, theirs))
    return error[0], error[1], at_switches.max()


def check_end(out, replayed):
    """Weights and counts of updates; gives their differences, median and 99 %."""
    differences = []
    with h5py.File(checkpoint(os.path.join(out, "checkpoints"), STEPS)) as file:
        for slab, prefix in [(replayed.top, "")] + [(slab, f"blocks/{block}/") for (_, block), slab in replayed.slabs.items()]:
            for name, w in slab.w.items():
                ours = torch.tensor(np.array(file["model/" + prefix + name]), dtype=torch.float64)
                differences.append((ours - w.detach()).abs().flatten() / LR)
                updates = file["optimizer/" + prefix + name].attrs["updates"]
                assert updates == slab.updates, f"{prefix}{name} has {updates} updates, not {slab.updates}"
    differences = torch.cat(differences)
    return float(differences.quantile(0.5)), float(differences.quantile(0.99))


def check_fresh(program, out, row, stages):
    """What begins at each switch, in a checkpoint grown by hand; gives how many
    tensors were looked at."""
    start, seen = program.start(row["model"]), 0
    for i, (old, new) in enumerate(itertools.pairwise(stages)):
        step = (i + 1) * old.steps
        grown = os.path.join(out, f"grown-{i}")
        program.call("delink", os.path.dirname(checkpoint(os.path.join(out, "checkpoints"), step)), grown)
        with h5py.File(checkpoint(grown, step)) as file:
            for part, blocks in ((part, blocks) for part in PARTS for blocks in new_sets(old, new, part)):
                for leader in (name for name in start if name.startswith(f"blocks/{blocks[0]}/") and name.split("/")[2] in PARTS[part]):
                    local = leader.split("/", 2)[2]
                    zero = row["grow"] == "zero" and local.startswith(RESIDUAL)
                    for block in blocks:
                        ours = np.array(file[f"model/blocks/{block}/{local}"])
                        assert np.array_equal(ours, np.zeros_like(ours) if zero else start[leader].numpy()), (block, local)
                        state = file[f"optimizer/blocks/{block}/{local}"]
                        assert state.attrs["updates"] == 0 and not any(np.any(state[s]) for s in state), (block, local)
                        seen += 1
    assert seen > 0
    return seen


def check_run(program, number, row):
    stages = stages_of(row)
    out = program.train(str(number), row, stages)
    replayed = new_replay(program, row)
    begun, _ = replay(replayed, program, stages[:1])
    before = copy.deepcopy(replayed)
    ours, theirs = told(out), replay(replayed, program, stages[1:], begun)
    for a, b, count in zip(ours, theirs, (STEPS, row["switches"])):
        assert len(a) == len(b) == count, (a, b)
    loss, norm, switch = errors(ours, theirs)
    print(f"{number}: {', '.join(map(str, row.values()))}: losses {loss:.2g}, at switches {switch:.2g}, norms {norm:.2g}", end="", flush=True)
    median, tail = check_end(out, replayed)
    fresh = row["grow"] in ("random", "zero")
    print(f", weights {median:.2g} and {tail:.2g}" + (f"; {check_fresh(program, out, row, stages)} fresh" if fresh else ""), flush=True)
    for error, bound in ((loss, LOSS), (switch, LOSS), (norm, NORM), (median, MEDIAN), (tail, TAIL)):
        assert error <= bound, f"{error:.3g} is above {bound}"
    return stages[1:], before, begun, ours, theirs, (loss, switch, norm, median, tail)


def done(wrong, before):
    """A replay that has been right so far, and is wrong from here on."""
    replayed = copy.deepcopy(before)
    replayed.__class__ = wrong
    return replayed


def has(wrong, before, stages):
    """Whether a run has anything that is then done wrongly."""
    idle = done(wrong, before)
    for stage in stages:
        idle.enter(stage)
    return idle.did


def check_wrong(program, wrong, runs):
    """Until it is seen; in a full run to the end, to say by how much."""
    off = []
    for stages, before, begun, ours, right, _ in runs:
        if not has(wrong, before, stages):
            continue

        def enough(*theirs):
            return not FULL and max(errors(ours, theirs)[::2]) > SEEN * LOSS

        theirs = replay(done(wrong, before), program, stages, begun, enough)
        # Where blocks are all copies of one, say, their order does not matter.
        if max(errors(right, theirs)) > SAME:
            loss, _, switch = errors(ours, theirs)
            off.append(max(loss, switch))
    print(f"{wrong.__name__}: losses of {len(off)} runs are off by {min(off):.2g} to {max(off):.2g}", flush=True)
    assert min(off) > SEEN * LOSS, wrong.__name__


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("delink")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        program = Program(options.delink, folder)
        rows = draw(options.runs, options.seed)
        checked = [check_run(program, i, row) for i, row in enumerate(rows)]
        print("largest of {} runs: losses {:.2g}, at switches {:.2g}, norms {:.2g}, weights {:.2g} and {:.2g}".format(
            len(rows), *np.max([figures for *_, figures in checked], axis=0)))
        for wrong in WRONG:
            check_wrong(program, wrong, checked)


main()
