#!/usr/bin/python3
"""Holds a small model against plain torch code with the same weights.

  torch_oracle.py DUMP_MODEL KIND VARIANT

Runs DUMP_MODEL, which writes what the project computes in float32, and repeats it
with torch in float64: logits, loss, gradients, ten AdamW steps with clipping,
and what routers chose in each. Whole tensors are compared. Exit status 77:
skipped, something is not installed.
"""
import os
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

from torch_models import Gpt, Llama, MoeGpt, MoeLlama, tensors

# float32 against float64: rounding of 2^-24 over sums of some hundred terms.
LOGITS = 1e-5
GRADIENT = 1e-4  # by norm, per tensor
FLOOR = 1e-4  # of a gradient's norm: the key bias has gradient zero
LOSS = 1e-6
# Counts of choices are equal: the models are such that no two scores are so close
# that rounding decides between experts.
SUMS = 1e-5  # of a sum and one
BIAS = 1e-6
# AdamW turns rounding noise of tiny gradients into whole steps.
MEDIAN, TAIL = 0.001, 0.01  # of the learning rate; median and 99 %


def batch(file, step):
    return tuple(torch.tensor(np.array(file[f"batch/{step}/{part}"]), dtype=torch.long) for part in ("inputs", "targets"))


def check(what, error, bound):
    print(f"{what}: {error:.3g} (bound {bound:.3g})")
    assert error <= bound, what


def model_of(options, weights):
    models = {"gpt": Gpt, "llama": Llama, "moe gpt": MoeGpt, "moe llama": MoeLlama}
    kind = options["kind"]
    return models[kind + " " + options["block"] if kind == "moe" else kind](options, weights)


def compare(file):
    weights = {name: value.requires_grad_() for name, value in tensors(file["before"]).items()}
    model = model_of(dict(file.attrs), weights)
    ours = torch.tensor(np.array(file["logits"]), dtype=torch.float64)
    theirs = model.logits(batch(file, 0)[0]).detach()
    check("logits", float((ours - theirs).norm() / theirs.norm()), LOGITS)
    has_decay = {name: w.dim() > 1 and not name.endswith("bias") for name, w in model.w.items()}
    decayed = [w for name, w in model.w.items() if has_decay[name]]
    others = [w for name, w in model.w.items() if not has_decay[name]]
    lr = float(file.attrs["lr"])
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
        lr=lr, betas=(0.9, 0.95), eps=1e-8)
    gradients, losses = tensors(file["gradient"]), np.array(file["losses"])
    assert set(gradients) == set(model.w), "tensors differ by name"
    for step in range(int(file.attrs["steps"])):
        inputs, targets = batch(file, step)
        optimizer.zero_grad()
        total, besides = model.losses(inputs, targets)
        count = int((targets >= 0).sum())
        (total + besides).backward()
        for w in model.w.values():
            if w.grad is None:  # a router's bias, or loads
                w.grad = torch.zeros_like(w)
        if step == 0:
            for name, w in model.w.items():
                error = float((gradients[name] - w.grad).norm() / (w.grad.norm() + FLOOR))
                check("gradient of " + name, error, GRADIENT)
        check(f"loss of step {step}", abs(float(total) / count - losses[step]) / losses[step], LOSS)
        if model.sums:
            ours, theirs = torch.tensor(np.array(file["sums"][step])), torch.cat(list(model.sums.values()))
            check(f"sums of step {step}", float(((ours - theirs) / (1 + theirs)).abs().max()), SUMS)
        for w in model.w.values():
            w.grad /= count
        torch.nn.utils.clip_grad_norm_(model.w.values(), 1.0)
        optimizer.step()
        model.after_update()
    after = tensors(file["after"])
    for name, w in model.w.items():
        if name.endswith(("router/bias", "router/loads")):
            check(name, float((after[name] - w.detach()).abs().max()), BIAS)
    differences = torch.cat([(after[name] - w.detach()).abs().flatten() for name, w in model.w.items()]) / lr
    check("weights after all steps, median", float(differences.quantile(0.5)), MEDIAN)
    check("weights after all steps, 99 %", float(differences.quantile(0.99)), TAIL)


def main():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.h5")
        subprocess.run([sys.argv[1], path, *sys.argv[2:]], check=True)
        with h5py.File(path, "r") as file:
            compare(file)


main()
