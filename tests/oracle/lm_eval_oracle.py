#!/usr/bin/python3
"""Holds the adapter tools/lm_eval against lm-evaluation-harness's own `hf` models.

  lm_eval_oracle.py DELINK DUMP_LOGITS

A model of the project's own goes out to Hugging Face, one of `transformers` comes
in, and the harness asks both sides the same local tasks: the same accuracies, each
log-likelihood to 1e-4, the same greedy texts. DELINK_TRANSFORMERS names a Python
that has lm-eval and transformers (huggingface_oracle.py). Exit status 77: skipped.
"""
import importlib
import json
import os
import random
import re
import sys
import tempfile

PYTHON = "DELINK_TRANSFORMERS"
os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1")

try:
    import lm_eval
    import lm_eval.models  # registers `hf`
    import torch
    import transformers
    from lm_eval.tasks import TaskManager
except ImportError as missing:
    if os.environ.get(PYTHON):
        python = os.environ.pop(PYTHON)
        os.execv(python, [python, "-B", *sys.argv])
    print(f"SKIPPED: {missing}; name a Python that has lm-eval in {PYTHON}")
    sys.exit(77)

import huggingface_models as models
import own_models
from converting import Program

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tools", "lm_eval"))
TOKENIZER = os.path.join(ROOT, "tests", "data", "tokenizers", "gpt2.json")
WORDS = "of the making many tests there is no end and few that fail".split()
HEADER = """
dataset_path: json
dataset_kwargs:
  data_files:
    test: {folder}/{name}.jsonl
test_split: test
"""
TASKS = {
    "choices": """
task: delink_choices
output_type: multiple_choice
doc_to_text: "{{question}}"
doc_to_choice: "{{options}}"
doc_to_target: "{{answer}}"
metric_list:
  - metric: acc
  - metric: acc_norm
""",
    "texts": """
task: delink_texts
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{text}}"
metric_list:
  - metric: word_perplexity
  - metric: bits_per_byte
""",
    "follows": """
task: delink_follows
output_type: generate_until
doc_to_text: "{{question}}"
doc_to_target: "{{options[0]}}"
generation_kwargs:
  until: ["\\n"]
  max_gen_toks: 12
  do_sample: false
metric_list:
  - metric: exact_match
""",
}


def write_tasks(folder):
    draw = random.Random(1)

    def words(count):
        return " ".join(draw.choices(WORDS, k=count))

    questions = [{"question": words(draw.randint(1, 9)).capitalize() + ":", "answer": draw.randrange(4),
                  "options": [words(draw.randint(1, 5)) for _ in range(4)]} for _ in range(40)]
    # The last is longer than the context of the models.
    texts = [{"text": words(draw.randint(5, 40))} for _ in range(7)] + [{"text": words(160)}]
    for name, rows in (("choices", questions), ("texts", texts), ("follows", questions[:8])):
        with open(os.path.join(folder, name + ".jsonl"), "w", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
        with open(os.path.join(folder, name + ".yaml"), "w", encoding="utf-8") as file:
            file.write(TASKS[name] + HEADER.format(folder=folder, name=name))


def ask(model, arguments, folder):
    """Results by task and metric; each answer by task."""
    told = lm_eval.simple_evaluate(
        model=model, model_args=arguments, tasks=["delink_" + name for name in TASKS], batch_size=1, device="cpu",
        task_manager=TaskManager(include_path=folder, include_defaults=False), bootstrap_iters=0)
    answers = {task: [sample["resps"] for sample in sorted(samples, key=lambda s: s["doc_id"])]
               for task, samples in told["samples"].items()}
    return told["results"], answers


def compare(what, delink, huggingface):
    (results, answers), (others, expected) = delink, huggingface
    for metric in ("acc,none", "acc_norm,none"):
        ours, theirs = (r["delink_choices"][metric] for r in (results, others))
        print(f"{what}: {metric} {ours} {theirs}")
        assert ours == theirs, (what, metric, ours, theirs)
    pairs = [(a, b) for ours, theirs in zip(answers["delink_choices"], expected["delink_choices"])
             for [a], [b] in zip(ours, theirs)]
    assert len(pairs) == 160
    worst = max(abs(a[0] - b[0]) / abs(b[0]) for a, b in pairs)
    print(f"{what}: log-likelihoods differ by {worst:.3g}, {sum(b[1] for _, b in pairs)} are greedy")
    assert worst < 1e-4 and all(bool(a[1]) == bool(b[1]) for a, b in pairs), what
    for metric in ("word_perplexity,none", "bits_per_byte,none"):
        ours, theirs = (r["delink_texts"][metric] for r in (results, others))
        assert abs(ours - theirs) < 1e-4 * theirs, (what, metric, ours, theirs)
    # Bytes that are no text are shown by a mark, the one program by more of them.
    ours, theirs = ([re.sub("\ufffd+", "\ufffd", text) for [[text]] in told["delink_follows"]]
                    for told in (answers, expected))
    assert ours == theirs, (what, ours, theirs)


def published(folder):
    """A model with GPT-2's form of tokenizer."""
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=TOKENIZER)
    tokenizer.eos_token = tokenizer.bos_token = "<|endoftext|>"
    variant = models.VARIANTS["llama2"]
    models.VARIANTS["with_text"] = models.Variant(variant.architecture, variant.options | {
        "vocab_size": len(tokenizer), "max_position_embeddings": 64, "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id})
    models.save("with_text", models.make("with_text"), folder)
    tokenizer.save_pretrained(folder)
    return folder


def main():
    importlib.import_module("delink_lm")  # registers the model
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HF_HOME"] = os.path.join(folder, "cache")
        program = Program(*map(os.path.abspath, sys.argv[1:]), folder)
        tasks = program.path("tasks")
        os.makedirs(tasks)
        write_tasks(tasks)
        theirs = published(program.path("published"))
        own = own_models.train(program, "qwen3", "model.max_seq=64")
        for what, ours, out in (("own", own, program.convert(own)), ("published", program.convert(theirs), theirs)):
            compare(what, ask("delink", f"checkpoint={ours},program={program.delink}", tasks),
                    ask("hf", f"pretrained={out},dtype=float32,max_length=64", tasks))


main()
