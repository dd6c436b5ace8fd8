"""The program as tests of conversions use it, and models of tests/data/huggingface
with what `transformers` says of them.
"""
import json
import os
import shutil
import subprocess

import numpy as np

import safetensors_file

FIXTURES = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "data", "huggingface")
# float32 on both sides, rounding of 2^-24 over sums of some dozen terms.
LOGITS = 1e-4  # of the logits' spread, the largest difference
LOSS = 1e-4


class Fixture:
    """A model; of its logits those after every so many tokens."""

    def __init__(self, name, every=1):
        self.name, self.folder = name, os.path.join(FIXTURES, name)
        with open(os.path.join(self.folder, "expected.json"), encoding="utf-8") as file:
            expected = json.load(file)
        self.tokens, self.loss = np.array(expected["tokens"]), expected["loss"]
        self.prompt, self.greedy = self.tokens[:expected["prompt"]], expected["greedy"]
        self.logits = np.load(os.path.join(self.folder, "logits.npy"))[every - 1::every]
        self.config = read_json(os.path.join(self.folder, "config.json"))
        self.tensors = safetensors_file.read_folder(self.folder)

    def rewritten(self, folder, config=None, tensors=None):
        """A copy of the model with these keys of its config (None: without the
        key) and these tensors in one file in the place of its own."""
        os.makedirs(folder)
        keys = self.config | (config or {})
        write_json(os.path.join(folder, "config.json"), {key: value for key, value in keys.items() if value is not None})
        safetensors_file.write(os.path.join(folder, "model.safetensors"), self.tensors if tensors is None else tensors)
        return folder


def names():
    return sorted(name for name in os.listdir(FIXTURES) if os.path.isdir(os.path.join(FIXTURES, name)))


def read_json(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def write_json(path, value):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(value, file)


def spread(ours, theirs):
    """The largest difference of logits, of their standard deviation."""
    assert ours.shape == theirs.shape, (ours.shape, theirs.shape)
    assert np.isfinite(ours).all()
    return float(np.abs(ours - theirs).max() / theirs.std())


def check(what, error, bound):
    print(f"{what}: {error:.3g} (bound {bound:.3g})")
    assert error <= bound, what


def mean_loss(logits, targets):
    """Of logits [n, vocab], nats a token."""
    x = logits.astype(np.float64)
    x -= x.max(-1, keepdims=True)
    return float(np.mean(np.log(np.exp(x).sum(-1)) - x[np.arange(len(x)), targets]))


class Program:
    def __init__(self, delink, dump_logits, folder, every=1):
        self.delink, self.dump_logits, self.folder, self.every = delink, dump_logits, folder, every
        self.count = 0

    def path(self, name):
        """Of something that is not there yet."""
        self.count += 1
        return os.path.join(self.folder, f"{self.count}-{name}")

    @staticmethod
    def start(words):
        return subprocess.run(words, capture_output=True, text=True, check=False,
                              env={**os.environ, "OMP_NUM_THREADS": "1"})

    def run(self, *words, ranks=1):
        launch = ["mpirun", "-np", str(ranks)] if ranks > 1 else []
        ended = self.start([*launch, self.delink, *map(str, words)])
        assert ended.returncode == 0, f"delink {' '.join(map(str, words))}\n{ended.stdout}{ended.stderr}"
        return ended.stdout

    def refused(self, *words):
        """What it says where it must refuse."""
        ended = self.start([self.delink, *map(str, words)])
        assert ended.returncode in (1, 2), f"delink {' '.join(map(str, words))}: {ended.returncode}\n{ended.stderr}"
        return ended.stderr

    def convert(self, source, *words):
        out = self.path("converted")
        self.run("convert", source, out, *words)
        return out

    def logits(self, checkpoint, tokens):
        """[tokens, vocab] float32, after every so many tokens."""
        path, out = self.path("tokens"), self.path("logits")
        with open(path, "w", encoding="utf-8") as file:
            file.write(" ".join(map(str, tokens)))
        ended = self.start([self.dump_logits, checkpoint, path, out, str(self.every)])
        assert ended.returncode == 0, ended.stderr
        return np.fromfile(out, np.float32).reshape(len(tokens) // self.every, -1)

    def greedy(self, checkpoint, prompt, count):
        """The likeliest tokens after ids, fewer where a document ends."""
        prompt = " ".join(map(str, prompt))
        text = self.run("generate", checkpoint, "--prompt", prompt, "--tokens", count, "--temperature", "0")
        assert text.startswith(prompt), text
        return [int(word) for word in text[len(prompt):].split()]

    def corpus(self, tokens, vocab):
        """A corpus of one document again and again: samples of its length are
        all the same, and what follows its end is its first token."""
        rows, out = self.path("rows.npy"), self.path("corpus")
        np.save(rows, np.tile(np.asarray(tokens, np.uint16), (16, 1)))
        self.run("data", "import", "--vocab", vocab, "--eot", tokens[-1], "--rows", "--validation", "0.25",
                 "--out", out, rows)
        return out

    def first_loss(self, init, recipe, corpus, tokens, *sets, ranks=1):
        """The loss of the first step of a run that begins with these weights."""
        out = self.path("run")
        words = [f"data.train={corpus}/train", f"data.seq={len(tokens)}", "data.batch=2", "run.micro_batch=1",
                 "model.dropout=0", "schedule.steps=1", "run.device=cpu", *sets]
        self.run("train", recipe, "--init", init, "--out", out, *(w for s in words for w in ("--set", s)), ranks=ranks)
        with open(os.path.join(out, "metrics.jsonl"), encoding="utf-8") as file:
            [step] = [row for row in map(json.loads, file) if row.get("step") == 1 and "loss" in row]
        return step["loss"]


def mpirun():
    return shutil.which("mpirun") is not None
