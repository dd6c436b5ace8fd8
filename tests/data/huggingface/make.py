"""Makes the folders beside it anew: make.py [NAME...]. Needs `transformers` (5.23.0
with torch 2.13.0, of models with experts 5.24.0 with 2.15.0);
tests/oracle/huggingface_fixtures.py reads them without.

Each is a model of random numbers as `transformers` saves it, with logits.npy,
what it says after each of the tokens in expected.json; there, too, the mean loss
of these tokens and what it takes for the likeliest to follow the first of them.
"""
import json
import os
import sys

import numpy as np
import torch
import transformers

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "oracle"))
import huggingface_models as models

PROMPT, GREEDY = 20, 24
NAMES = ("gpt2", "llama3", "mistral_bf16", "qwen2_fp16", "qwen3", "mixtral", "qwen3_moe_dense", "olmoe", "dots1_groups")


def main():
    torch.set_num_threads(1)
    transformers.logging.disable_progress_bar()
    for name in sys.argv[1:] or NAMES:
        folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), name)
        model, tokens = models.make(name), models.tokens_of()
        os.makedirs(folder, exist_ok=True)
        models.save(name, model, folder)
        np.save(os.path.join(folder, "logits.npy"), models.logits(model, tokens))
        with open(os.path.join(folder, "expected.json"), "w", encoding="utf-8") as file:
            json.dump({
                "transformers": transformers.__version__,
                "tokens": tokens.tolist(),
                "loss": models.loss(model, tokens),
                "prompt": PROMPT,
                "greedy": models.greedy(model, tokens[:PROMPT], GREEDY),
            }, file)
            file.write("\n")


main()
