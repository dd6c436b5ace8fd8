"""The models of the project in plain torch, in float64: what torch_oracle.py and
growth_oracle.py hold the project against.

Written after the papers and the checkpoints' own model code, from ordinary
operations only; nothing of it follows the project's.
"""
import math

import h5py
import numpy as np
import torch
import torch.nn.functional as F


def tensors(group):
    found = {}
    group.visititems(
        lambda name, item: found.__setitem__(name, torch.tensor(np.array(item), dtype=torch.float64))
        if isinstance(item, h5py.Dataset) else None)
    return found


class Model:
    def __init__(self, options, weights, visited=None):
        """`weights` by the project's names, where layers that share have the
        same tensor; `visited`: the blocks that are run, in order, else all."""
        self.options, self.w = options, weights
        self.visited = range(int(options["layers"])) if visited is None else visited
        self.heads, self.kv_heads = int(options["heads"]), int(options["kv_heads"])
        self.eps = float(options["norm_eps"])
        self.head = self.w.get("head/weight", self.w["embed/token/weight"])

    def linear(self, x, name):
        return F.linear(x, self.w[name + "/weight"], self.w.get(name + "/bias"))

    def rms_norm(self, x, name):
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + self.eps) * self.w[name + "/weight"]

    def heads_of(self, x, name):
        """q, k, v [batch, heads, time, size] of the packed projection."""
        b, t, _ = x.shape
        qkv = self.linear(x, name + "/qkv").view(b, t, self.heads + 2 * self.kv_heads, -1).transpose(1, 2)
        return qkv.split([self.heads, self.kv_heads, self.kv_heads], dim=1)

    def attend(self, q, k, v, hidden, name):
        """hidden [time, time]: what a token, by row, does not see."""
        b, _, t, size = q.shape
        k, v = (z.repeat_interleave(self.heads // self.kv_heads, dim=1) for z in (k, v))
        scores = (q @ k.transpose(-1, -2) / size**0.5).masked_fill(hidden, float("-inf"))
        return self.linear((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, -1), name + "/out")

    def blocks(self, x):
        for i in self.visited:
            x = x + self.attention(self.norm(x, f"blocks/{i}/norm1"), f"blocks/{i}/attn")
            x = x + self.mlp(self.norm(x, f"blocks/{i}/norm2"), f"blocks/{i}/mlp")
        return F.linear(self.norm(x, "norm"), self.head)

    def losses(self, inputs, targets):
        """The loss, and what is minimised besides: sums over the targets."""
        loss = F.cross_entropy(self.logits(inputs).flatten(0, 1), targets.flatten(), ignore_index=-1, reduction="sum")
        return loss, 0.0


class Gpt(Model):
    @property
    def rms(self):
        return self.options["variant"] == "rms_norm"

    def norm(self, x, name):
        if self.rms:
            return self.rms_norm(x, name)
        return F.layer_norm(x, x.shape[-1:], self.w[name + "/weight"], self.w[name + "/bias"], self.eps)

    def attention(self, x, name):
        t = x.shape[1]
        return self.attend(*self.heads_of(x, name), torch.ones(t, t).triu(1).bool(), name)

    def mlp(self, x, name):
        up = self.linear(x, name + "/up")
        return self.linear(F.gelu(up, approximate="none" if self.rms else "tanh"), name + "/down")

    def logits(self, tokens):
        return self.blocks(self.w["embed/token/weight"][tokens] + self.w["embed/position/weight"][: tokens.shape[1]])


class Llama(Model):
    norm = Model.rms_norm

    def frequencies(self, size):
        o = self.options
        base, factor = float(o["rope_theta"]), float(o["factor"])
        if o["scaling"] == "ntk":
            base *= factor ** (size / (size - 2))
        plain = 1.0 / base ** (torch.arange(0, size, 2, dtype=torch.float64) / size)
        if o["scaling"] == "linear":
            return plain / factor
        if o["scaling"] != "llama3":
            return plain
        # As Llama 3.1's own code: by wavelength.
        low, high, length = (float(o[k]) for k in ("low_freq_factor", "high_freq_factor", "original_max_seq"))
        scaled = []
        for frequency in plain.tolist():
            wave = 2 * math.pi / frequency
            if wave < length / high:
                scaled.append(frequency)
            elif wave > length / low:
                scaled.append(frequency / factor)
            else:
                smooth = (length / wave - low) / (high - low)
                scaled.append((1 - smooth) * frequency / factor + smooth * frequency)
        return torch.tensor(scaled, dtype=torch.float64)

    def rotate(self, x):
        t, size = x.shape[-2:]
        angle = torch.outer(torch.arange(t, dtype=torch.float64), self.frequencies(size))
        if int(self.options["interleaved"]):  # as Meta's code: complex numbers
            pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2).contiguous())
            return torch.view_as_real(pairs * torch.polar(torch.ones_like(angle), angle)).flatten(-2)
        angle = torch.cat([angle, angle], -1)  # as Hugging Face's: rotate_half
        half = torch.cat([-x[..., size // 2 :], x[..., : size // 2]], -1)
        return x * angle.cos() + half * angle.sin()

    def attention(self, x, name):
        q, k, v = self.heads_of(x, name)
        if name + "/q_norm/weight" in self.w:
            q, k = self.rms_norm(q, name + "/q_norm"), self.rms_norm(k, name + "/k_norm")
        t, window = x.shape[1], int(self.options["window"])
        distance = torch.arange(t)[:, None] - torch.arange(t)[None, :]
        hidden = (distance < 0) | (distance >= (window or t))
        return self.attend(self.rotate(q), self.rotate(k), v, hidden, name)

    def mlp(self, x, name):
        gate, up = self.linear(x, name + "/gate_up").chunk(2, -1)
        return self.linear(F.silu(gate) * up, name + "/down")

    def logits(self, tokens):
        return self.blocks(self.w["embed/token/weight"][tokens])

    def losses(self, inputs, targets):
        logits = self.logits(inputs)[targets >= 0]
        loss = F.cross_entropy(logits, targets[targets >= 0], reduction="sum")
        return loss, float(self.options["z_loss"]) * (logits.logsumexp(-1) ** 2).sum()
