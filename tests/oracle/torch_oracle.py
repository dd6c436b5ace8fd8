#!/usr/bin/python3
"""Holds a small gpt against a plain torch model with the same weights.

  torch_oracle.py DUMP_GPT VARIANT

Runs DUMP_GPT, which writes what the project computes in float32, and repeats it
with torch in float64: logits, loss, gradients, and ten AdamW steps with
clipping. Whole tensors are compared. Exit status 77: skipped, something is not
installed.
"""
import os
import subprocess
import sys
import tempfile

try:
    import h5py
    import numpy as np
    import torch
    import torch.nn.functional as F
except ImportError as missing:
    print(f"SKIPPED: {missing}; install python3-torch and python3-h5py")
    sys.exit(77)

# float32 against float64: rounding of 2^-24 over sums of some hundred terms.
LOGITS = 1e-5
GRADIENT = 1e-4  # by norm, per tensor
FLOOR = 1e-4  # of a gradient's norm: the key bias has gradient zero
LOSS = 1e-6
# AdamW turns rounding noise of tiny gradients into whole steps.
MEDIAN, TAIL = 0.001, 0.01  # of the learning rate; median and 99 %


def tensors(group):
    found = {}
    group.visititems(
        lambda name, item: found.__setitem__(name, torch.tensor(np.array(item), dtype=torch.float64))
        if isinstance(item, h5py.Dataset) else None)
    return found


class Gpt:
    def __init__(self, file):
        self.w = {name: value.requires_grad_() for name, value in tensors(file["before"]).items()}
        self.layers, self.heads, self.kv_heads = (int(file.attrs[k]) for k in ("layers", "heads", "kv_heads"))
        self.eps, self.rms = float(file.attrs["norm_eps"]), file.attrs["variant"] == "rms_norm"
        self.head = self.w.get("head/weight", self.w["embed/token/weight"])

    def norm(self, x, name):
        weight = self.w[name + "/weight"]
        if self.rms:
            return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + self.eps) * weight
        return F.layer_norm(x, x.shape[-1:], weight, self.w[name + "/bias"], self.eps)

    def linear(self, x, name):
        return F.linear(x, self.w[name + "/weight"], self.w.get(name + "/bias"))

    def attention(self, x, name):
        b, t, d = x.shape
        size = d // self.heads
        qkv = self.linear(x, name + "/qkv").view(b, t, self.heads + 2 * self.kv_heads, size).transpose(1, 2)
        q, k, v = qkv.split([self.heads, self.kv_heads, self.kv_heads], dim=1)
        k, v = (z.repeat_interleave(self.heads // self.kv_heads, dim=1) for z in (k, v))
        scores = q @ k.transpose(-1, -2) / size**0.5
        scores = scores.masked_fill(torch.ones(t, t).triu(1).bool(), float("-inf"))
        return self.linear((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, d), name + "/out")

    def mlp(self, x, name):
        up = self.linear(x, name + "/up")
        return self.linear(F.gelu(up, approximate="none" if self.rms else "tanh"), name + "/down")

    def logits(self, tokens):
        x = self.w["embed/token/weight"][tokens] + self.w["embed/position/weight"][: tokens.shape[1]]
        for i in range(self.layers):
            x = x + self.attention(self.norm(x, f"blocks/{i}/norm1"), f"blocks/{i}/attn")
            x = x + self.mlp(self.norm(x, f"blocks/{i}/norm2"), f"blocks/{i}/mlp")
        return F.linear(self.norm(x, "norm"), self.head)

    def loss_sum(self, inputs, targets):
        return F.cross_entropy(self.logits(inputs).flatten(0, 1), targets.flatten(), ignore_index=-1, reduction="sum")


def batch(file, step):
    return tuple(torch.tensor(np.array(file[f"batch/{step}/{part}"]), dtype=torch.long) for part in ("inputs", "targets"))


def check(what, error, bound):
    print(f"{what}: {error:.3g} (bound {bound:.3g})")
    assert error <= bound, what


def compare(file):
    model = Gpt(file)
    ours = torch.tensor(np.array(file["logits"]), dtype=torch.float64)
    theirs = model.logits(batch(file, 0)[0]).detach()
    check("logits", float((ours - theirs).norm() / theirs.norm()), LOGITS)
    decayed = [w for name, w in model.w.items() if w.dim() > 1]
    others = [w for name, w in model.w.items() if w.dim() <= 1]
    lr = float(file.attrs["lr"])
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
        lr=lr, betas=(0.9, 0.95), eps=1e-8)
    gradients, losses = tensors(file["gradient"]), np.array(file["losses"])
    assert set(gradients) == set(model.w), "tensors differ by name"
    for step in range(int(file.attrs["steps"])):
        inputs, targets = batch(file, step)
        optimizer.zero_grad()
        total = model.loss_sum(inputs, targets)
        count = int((targets >= 0).sum())
        total.backward()
        if step == 0:
            for name, w in model.w.items():
                error = float((gradients[name] - w.grad).norm() / (w.grad.norm() + FLOOR))
                check("gradient of " + name, error, GRADIENT)
        check(f"loss of step {step}", abs(float(total) / count - losses[step]) / losses[step], LOSS)
        for w in model.w.values():
            w.grad /= count
        torch.nn.utils.clip_grad_norm_(model.w.values(), 1.0)
        optimizer.step()
    after = tensors(file["after"])
    differences = torch.cat([(after[name] - w.detach()).abs().flatten() for name, w in model.w.items()]) / lr
    check("weights after all steps, median", float(differences.quantile(0.5)), MEDIAN)
    check("weights after all steps, 99 %", float(differences.quantile(0.99)), TAIL)


def main():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "gpt.h5")
        subprocess.run([sys.argv[1], path, sys.argv[2]], check=True)
        with h5py.File(path, "r") as file:
            compare(file)


main()
