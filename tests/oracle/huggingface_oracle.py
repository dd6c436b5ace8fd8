#!/usr/bin/python3
"""Holds conversions against `transformers`, both ways.

  huggingface_oracle.py DELINK DUMP_LOGITS [--seeds N] [VARIANT...]

Models of random numbers of each family go in: the same logits on 200 tokens, the
same first loss of a run that begins with the folder. They go out again: the same
tensors bit for bit, loaded without a warning, and the same greedy tokens. So do
models of the project's own, of either rotary pairing, pseudo and delinked.

It wants `transformers` and torch, which Debian has not: a Python that has them is
named in DELINK_TRANSFORMERS (/path/to/venv/bin/python), and another one with the
oldest version that is supported in DELINK_TRANSFORMERS_OLD, which loads what went
out and saves what goes in as well. Without the first, exit status 77: skipped.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

PYTHON, OLD = "DELINK_TRANSFORMERS", "DELINK_TRANSFORMERS_OLD"
PROMPT, GREEDY = 20, 40

try:
    import numpy as np
    import torch
    import transformers
except ImportError as missing:
    if os.environ.get(PYTHON):
        python = os.environ.pop(PYTHON)
        os.execv(python, [python, "-B", *sys.argv])
    print(f"SKIPPED: {missing}; name a Python that has transformers in {PYTHON}")
    sys.exit(77)

import converting
import huggingface_models as models
import own_models
import safetensors_file
from converting import Program, check


def quiet():
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_warning()
    if hasattr(transformers.logging, "disable_progress_bar"):
        transformers.logging.disable_progress_bar()


class Oldest:
    """The oldest version of `transformers`, in a process of its own."""

    def __init__(self, program):
        self.python, self.program = os.environ.get(OLD), program

    def ask(self, *words):
        out = self.program.path("answer")
        ended = subprocess.run([self.python, "-B", os.path.abspath(__file__), "--serve", out, *words],
                               capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        with np.load(out + ".npz") as answer:
            return dict(answer)

    def check_loads(self, what, folder, tokens, logits):
        """`logits`: of the newest version."""
        if not self.python:
            return
        answer = self.ask("load", folder, json.dumps(list(map(int, tokens))))
        if not answer["known"]:
            return
        assert not len(answer["warnings"]), (what, answer["warnings"])
        check(f"{what}: oldest version's logits", converting.spread(answer["logits"], logits), 1e-5)

    def check_saves(self, name, tokens):
        """A folder as the oldest version writes it goes in."""
        if not self.python:
            return
        folder = self.program.path("old")
        answer = self.ask("save", name, folder)
        if answer["known"]:
            ours = self.program.logits(self.program.convert(folder), tokens)
            check(f"{name}: saved by {answer['version']}: logits", converting.spread(ours, answer["logits"]),
                  converting.LOGITS)


def serve(out, verb, *words):
    """The other end of Oldest.ask."""
    if verb == "load":
        folder, tokens = words
        config = converting.read_json(os.path.join(folder, "config.json"))
        known = models.has(config["architectures"][0], config)
        model, warnings = models.load(folder) if known else (None, [])
        tokens = torch.tensor(json.loads(tokens))
    else:
        name, folder = words
        variant, warnings, tokens = models.VARIANTS[name], [], models.tokens_of()
        known = models.has(variant.architecture, variant.options)
        model = models.make(name) if known else None
        if known:
            models.save(name, model, folder)
    answer = {"known": known, "version": transformers.__version__, "warnings": np.array(warnings, dtype=str)}
    if known:
        answer["logits"] = models.logits(model, tokens)
    np.savez(out + ".npz", **answer)


def check_goes_out(program, what, checkpoint, tokens, oldest, *words):
    """Of a checkpoint: what `transformers` makes of it; the folder."""
    out = program.convert(checkpoint, *words)
    loaded, warnings = models.load(out)
    assert not warnings, (what, warnings)
    ours = program.logits(checkpoint, tokens)
    theirs = models.logits(loaded, torch.tensor(tokens))
    check(f"{what}: logits of what goes out", converting.spread(ours, theirs), converting.LOGITS)
    with models.Listener() as listener:
        greedy = models.greedy(loaded, torch.tensor(tokens[:PROMPT]), GREEDY)
    assert not listener.said, (what, listener.said)
    follows = program.logits(checkpoint, list(tokens[:PROMPT]) + greedy[:-1])[PROMPT - 1:].argmax(-1)
    assert follows.tolist() == greedy, (what, follows, greedy)
    oldest.check_loads(what, out, tokens, theirs)
    return out, greedy


def check_variant(program, name, seed, oldest):
    variant, tokens = models.VARIANTS[name], models.tokens_of(seed)
    model, folder = models.make(name, seed), program.path(name)
    models.save(name, model, folder)
    theirs = models.logits(model, tokens)
    checkpoint = program.convert(folder)
    ours = program.logits(checkpoint, tokens.tolist())
    check(f"{name}: logits", converting.spread(ours, theirs), converting.LOGITS)

    dtype = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}[variant.dtype]
    if variant.dtype == "float32":
        out, greedy = check_goes_out(program, name, checkpoint, tokens.tolist(), oldest)
        end = models.VOCAB - 1  # where the program stops
        until = greedy.index(end) if end in greedy else len(greedy)
        assert program.greedy(checkpoint, tokens[:PROMPT].tolist(), GREEDY) == greedy[:until], name
    else:
        out = program.convert(checkpoint, "--dtype", dtype)
        _, warnings = models.load(out)
        assert not warnings, (name, warnings)
    before, after = (safetensors_file.read_folder(path) for path in (folder, out))
    assert set(before) == set(after), set(before) ^ set(after)
    for key, (kind, array) in before.items():
        assert after[key][0] == kind and np.array_equal(after[key][1], array), (name, key)

    recipe = os.path.join(checkpoint, "step-00000000", "recipe.toml")
    corpus = program.corpus(tokens.tolist(), models.VOCAB)
    targets = np.roll(tokens.numpy(), -1)
    loss = program.first_loss(folder, recipe, corpus, tokens.tolist())
    expected = converting.mean_loss(theirs, targets)
    check(f"{name}: first loss", abs(loss - expected) / expected, converting.LOSS)
    if seed == 1:
        oldest.check_saves(name, tokens.tolist())


def check_own(program, oldest):
    for name in ("gpt2", *own_models.MODELS):
        for pairing in ("half", "interleaved") if name != "gpt2" else ("",):
            sets = [f"model.rope_pairing={pairing}"] if pairing else []
            run = own_models.train(program, name, *sets)
            check_goes_out(program, f"own {name} {pairing}", run, own_models.TOKENS, oldest)
    # A pseudo model, and the one delinked from it.
    for name in ("gpt2", "qwen2"):
        pseudo = own_models.train(program, name, share="all")
        real = program.path("real")
        program.run("delink", pseudo, real, "--share", "none")
        outs = [check_goes_out(program, f"own {name}, {what}", run, own_models.TOKENS, oldest)[0]
                for what, run in (("pseudo", pseudo), ("delinked", real))]
        loaded = [models.logits(models.load(out)[0], torch.tensor(own_models.TOKENS)) for out in outs]
        assert np.array_equal(*loaded), name


def main():
    quiet()
    if sys.argv[1] == "--serve":
        return serve(*sys.argv[2:])
    parser = argparse.ArgumentParser()
    parser.add_argument("delink")
    parser.add_argument("dump_logits")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("variants", nargs="*")
    given = parser.parse_args()
    print("transformers", transformers.__version__, "torch", torch.__version__)
    with tempfile.TemporaryDirectory() as folder:
        program = Program(os.path.abspath(given.delink), os.path.abspath(given.dump_logits), folder)
        oldest = Oldest(program)
        if not oldest.python:
            print(f"no oldest version: {OLD} is not set")
        for seed in range(1, given.seeds + 1):
            for name in given.variants or models.VARIANTS:
                check_variant(program, name, seed, oldest)
        if not given.variants:
            check_own(program, oldest)
    return None


main()
