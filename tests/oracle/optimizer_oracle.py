#!/usr/bin/python3
"""Holds optimizers against torch's, or a plain NumPy statement of them.

  optimizer_oracle.py DUMP_OPTIMIZERS [CLASS]

Runs DUMP_OPTIMIZERS, which takes 50 steps in f64 with each optimizer, and
repeats them. Whole tensors are compared. SGD is always torch.optim's, all else
is stated in NumPy. With CLASS, Muon or Adafactor, only what torch.optim.CLASS
says is looked at, within what is different there: torch's Muon multiplies in
bf16. Exit status 77: skipped, something is not installed.
"""
import os
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import torch
except ImportError as missing:
    print(f"SKIPPED: {missing}; install python3-torch")
    sys.exit(77)

STEPS = 50
SHAPES = {"embed.weight": (23, 8), "blocks.0.wide": (12, 40), "blocks.0.bias": (17,), "blocks.0.tall": (40, 12), "blocks.0.stacked": (18, 10)}
PARTS = {"blocks.0.wide": (12,), "blocks.0.tall": (40,), "blocks.0.stacked": (10, 4, 4)}
DECAY, MOMENTUM, BETAS, EPS = 0.1, 0.9, (0.9, 0.99), 1e-8
# Of a parameter's movement over all steps. f64 both sides, sums in another
# order; Newton-Schulz grows what differs in small singular values.
EXACT, ORTHOGONAL = 1e-13, 1e-12
# torch's Newton-Schulz rounds to bf16 (2^-9) in 15 products and additions.
IN_BF16 = 0.01


def rate(step):
    return 0.01 * (step % 5 + 1)


def decay_of(p):
    return DECAY if p.ndim > 1 else 0.0


def clipped(p, gradients, lr_of, bound):
    return torch_steps(p, np.clip(gradients, -bound, bound), lambda w, decay: torch.optim.SGD([w], lr=1, momentum=MOMENTUM, weight_decay=decay), lr_of)


def torch_steps(p, gradients, make, lr_of=rate):
    w = torch.tensor(p, dtype=torch.float64, requires_grad=True)
    optimizer = make(w, decay_of(p))
    for step in range(1, STEPS + 1):
        for group in optimizer.param_groups:
            group["lr"] = lr_of(step)
        w.grad = torch.tensor(gradients[step - 1], dtype=torch.float64)
        optimizer.step()
    return w.detach().numpy()


def sgd(momentum, nesterov):
    return lambda p, g, name: torch_steps(p, g, lambda w, decay: torch.optim.SGD([w], lr=1, momentum=momentum, nesterov=nesterov, weight_decay=decay))


def lion(p, gradients, name):
    p, m = p.copy(), np.zeros_like(p)
    for step in range(1, STEPS + 1):
        g, lr = gradients[step - 1], rate(step)
        p *= 1 - lr * decay_of(p)
        p -= lr * np.sign(BETAS[0] * m + (1 - BETAS[0]) * g)
        m = BETAS[1] * m + (1 - BETAS[1]) * g
    return p


def rms(x):
    return np.sqrt(np.mean(np.square(x)))


def adafactor(relative):
    def run(p, gradients, name):
        p = p.copy()
        row, column, v = np.zeros(p.shape[0]), np.zeros(p.shape[-1]), np.zeros_like(p)
        for step in range(1, STEPS + 1):
            g, lr, rest = gradients[step - 1], rate(step), step ** -0.8
            alpha = max(1e-3, rms(p)) * min(lr, step ** -0.5) if relative else lr
            if p.ndim > 1:
                row += rest * (np.mean(g * g, axis=1) - row)
                column += rest * (np.mean(g * g, axis=0) - column)
                v = np.outer(row, column) / max(np.mean(row), 1e-30)
            else:
                v = v + rest * (g * g - v)
            u = g / np.sqrt(np.maximum(v, 1e-30))
            p *= 1 - lr * decay_of(p)
            p -= alpha / max(1.0, rms(u)) * u
        return p
    return run


def torch_adafactor(p, gradients, name):
    return torch_steps(p, gradients, lambda w, decay: torch.optim.Adafactor([w], lr=1, eps=(1e-15, 1e-3), weight_decay=decay))


def adamw(p, gradients, ratio):
    return torch_steps(p, gradients, lambda w, decay: torch.optim.AdamW([w], lr=1, betas=BETAS, eps=EPS, weight_decay=decay), lambda step: ratio * rate(step))


