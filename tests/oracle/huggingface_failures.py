#!/usr/bin/python3
"""What converters of others got wrong, one function each.

  huggingface_failures.py DELINK DUMP_LOGITS

Exit status 77: skipped, NumPy is not installed. What needs `transformers` itself
is in huggingface_oracle.py, tables of rotary positions in
tests/layers/ops/rotary_test.cc, updates below a unit of bf16 in
tests/recipes/run/precision_test.cc.
"""
import functools
import os
import sys
import tempfile

try:
    import numpy as np
except ImportError as missing:
    print(f"SKIPPED: {missing}; install python3-numpy")
    sys.exit(77)

import converting
import own_models
import safetensors_file
from converting import Program, check

EVERY = 8  # after so many tokens logits are compared; huggingface_fixtures.py has all
Fixture = functools.partial(converting.Fixture, every=EVERY)
HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"


def differ(program, checkpoint, other, tokens):
    return converting.spread(program.logits(checkpoint, tokens), program.logits(other, tokens))


def both_rotary_pairings(program):
    """Round trips that pass while outputs differ, and a flag that is ignored:
    ours go out with either pairing and come in again with theirs."""
    for name in own_models.MODELS:
        weights = {}
        for pairing in ("half", "interleaved"):
            run = own_models.train(program, name, f"model.rope_pairing={pairing}")
            out = program.convert(run)
            check(f"{name}, {pairing}: logits after there and back",
                  differ(program, program.convert(out), run, own_models.TOKENS), 1e-5)
            weights[pairing] = safetensors_file.read_folder(out)
        # The flag says something: what it is of is not what the other is of.
        queries = "model.layers.0.self_attn.q_proj.weight"
        assert not np.allclose(weights["half"][queries][1], weights["interleaved"][queries][1], atol=1e-2), name


def padded_vocabulary(program):
    """Rows that pad a vocabulary go out and in, and are not drawn."""
    for tied in ("true", "false"):
        run = own_models.train(program, "llama", "model.vocab=307", f"model.tied={tied}")
        out = program.convert(run)
        assert converting.read_json(os.path.join(out, "config.json"))["vocab_size"] == 307
        assert safetensors_file.read_folder(out)[EMBEDDING][1].shape[0] == 307
        again = program.convert(out)
        check(f"padded, tied {tied}: logits", differ(program, again, run, own_models.TOKENS), 1e-5)
        words = ["--prompt", "the making", "--tokens", "60", "--temperature", "3", "--seed", "5"]
        assert program.run("generate", again, *words) == program.run("generate", run, *words)


def tied_and_untied_heads(program):
    """A random head where a flag is missing: each combination of the flag and of
    what is stored."""
    for name, default in (("qwen2_fp16", False), ("llama3", False), ("gpt2", True)):
        fixture = Fixture(name)
        embedding = "transformer.wte.weight" if name == "gpt2" else EMBEDDING
        tied = fixture.config["tie_word_embeddings"]
        without = {key: value for key, value in fixture.tensors.items() if key != HEAD}
        same = without | {HEAD: without[embedding]}
        kind, array = without[embedding]
        other = without | {HEAD: (kind, np.ascontiguousarray(array[::-1]))}
        right = fixture.logits if tied else None
        for flag in (True, False, None):
            for stored, tensors in (("no", without), ("the same", same), ("another", other)):
                folder = fixture.rewritten(program.path("model"), {"tie_word_embeddings": flag}, tensors)
                what = f"{name}: flag {flag}, {stored} head stored"
                ties = default if flag is None else flag
                if (ties and stored == "another") or (not ties and stored == "no"):
                    said = program.refused("convert", folder, program.path("refused"))
                    assert HEAD in said, (what, said)
                    continue
                checkpoint = program.convert(folder)
                if right is not None and stored != "another":
                    check(what, converting.spread(program.logits(checkpoint, fixture.tokens), right), converting.LOGITS)
                out = program.convert(checkpoint)
                assert converting.read_json(os.path.join(out, "config.json"))["tie_word_embeddings"] is ties, what
                assert (HEAD in safetensors_file.read_folder(out)) is not ties, what


