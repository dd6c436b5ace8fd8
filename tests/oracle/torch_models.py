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
    sums = {}  # by layer: what it added up since `losses` began

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

    def mlp(self, x, name):
        return self.linear(self.act(self.linear(x, f"{name}/{self.up}")), name + "/down")

    def blocks(self, x):
        for i in self.visited:
            x = x + self.attention(self.norm(x, f"blocks/{i}/norm1"), f"blocks/{i}/attn")
            x = x + self.mlp(self.norm(x, f"blocks/{i}/norm2"), f"blocks/{i}/mlp")
        return F.linear(self.norm(x, "norm"), self.head)

    def losses(self, inputs, targets):
        """The loss, and what is minimised besides: sums over the targets."""
        loss = F.cross_entropy(self.logits(inputs).flatten(0, 1), targets.flatten(), ignore_index=-1, reduction="sum")
        return loss, 0.0

    def after_update(self):
        """Changes what no gradient does."""


class Gpt(Model):
    up = "up"

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

    def act(self, up):
        return F.gelu(up, approximate="none" if self.rms else "tanh")

    def logits(self, tokens):
        return self.blocks(self.w["embed/token/weight"][tokens] + self.w["embed/position/weight"][: tokens.shape[1]])


class Llama(Model):
    norm, up = Model.rms_norm, "gate_up"

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

    def act(self, gate_up):
        gate, up = gate_up.chunk(2, -1)
        return F.silu(gate) * up

    def logits(self, tokens):
        return self.blocks(self.w["embed/token/weight"][tokens])

    def losses(self, inputs, targets):
        logits = self.logits(inputs)[targets >= 0]
        loss = F.cross_entropy(logits, targets[targets >= 0], reduction="sum")
        return loss, float(self.options["z_loss"]) * (logits.logsumexp(-1) ** 2).sum()


class Experts:
    """Mixed into a kind: experts in place of those MLPs that have a router."""
    counted = None  # of the tokens of a micro-batch in training

    def mlp(self, x, name):
        moe = name.removesuffix("mlp") + "moe"
        if moe + "/router/weight" not in self.w:
            return super().mlp(x, name)
        y = self.mixture(x.flatten(0, 1), moe, len(x)).view_as(x)
        return y + super().mlp(x, moe + "/shared") if moe + "/shared/down/weight" in self.w else y

    def mixture(self, x, name, sequences):
        """x [tokens, dim]. Scores and choices are [tokens, ranges, .] until they
        are flat, those by expert and those by choice."""
        o, ranges = self.options, int(self.options["prototypes"])
        logits = F.linear(x, self.w[name + "/router/weight"])
        scores = logits.unflatten(1, (ranges, -1))
        scores = scores.sigmoid() if o["score"] == "sigmoid" else scores.softmax(-1)
        bias = self.w.get(name + "/router/bias", torch.zeros(logits.shape[1])).detach()
        picked = self.pick(scores.detach() + bias.view(ranges, -1))
        gates = scores.gather(-1, picked)
        if int(o["normalise"]):
            gates = gates / gates.sum(-1, keepdim=True)
        gates = float(o["scale"]) * gates.flatten(1)
        chosen = (picked + torch.arange(ranges)[:, None] * scores.shape[-1]).flatten(1)
        kept = torch.ones_like(chosen).bool()
        if self.counted is not None:
            self.drop(kept, chosen, gates.detach(), logits.shape[1])
            self.add_up(name, logits, scores, chosen, kept, sequences)
        y = torch.zeros_like(x)
        for e in range(logits.shape[1]):
            token, place = ((chosen == e) & kept).nonzero(as_tuple=True)
            up, down = ([self.w[at + what][e] if at + what in self.w else None for what in ("/weight", "/bias")]
                        for at in (f"{name}/experts/{self.up}", f"{name}/experts/down"))
            out = F.linear(self.act(F.linear(x[token], *up)), *down)
            y = y.index_add(0, token, gates[token, place, None] * out)
        return y

    def pick(self, scores):
        o = self.options
        count, top = int(o["groups"]), int(o["top_groups"])
        groups = scores.unflatten(-1, (count, -1))
        if top < count:
            best = groups.topk(2).values.sum(-1).topk(top).indices
            closed = torch.ones(groups.shape[:-1]).scatter(-1, best, 0).bool()
            groups = groups.masked_fill(closed[..., None], float("-inf"))
        return groups.flatten(-2).topk(int(o["top_k"]) // int(o["prototypes"])).indices

    def drop(self, kept, chosen, gates, experts):
        """Of an expert's counted choices all but the largest, or the first."""
        most = math.ceil(float(self.options["capacity"]) * chosen.numel() / experts)
        if most == 0:
            return
        for e in range(experts):
            token, place = ((chosen == e) & self.counted[:, None]).nonzero(as_tuple=True)
            if self.options["drop"] == "probability":
                order = gates[token, place].argsort(descending=True)
                token, place = token[order], place[order]
            kept[token[most:], place[most:]] = False

    def add_up(self, name, logits, scores, chosen, kept, sequences):
        """The sums of a layer: the choices of each expert, all and those dropped, the
        entropy, the squared log-partition and the auxiliary loss."""
        o, experts = self.options, logits.shape[1]
        shares = scores / scores.sum(-1, keepdim=True)
        entropy = -(shares * shares.log()).sum(-1).mean(-1)[self.counted].sum()
        z = logits[self.counted].logsumexp(-1).square().sum()
        balance = torch.zeros(())
        for tokens in torch.arange(len(logits)).chunk(sequences if o["aux_over"] == "sequence" else 1):
            tokens = tokens[self.counted[tokens]]
            if len(tokens):
                fraction = chosen[tokens].flatten().bincount(minlength=experts) / chosen[tokens].numel()
                if o["aux_over"] == "batch":  # of the step before
                    fraction = self.w[name + "/router/loads"].detach() / experts
                balance = balance + len(tokens) * experts * (fraction * shares.flatten(1)[tokens].mean(0)).sum()
        balance = float(o["aux_loss"]) * balance
        self.besides = self.besides + balance + float(o["router_z_loss"]) * z
        choices = chosen[self.counted].flatten().bincount(minlength=experts)
        sums = torch.cat([choices, torch.stack([choices.sum(), (~kept).sum(), entropy, z, balance])]).detach()
        self.sums[name] = self.sums.get(name, 0) + sums

    def losses(self, inputs, targets):
        size = int(self.options["micro_batch"])
        loss, self.besides, self.sums = 0.0, 0.0, {}
        for some, its in zip(inputs.split(size), targets.split(size)):
            self.counted = its.flatten() >= 0
            more, besides = super().losses(some, its)
            loss, self.besides = loss + more, self.besides + besides
        self.counted = None
        return loss, self.besides

    def after_update(self):
        for name, sums in self.sums.items():
            bias = self.w.get(name + "/router/bias")
            if bias is not None:
                loads = sums[: len(bias)]
                bias.data += float(self.options["bias_rate"]) * (loads.mean() - loads).sign()
            if name + "/router/loads" in self.w:
                loads = self.w[name + "/router/loads"].data
                loads.copy_(sums[: len(loads)] / sums[: len(loads)].mean())


class MoeGpt(Experts, Gpt):
    pass


class MoeLlama(Experts, Llama):
    pass
