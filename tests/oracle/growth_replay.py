"""Runs whose stages grow, in plain torch in float64: what growth_oracle.py holds
the program against.

Written after docs/pseudo-to-real.md, docs/optimizers.md and the papers; AdamW and
clipping are torch's own.
"""
from collections import Counter
from dataclasses import dataclass

import torch

LAYERS = 8
LR, MUON_LR = 2e-3, 1e-2
# This eps, so that a gradient that is float32's rounding is no whole step.
BETAS, EPS, DECAY, MOMENTUM, CLIP = (0.9, 0.95), 1e-6, 0.1, 0.95, 1.0
PARTS = {"attention": ("attn",), "mlp": ("mlp",), "norm": ("norm1", "norm2")}
RESIDUAL = ("attn/out/", "mlp/down/")  # what writes to the residual stream


@dataclass
class Stage:
    share: object  # a policy, or a dict of policies by part
    depth: int = LAYERS
    visit: str = "first"
    grow: str = "copy"
    state: str = "scale"
    steps: int = 0

    def visited(self):
        return [i * LAYERS // self.depth if self.visit == "even" else i for i in range(self.depth)]

    def set_of(self, part, block):
        policy = self.share if isinstance(self.share, str) else self.share.get(part, "none")
        kind, _, count = policy.partition(":")
        return {"none": block, "all": 0, "groups": block * int(count or 0) // LAYERS, "cycle": block % int(count or 1)}[kind]

    def sets(self, part):
        """The visited blocks that share, of each set of any."""
        blocks = {}
        for block in self.visited():
            blocks.setdefault(self.set_of(part, block), []).append(block)
        return list(blocks.values())


class Slab:
    """The weights of a part of the blocks that share it, by name within the
    block, and their optimizer's state."""

    def __init__(self, weights):
        self.w = {name: w.detach().clone().requires_grad_() for name, w in weights.items()}
        self.updates = 0
        self.forget()

    def forget(self):
        self.m, self.v = ({name: torch.zeros_like(w) for name, w in self.w.items()} for _ in range(2))
        self.updates = 0

    def copy(self):
        other = Slab(self.w)
        other.m, other.v = ({name: x.clone() for name, x in state.items()} for state in (self.m, self.v))
        other.updates = self.updates
        return other


def orthogonal(u):
    """Five steps of Newton-Schulz, as Jordan et al. have them."""
    if u.shape[0] > u.shape[1]:
        return orthogonal(u.T).T
    x = u / u.norm().clamp(min=1e-7)
    for _ in range(5):
        gram = x @ x.T
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x


class Replay:
    """A run. Each method says one thing, which a class below says otherwise."""

    def __init__(self, model, options, start, muon):
        """`start`: the weights that a run of all blocks, none shared, begins with."""
        self.make_model, self.options, self.start, self.muon = model, options, start, muon
        self.top = Slab({name: w for name, w in start.items() if not name.startswith("blocks/")})
        self.stage, self.slabs, self.step = None, {}, 0  # slabs by part and block

    def fresh(self, part, block, grow):
        prefix = f"blocks/{block}/"
        weights = {name[len(prefix):]: w for name, w in self.start.items() if name.startswith(prefix)}
        slab = Slab({name: w for name, w in weights.items() if name.split("/")[0] in PARTS[part]})
        for name, w in slab.w.items():
            if grow == "zero" and name.startswith(RESIDUAL):
                w.data.zero_()
        return slab

    def model_of(self, part, block, grow):
        """The block, visited so far, that a new one is a copy of."""
        visited = self.stage.visited()
        if grow == "cycle":
            return visited[block % len(visited)]
        sharing = [b for b in visited if self.stage.set_of(part, b) == self.stage.set_of(part, block)]
        return sharing[0] if sharing else max(b for b in visited if b < block)

    def change(self, slab, policy, n, copied):
        """The state of one that n times as many layers used before."""
        if policy == "reset" and (copied or n != 1):
            slab.forget()
        if policy == "scale":
            for name in slab.w:
                slab.m[name] /= n
                slab.v[name] /= n**2

    def grown(self, stage, part, blocks):
        """What these blocks, which share a part from here on, have of it."""
        kept = [b for b in blocks if (part, b) in self.slabs]
        if not kept and stage.grow in ("random", "zero"):
            return self.fresh(part, blocks[0], stage.grow)
        old = self.slabs[part, kept[0] if kept else self.model_of(part, blocks[0], stage.grow)]
        slab, before = old.copy(), Counter(map(id, self.slabs.values()))[id(old)]
        self.change(slab, stage.state, before / len(blocks), copied=not kept)
        return slab

    def order(self, stage):
        return stage.visited()

    def enter(self, stage):
        slabs = {}
        for part in PARTS:
            for blocks in stage.sets(part):
                slab = self.grown(stage, part, blocks) if self.stage else self.fresh(part, blocks[0], "random")
                slabs.update({(part, block): slab for block in blocks})
        order = self.order(stage)
        self.stage, self.slabs = stage, slabs
        self.model = self.make_model(self.options, self.weights(), order)
        self.adamw = self.make_adamw()

    def weights(self):
        return {**self.top.w, **{f"blocks/{block}/{name}": w for (_, block), slab in self.slabs.items() for name, w in slab.w.items()}}

    def all_slabs(self):
        return [self.top, *{id(slab): slab for slab in self.slabs.values()}.values()]

    def is_muons(self, slab, name):
        return self.muon and slab is not self.top and slab.w[name].dim() > 1

    def make_adamw(self):
        found = [(slab, name, w) for slab in self.all_slabs() for name, w in slab.w.items() if not self.is_muons(slab, name)]
        groups = [{"params": [w for _, _, w in found if (w.dim() > 1) == matrix], "weight_decay": DECAY if matrix else 0.0} for matrix in (True, False)]
        adamw = torch.optim.AdamW([g for g in groups if g["params"]], lr=LR, betas=BETAS, eps=EPS)
        for slab, name, w in found:
            adamw.state[w] = {"step": torch.tensor(float(slab.updates)), "exp_avg": slab.m[name], "exp_avg_sq": slab.v[name]}
        return adamw

    def stacked(self, name, w):
        """The rows of the matrices that lie in one."""
        if name == "attn/qkv/weight":
            heads, kv_heads = self.options["heads"], self.options["kv_heads"]
            head = w.shape[0] // (heads + 2 * kv_heads)
            return [heads * head, kv_heads * head, kv_heads * head]
        return [w.shape[0] // 2] * 2 if name == "mlp/gate_up/weight" else [w.shape[0]]

    def step_muon(self, slab, name, w):
        m = slab.m[name]
        m.mul_(MOMENTUM).add_(w.grad, alpha=1 - MOMENTUM)
        u = MOMENTUM * m + (1 - MOMENTUM) * w.grad
        w *= 1 - MUON_LR * DECAY
        rows = self.stacked(name, w)
        for to, part in zip(w.split(rows), u.split(rows)):
            to -= MUON_LR * max(1, to.shape[0] / to.shape[1]) ** 0.5 * orthogonal(part)

    @torch.no_grad()
    def update(self):
        for slab in self.all_slabs():
            for name, w in slab.w.items():
                if self.is_muons(slab, name):
                    self.step_muon(slab, name, w)
            slab.updates += 1
        self.adamw.step()

    def train(self, inputs, targets):
        """The loss, and the norm of the gradient before it is clipped."""
        params = [w for slab in self.all_slabs() for w in slab.w.values()]
        for w in params:
            w.grad = None
        loss, besides = self.model.losses(inputs, targets)
        ((loss + besides) / targets.numel()).backward()
        norm = torch.nn.utils.clip_grad_norm_(params, CLIP)
        self.update()
        self.step += 1
        return float(loss) / targets.numel(), float(norm)

    @torch.no_grad()
    def loss(self, inputs, targets):
        return float(self.model.losses(inputs, targets)[0]) / targets.numel()


# What the project might do instead: each must be seen. `did`: that it has.
class Wrong(Replay):
    did = False


class CountsOn(Wrong):
    """Fresh slabs are as old as the run."""

    def fresh(self, part, block, grow):
        slab = super().fresh(part, block, grow)
        self.did |= self.stage is not None
        slab.updates = self.step
        return slab


class NewBlocksLast(Wrong):
    """New blocks are run after those that were visited before."""

    def order(self, stage):
        before = self.stage.visited() if self.stage else []
        order = before + [b for b in stage.visited() if b not in before]
        self.did |= order != stage.visited()
        return order


class NotScaled(Wrong):
    def change(self, slab, policy, n, copied):
        self.did |= policy == "scale" and n != 1
        super().change(slab, "copy" if policy == "scale" else policy, n, copied)


class NotReset(Wrong):
    def change(self, slab, policy, n, copied):
        self.did |= policy == "reset" and (copied or n != 1)
        super().change(slab, "copy" if policy == "reset" else policy, n, copied)


class CopiesAnother(Wrong):
    """`copy` for `cycle` and the reverse."""

    def model_of(self, part, block, grow):
        other = super().model_of(part, block, "copy" if grow == "cycle" else "cycle")
        self.did |= self.slabs[part, other] is not self.slabs[part, super().model_of(part, block, grow)]
        return other


class ZeroIsRandom(Wrong):
    def fresh(self, part, block, grow):
        self.did |= grow == "zero"
        return super().fresh(part, block, "random")


WRONG = (CountsOn, NewBlocksLast, NotScaled, NotReset, CopiesAnother, ZeroIsRandom)
