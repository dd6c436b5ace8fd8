"""Small models of the project's own, trained for a step or two by the program:
what goes out in the tests of conversions.
"""


TEXT = "Of the making of many tests there is no end. " * 400
# Bytes, as their corpus has them.
TOKENS = [int(byte) for byte in TEXT[3:203].encode()]

RECIPE = """
[model]
kind = "{kind}"
layers = 4
dim = 24
{model}
init_std = 0.3

[data]
train = "{corpus}/train"
seq = 64
batch = 2

[optimizer]
kind = "adamw"
lr = 0.02

[schedule]
kind = "constant"
warmup = 0
steps = 4

[[stage]]
name = "pseudo"
share = "{share}"

[run]
device = "cpu"
"""
# 6 heads of queries and 2 of keys.
ROTARY = "heads = 6\nkv_heads = 2\nffn = 40\nmax_seq = 256\n"
MODELS = {
    "llama": ROTARY + 'rope_scaling = { kind = "llama3", factor = 8.0, original_max_seq = 32 }',
    "mistral": ROTARY + "head_dim = 8\nwindow = 16",
    "qwen2": ROTARY + "qkv_bias = true\ntied = true",
    "qwen3": ROTARY + "head_dim = 8\nqk_norm = true",
    "mixtral": ROTARY + "experts = 5\nrouter = { normalise = true }",
    "olmoe": "heads = 4\nffn = 40\nmax_seq = 256\nqk_norm = true\nqk_norm_over = \"all\"\nexperts = 5",
    "dots1": ROTARY + "qk_norm = true\nexperts = 8\nexpert_ffn = 12\nshared_experts = 1\ndense_layers = 1\n"
             'router = { score = "sigmoid", scale = 2.5, bias_rate = 0.05, groups = 4, top_groups = 2 }',
}
GPT2 = "heads = 3\nmax_seq = 256"


def train(program, name, *sets, share="none"):
    """A run folder whose every weight counts: norms and biases have moved, too."""
    if not hasattr(program, "bytes"):
        text, program.bytes = program.path("text.txt"), program.path("corpus")
        with open(text, "w", encoding="utf-8") as file:
            file.write(TEXT)
        program.run("data", "build", "--bytes", "--out", program.bytes, text)
    recipe, out = program.path("recipe.toml"), program.path("run")
    kind = "gpt" if name == "gpt2" else "moe" if "experts" in MODELS[name] else "llama"
    with open(recipe, "w", encoding="utf-8") as file:
        file.write(RECIPE.format(kind=kind, model=MODELS.get(name, GPT2), corpus=program.bytes, share=share))
    program.run("train", recipe, "--out", out, *(word for s in sets for word in ("--set", s)))
    return out
