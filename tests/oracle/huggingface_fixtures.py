#!/usr/bin/python3
"""Holds conversions against `transformers` where it is not installed: the models
of tests/data/huggingface, with the logits that it gave.

  huggingface_fixtures.py DELINK DUMP_LOGITS

Each model goes in by `delink convert`: its logits, what it generates, and the
first loss of a run that begins with the folder. Then it goes out again: the same
tensors, bit for bit, and the same config. Exit status 77: skipped, NumPy is not
installed.
"""
import os
import sys
import tempfile

try:
    import numpy as np
except ImportError as missing:
    print(f"SKIPPED: {missing}; install python3-numpy")
    sys.exit(77)

import converting
import safetensors_file
from converting import Fixture, Program, check

# Keys that say the same in two ways, or nothing of the model.
SAID_OTHERWISE = {"dtype", "torch_dtype", "transformers_version", "rope_parameters", "rope_scaling", "layer_types",
                  "max_window_layers", "n_inner", "attn_pdrop"}
LAYOUTS = {"data": [], "ZeRO": ["stage.0.parallel.zero=1"], "pipeline": ["stage.0.parallel.pipeline=2"]}


def check_round_trip(program, fixture, checkpoint):
    kinds = {kind for kind, _ in fixture.tensors.values()}
    [kind] = kinds
    out = program.convert(checkpoint, "--dtype", {"F32": "fp32", "BF16": "bf16", "F16": "fp16"}[kind])
    back = safetensors_file.read_folder(out)
    assert set(back) == set(fixture.tensors), set(back) ^ set(fixture.tensors)
    for name, (kind, array) in fixture.tensors.items():
        assert back[name][0] == kind and np.array_equal(back[name][1], array), name
    config = converting.read_json(os.path.join(out, "config.json"))
    for key, value in fixture.config.items():
        # dim / heads, where it is null.
        if key in config and key not in SAID_OTHERWISE and (key, value) != ("head_dim", None):
            assert config[key] == value, (key, config[key], value)
    for key in ("model_type", "architectures", "vocab_size", "tie_word_embeddings"):
        assert key in config, key
    # Again in, in whatever type: the same weights.
    again = program.convert(out)
    assert np.array_equal(program.logits(again, fixture.prompt), program.logits(checkpoint, fixture.prompt))
    if kind != "F32":
        wide = safetensors_file.read_folder(program.convert(checkpoint))
        for name, (narrow, array) in fixture.tensors.items():
            assert np.array_equal(wide[name][1], safetensors_file.float32(narrow, array)), name


def check_model(program, fixture):
    checkpoint = program.convert(fixture.folder)
    check(f"{fixture.name}: logits",
          converting.spread(program.logits(checkpoint, fixture.tokens), fixture.logits), converting.LOGITS)
    assert program.greedy(checkpoint, fixture.prompt, len(fixture.greedy)) == fixture.greedy
    check_round_trip(program, fixture, checkpoint)


def check_first_loss(program, fixture, layouts):
    """Also over several ranks, each of which reads what it holds."""
    targets = np.roll(fixture.tokens, -1)
    theirs = converting.mean_loss(fixture.logits, targets)
    # The loss of `transformers` is of all targets but that after the end.
    assert abs(converting.mean_loss(fixture.logits[:-1], targets[:-1]) - fixture.loss) < 1e-5
    recipe = os.path.join(program.convert(fixture.folder), "step-00000000", "recipe.toml")
    corpus = program.corpus(fixture.tokens, fixture.logits.shape[1])
    ours = program.first_loss(fixture.folder, recipe, corpus, fixture.tokens)
    check(f"{fixture.name}: first loss", abs(ours - theirs) / theirs, converting.LOSS)
    for name, sets in layouts.items():
        several = program.first_loss(fixture.folder, recipe, corpus, fixture.tokens, *sets, ranks=2)
        check(f"{fixture.name}: first loss, {name}", abs(several - theirs) / theirs, converting.LOSS)


def check_that_it_sees(program):
    """Two heads of keys the other way round, which a wrong permutation makes."""
    fixture = Fixture("llama3")
    tensors = dict(fixture.tensors)
    name = "model.layers.0.self_attn.k_proj.weight"
    kind, keys = tensors[name]
    tensors[name] = (kind, np.roll(keys, len(keys) // 2, axis=0))
    wrong = program.convert(fixture.rewritten(program.path("scrambled"), tensors=tensors))
    assert converting.spread(program.logits(wrong, fixture.tokens), fixture.logits) > 100 * converting.LOGITS


def main():
    with tempfile.TemporaryDirectory() as folder:
        program = Program(*sys.argv[1:], folder)
        for name in converting.names():
            fixture = Fixture(name)
            check_model(program, fixture)
            # Tied and untied, a vocabulary that no number of ranks divides.
            layouts = LAYOUTS if name in ("gpt2", "llama3") and converting.mpirun() else {}
            check_first_loss(program, fixture, layouts)
        check_that_it_sees(program)


main()