def strict_names(program):
    """A tensor too few, too many, of another shape: named, and all of them."""
    fixture = Fixture("qwen3")
    gone, long = "model.layers.1.self_attn.q_norm.weight", "model.layers.0.mlp.up_proj.weight"
    tensors = {key: value for key, value in fixture.tensors.items() if key != gone}
    kind, array = tensors[long]
    tensors[long] = (kind, np.concatenate([array, array]))
    tensors["model.layers.2.mlp.up_proj.weight"] = (kind, array)
    said = program.refused("convert", fixture.rewritten(program.path("model"), tensors=tensors), program.path("refused"))
    for name in (gone, long, "model.layers.2.mlp.up_proj.weight"):
        assert name in said, (name, said)


def every_expert(program):
    """All experts dropped at import, with success reported (Megatron-LM#5844), or a
    bias left at zero (Megatron-Bridge#4657): what is missing, too much or of
    another shape is said by name, and the bias counts."""
    fixture = Fixture("dots1_groups")
    one = "model.layers.2.mlp.experts.7.down_proj.weight"
    kind, array = fixture.tensors[one]
    for what, change in (("gone", {one: None}),
                         ("one more", {one.replace(".7.", ".8."): (kind, array)}),
                         ("long", {one: (kind, np.concatenate([array, array]))})):
        tensors = {name: tensor for name, tensor in (fixture.tensors | change).items() if tensor is not None}
        folder = fixture.rewritten(program.path(what), tensors=tensors)
        said = program.refused("convert", folder, program.path("refused"))
        for name, tensor in change.items():
            assert name in said, (what, said)
    bias = "model.layers.1.mlp.gate.e_score_correction_bias"
    kind, array = fixture.tensors[bias]
    other = fixture.rewritten(program.path("unbiased"), tensors=fixture.tensors | {bias: (kind, 0 * array)})
    assert differ(program, program.convert(other), program.convert(fixture.folder), fixture.tokens) > 0.01


def old_and_new_rope(program):
    """Rotary parameters under keys that some versions ignore: in either form they
    are read, out they go in both."""
    fixture = Fixture("llama3")
    new = fixture.config["rope_parameters"]
    theta = {"rope_theta": new["rope_theta"]}
    scaling = {key: value for key, value in new.items() if key != "rope_theta"}
    older = {("type" if key == "rope_type" else key): value for key, value in scaling.items()}
    nothing = {"rope_parameters": None}
    for name, keys in (("old", nothing | theta | {"rope_scaling": scaling}),
                       ("older", nothing | theta | {"rope_scaling": older}),
                       ("both", theta | {"rope_scaling": scaling})):
        folder = fixture.rewritten(program.path(name), keys)
        logits = program.logits(program.convert(folder), fixture.tokens)
        check(f"rope, {name} keys: logits", converting.spread(logits, fixture.logits), converting.LOGITS)
    # Neither form is passed over: without one the prompt is another's.
    plain = fixture.rewritten(program.path("plain"), nothing | theta)
    logits = program.logits(program.convert(plain), fixture.tokens)
    assert converting.spread(logits, fixture.logits) > 100 * converting.LOGITS
    # Two models in one config.
    two = fixture.rewritten(program.path("two"), {"rope_theta": 10000.0, "rope_scaling": scaling})
    assert "rope" in program.refused("convert", two, program.path("refused"))
    config = converting.read_json(os.path.join(program.convert(program.convert(fixture.folder)), "config.json"))
    assert config["rope_theta"] == new["rope_theta"] and config["rope_scaling"] == scaling, config
    assert config["rope_parameters"] == new, config


def names_of_old_gpt2(program):
    """As openai-community has it: without a prefix, with masks that are no
    weights."""
    fixture = Fixture("gpt2")
    tensors = {key.removeprefix("transformer."): value for key, value in fixture.tensors.items()}
    for i in range(fixture.config["n_layer"]):
        tensors[f"h.{i}.attn.bias"] = ("F32", np.tril(np.ones((1, 1, 256, 256), np.float32)))
        tensors[f"h.{i}.attn.masked_bias"] = ("F32", np.float32(-1e4).reshape(()))
    checkpoint = program.convert(fixture.rewritten(program.path("old"), tensors=tensors))
    check("old GPT-2: logits", converting.spread(program.logits(checkpoint, fixture.tokens), fixture.logits),
          converting.LOGITS)


def main():
    with tempfile.TemporaryDirectory() as folder:
        program = Program(*sys.argv[1:], folder, EVERY)
        for test in (both_rotary_pairings, padded_vocabulary, tied_and_untied_heads, strict_names, every_expert,
                     old_and_new_rope,
                     names_of_old_gpt2):
            print(f"-- {test.__name__}")
            test(program)


main()