def orthogonal(u):
    a, b, c = 3.4445, -4.7750, 2.0315
    x = u / max(np.linalg.norm(u), 1e-7)
    if x.shape[0] > x.shape[1]:
        return orthogonal_wide(x.T, a, b, c).T
    return orthogonal_wide(x, a, b, c)


def orthogonal_wide(x, a, b, c):
    for _ in range(5):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x


def scale_of(shape, by_rms):
    return 0.2 * np.sqrt(max(shape)) if by_rms else np.sqrt(max(1, shape[0] / shape[1]))


def split(x, name):
    return np.split(x, np.cumsum(PARTS[name])[:-1], axis=-2)


def muon(by_rms, nesterov, adamw_ratio):
    def matrix(p, gradients):
        p, m = p.copy(), np.zeros_like(p)
        for step in range(1, STEPS + 1):
            g, lr = gradients[step - 1], rate(step)
            m = MOMENTUM * m + (1 - MOMENTUM) * g
            u = MOMENTUM * m + (1 - MOMENTUM) * g if nesterov else m
            p *= 1 - lr * DECAY
            p -= lr * scale_of(p.shape, by_rms) * orthogonal(u)
        return p

    def run(p, gradients, name):
        if name not in PARTS:
            return adamw(p, gradients, adamw_ratio)
        return np.concatenate([matrix(a, b) for a, b in zip(split(p, name), split(gradients, name))])
    return run


def torch_muon(by_rms, nesterov, adamw_ratio):
    def run(p, gradients, name):
        if name not in PARTS:
            return adamw(p, gradients, adamw_ratio)
        make = lambda w, decay: torch.optim.Muon([w], lr=1, momentum=MOMENTUM, nesterov=nesterov, weight_decay=decay, adjust_lr_fn="match_rms_adamw" if by_rms else "original")
        return np.concatenate([torch_steps(a, b, make) for a, b in zip(split(p, name), split(gradients, name))])
    return run


# Of each variant: what states it, how near, and which class of torch it needs.
ORACLES = {
    "sgd": [(sgd(0, False), EXACT, None)],
    "momentum": [(sgd(MOMENTUM, False), EXACT, None)],
    "nesterov": [(sgd(MOMENTUM, True), EXACT, None)],
    "clip_value": [(lambda p, g, name: clipped(p, g, rate, 0.05), EXACT, None)],
    "lion": [(lion, EXACT, None)],
    "adafactor": [(adafactor(True), EXACT, None), (torch_adafactor, EXACT, "Adafactor")],
    "adafactor_fixed": [(adafactor(False), EXACT, None)],
    "muon": [(muon(False, True, 1), ORTHOGONAL, None), (torch_muon(False, True, 1), IN_BF16, "Muon")],
    "muon_rms": [(muon(True, False, 0.5), ORTHOGONAL, None), (torch_muon(True, False, 0.5), IN_BF16, "Muon")],
}


def skip_without(needs):
    """Ends here where torch is older than the class."""
    if hasattr(torch.optim, needs):
        return
    for variant, oracles in ORACLES.items():
        if any(of == needs for _, _, of in oracles):
            print(f"SKIPPED: {variant} against torch.optim.{needs}, which torch {torch.__version__} has not; install a newer one")
    sys.exit(77)


def check(folder, wanted):
    checked = 0

    def read(path, shape):
        return np.fromfile(os.path.join(folder, path)).reshape(shape)
    assert sorted(ORACLES) == sorted(e.name for e in os.scandir(folder) if e.is_dir()), "variants differ"
    for variant, oracles in ORACLES.items():
        for name, shape in SHAPES.items():
            start, end = read(name + ".start", shape), read(f"{variant}/{name}.end", shape)
            gradients = read(name + ".gradients", (STEPS,) + shape)
            for oracle, bound, needs in oracles:
                if needs != wanted:
                    continue
                checked += 1
                expected = oracle(start, gradients, name)
                moved = np.linalg.norm(expected - start)
                assert moved > 0.01 * np.linalg.norm(start), "nothing moved"
                error = np.linalg.norm(end - expected) / moved
                print(f"{variant}, {name}{', torch.optim.' + needs if needs else ''}: {error:.3g} (bound {bound:.3g})")
                assert error <= bound, (variant, name)
    assert checked, "nothing was compared"


def main():
    wanted = sys.argv[2] if len(sys.argv) > 2 else None
    if wanted:
        skip_without(wanted)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.argv[1], folder], check=True)
        check(folder, wanted)


main()
