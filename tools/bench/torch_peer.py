#!/usr/bin/env python3
"""The peer of `delink bench`: the same models in plain, well-kept PyTorch.

Trains on random tokens (forward, backward, clipping to a norm of 1, AdamW) and
prints one JSON object: tokens a second of the median step, and the peak memory
of the process beyond an idle `import torch`, or on a GPU the memory in use at
the end. tools/bench/peers.sh alternates it with `delink bench`:

  torch_peer.py --shape gpt-124m --seq 256 --batch 4
  torch_peer.py --shape llama-10m --compile --dtype bf16
  torch_peer.py --shape gpt-10m --share        # one block's weights for all
  torch_peer.py --shape moe-8x2 --experts grouped
  torch_peer.py --shape qwen-1.5b --seq 1024 --dtype bf16 --device cuda

Needs torch 2.5 or later.
"""

import argparse
import dataclasses
import json
import math
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn


@dataclasses.dataclass(frozen=True)
class Shape:
  """As tools/bench/shapes.cc has it."""
  layers: int
  dim: int
  heads: int
  kv_heads: int
  ffn: int
  vocab: int
  llama: bool
  tied: bool
  tokens: int  # of a step, unless a batch is given
  gpu_tokens: int = 64
  experts: int = 0  # each as wide as ffn
  top_k: int = 0
  grouped: bool = False  # products of all experts at once

  @property
  def head_dim(self):
    return self.dim // self.heads


SHAPES = {
    "gpt-10m": Shape(6, 256, 8, 8, 1024, 16384, False, True, 2048,
                     65536),
    "llama-10m": Shape(6, 256, 8, 4, 704, 16384, True, False, 2048, 65536),
    "gpt-124m": Shape(12, 768, 12, 12, 3072, 50304, False, True, 1024, 32768),
    "qwen-0.5b": Shape(24, 896, 14, 2, 4864, 151936, True, True, 1024, 16384),
    "qwen-1.5b": Shape(28, 1536, 12, 2, 8960, 151936, True, True, 1024, 16384),
    "qwen-3b": Shape(36, 2048, 16, 2, 11008, 151936, True, True, 1024, 8192),
    "qwen-7b": Shape(28, 3584, 28, 4, 18944, 152064, True, False, 1024, 8192),
    "moe-8x2": Shape(4, 512, 8, 8, 1024, 16384, True, False, 1024, 32768, 8, 2),
    "moe-64x1": Shape(4, 512, 8, 8, 512, 16384, True, False, 4096, 65536, 64,
                      1),
    "gpt-tiny": Shape(2, 32, 2, 2, 64, 256, False, True, 64),
    "llama-tiny": Shape(2, 32, 2, 1, 64, 256, True, False, 64),
    "moe-tiny": Shape(2, 32, 2, 1, 64, 256, True, False, 64, 64, 4, 2),
}


class GptBlock(nn.Module):
  """Pre-norm attention and a two-layer MLP, with biases."""

  def __init__(self, s):
    super().__init__()
    self.heads = s.heads
    self.norm1 = nn.LayerNorm(s.dim)
    self.qkv = nn.Linear(s.dim, 3 * s.dim)
    self.out = nn.Linear(s.dim, s.dim)
    self.norm2 = nn.LayerNorm(s.dim)
    self.up = nn.Linear(s.dim, s.ffn)
    self.down = nn.Linear(s.ffn, s.dim)

  def forward(self, x, angles):
    batch, seq, dim = x.shape
    qkv = self.qkv(self.norm1(x)).view(batch, seq, 3, self.heads, -1)
    q, k, v = qkv.permute(2, 0, 3, 1, 4)
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    x = x + self.out(y.transpose(1, 2).reshape(batch, seq, dim))
    hidden = F.gelu(self.up(self.norm2(x)), approximate="tanh")
    return x + self.down(hidden)


def rotate(x, angles):
  """Turns the pairs (i, i + half) of each head."""
  cos, sin = angles
  a, b = x.chunk(2, dim=-1)
  return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


def gated(x):
  gate, up = x.chunk(2, dim=-1)
  return F.silu(gate) * up


class GatedMlp(nn.Module):

  def __init__(self, s):
    super().__init__()
    self.gate_up = nn.Linear(s.dim, 2 * s.ffn, bias=False)
    self.down = nn.Linear(s.ffn, s.dim, bias=False)

  def forward(self, x):
    return self.down(gated(self.gate_up(x)))


class Experts(nn.Module):
  """Gated MLPs, of which each token goes to those with the best scores."""

  def __init__(self, s):
    super().__init__()
    self.top_k = s.top_k
    self.grouped = s.grouped
    self.router = nn.Linear(s.dim, s.experts, bias=False)
    self.gate_up = self.weights(s.experts, 2 * s.ffn, s.dim)
    self.down = self.weights(s.experts, s.dim, s.ffn)

  def weights(self, experts, *shape):
    if self.grouped:
      return nn.Parameter(torch.empty(experts, *shape))
    return nn.ParameterList(torch.empty(shape) for _ in range(experts))

  def forward(self, x):
    rows = x.flatten(0, 1)
    scores = self.router(rows).float().softmax(dim=-1)
    gates, chosen = scores.topk(self.top_k, dim=-1)
    ids, order = chosen.flatten().sort(stable=True)
    experts = torch.arange(scores.shape[1], device=x.device)
    ends = torch.searchsorted(ids, experts, right=True, out_int32=True)
    tokens = order // self.top_k
    mlps = self.at_once if self.grouped else self.one_by_one
    y = mlps(rows.index_select(0, tokens), ends)
    y = y * gates.flatten()[order, None].to(y.dtype)
    return torch.zeros_like(rows, dtype=y.dtype).index_add(
        0, tokens, y).view_as(x)

  def at_once(self, x, ends):
    if torch.is_autocast_enabled(x.device.type):
      x = x.to(torch.get_autocast_dtype(x.device.type))

    def product(x, w):
      return torch._grouped_mm(x, w.to(x.dtype).transpose(1, 2), offs=ends)

    return product(gated(product(x, self.gate_up)), self.down)

  @torch.compiler.disable  # numbers of rows differ in each step
  def one_by_one(self, x, ends):
    counts = torch.diff(ends, prepend=ends.new_zeros(1)).tolist()
    return torch.cat([
        F.linear(gated(F.linear(part, gate_up)), down)
        for part, gate_up, down in zip(
            x.split(counts), self.gate_up, self.down)])


class LlamaBlock(nn.Module):
  """Rotary positions, grouped queries, RMS norms and a gated MLP or experts."""

  def __init__(self, s):
    super().__init__()
    self.split = [s.heads, s.kv_heads, s.kv_heads]
    self.norm1 = nn.RMSNorm(s.dim, eps=1e-6)
    self.qkv = nn.Linear(s.dim, sum(self.split) * s.head_dim)
    self.out = nn.Linear(s.dim, s.dim, bias=False)
    self.norm2 = nn.RMSNorm(s.dim, eps=1e-6)
    self.mlp = Experts(s) if s.experts else GatedMlp(s)

  def forward(self, x, angles):
    batch, seq, dim = x.shape
    qkv = self.qkv(self.norm1(x)).view(batch, seq, sum(self.split), -1)
    q, k, v = qkv.transpose(1, 2).split(self.split, dim=1)
    y = F.scaled_dot_product_attention(
        rotate(q, angles), rotate(k, angles), v, is_causal=True,
        enable_gqa=self.split[0] != self.split[1])
    x = x + self.out(y.transpose(1, 2).reshape(batch, seq, dim))
    return x + self.mlp(self.norm2(x))


class Model(nn.Module):
  """Tokens and targets to the mean cross-entropy."""

  def __init__(self, s, seq, share):
    super().__init__()
    self.layers = s.layers
    self.embed = nn.Embedding(s.vocab, s.dim)
    self.positions = None if s.llama else nn.Embedding(seq, s.dim)
    block = LlamaBlock if s.llama else GptBlock
    self.blocks = nn.ModuleList(
        block(s) for _ in range(1 if share else s.layers))
    self.norm = (nn.RMSNorm(s.dim, eps=1e-6) if s.llama
                 else nn.LayerNorm(s.dim))
    self.head = nn.Linear(s.dim, s.vocab, bias=False)
    for weight in self.parameters():
      if weight.dim() > 1:
        nn.init.normal_(weight, std=0.02)
    if s.tied:
      self.head.weight = self.embed.weight
    pairs = torch.arange(0, s.head_dim, 2) / s.head_dim
    angle = torch.outer(torch.arange(seq), 1e4 ** -pairs)
    self.register_buffer("cos", angle.cos(), persistent=False)
    self.register_buffer("sin", angle.sin(), persistent=False)

  def forward(self, tokens, targets):
    x = self.embed(tokens)
    if self.positions is not None:
      x = x + self.positions.weight[:tokens.shape[1]]
    angles = (self.cos.to(x.dtype), self.sin.to(x.dtype))
    for i in range(self.layers):
      x = self.blocks[i % len(self.blocks)](x, angles)
    logits = self.head(self.norm(x))
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def peak_resident():
  """Bytes of this process, at most so far."""
  with open("/proc/self/status", encoding="ascii") as status:
    for line in status:
      if line.startswith("VmHWM:"):
        return int(line.split()[1]) * 1024
  sys.exit("torch_peer.py: /proc/self/status does not give the peak memory")


def taken_of_gpu():
  """Bytes of it that are in use, as the driver counts."""
  free, total = torch.cuda.mem_get_info()
  return total - free


def grouped_runs(args):
  """Whether this torch has grouped products for the device and type."""
  options = {"dtype": torch.bfloat16 if args.dtype == "bf16" else torch.float32,
             "device": args.device, "requires_grad": True}
  ends = torch.tensor([8, 16], dtype=torch.int32, device=args.device)
  try:
    x, w = torch.ones(16, 16, **options), torch.ones(2, 16, 16, **options)
    y = torch._grouped_mm(x, w.transpose(1, 2), offs=ends)
    y.square().sum().backward()
  except (AttributeError, RuntimeError) as error:
    print(f"torch_peer.py: no grouped products here ({error}); experts run one "
          "by one", file=sys.stderr)
    return False
  return True


def make_optimizer(model):
  decayed = [p for p in model.parameters() if p.dim() > 1]
  others = [p for p in model.parameters() if p.dim() <= 1]
  return torch.optim.AdamW(
      [{"params": decayed, "weight_decay": 0.1},
       {"params": others, "weight_decay": 0.0}],
      lr=6e-4, betas=(0.9, 0.95), fused=True)


def train(model, vocab, args):
  """Seconds of every step but the first ones, and the last loss."""
  optimizer = make_optimizer(model)
  step_model = torch.compile(model) if args.compile else model
  cuda = args.device == "cuda"
  # On a GPU the weights are bf16, with AdamW's state.
  cast = torch.autocast(args.device, dtype=torch.bfloat16,
                        enabled=args.dtype == "bf16" and not cuda)
  steps = args.warmup + args.steps
  data = torch.randint(vocab, (steps, args.batch, args.seq + 1),
                       device=args.device)
  seconds = []
  for step in range(steps):
    begin = time.perf_counter()
    with cast:
      loss = step_model(data[step, :, :-1], data[step, :, 1:])
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if cuda:
      torch.cuda.synchronize()
    seconds.append(time.perf_counter() - begin)
  return seconds[args.warmup:], loss.item()


def read_arguments():
  parser = argparse.ArgumentParser(
      description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--shape", choices=SHAPES, default="gpt-10m")
  parser.add_argument("--seq", type=int, default=256)
  parser.add_argument("--batch", type=int, default=0,
                      help="sequences (as many as delink bench takes)")
  parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
  parser.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32",
                      help="bf16 on the CPU is autocast: weights stay fp32; on "
                      "a GPU weights and AdamW's state are bf16")
  parser.add_argument("--compile", action="store_true")
  parser.add_argument("--share", action="store_true",
                      help="one block's weights for every layer")
  parser.add_argument("--experts", choices=["loop", "grouped"], default="loop",
                      help="experts one by one, or by grouped products where "
                      "torch has them, else one by one")
  parser.add_argument("--threads", type=int, default=0, help="(torch's choice)")
  parser.add_argument("--steps", type=int, default=8)
  parser.add_argument("--warmup", type=int, default=3)
  args = parser.parse_args()
  if args.batch == 0:
    shape = SHAPES[args.shape]
    tokens = shape.gpu_tokens if args.device == "cuda" else shape.tokens
    args.batch = max(1, tokens // args.seq)
  return args


def main():
  args = read_arguments()
  if args.threads:
    torch.set_num_threads(args.threads)
  torch.manual_seed(0)
  idle = peak_resident()
  shape = SHAPES[args.shape]
  mode = "compile" if args.compile else "eager"
  if shape.experts:
    grouped = args.experts == "grouped" and grouped_runs(args)
    shape = dataclasses.replace(shape, grouped=grouped)
    mode += (" grouped" if grouped else
             " loop" if args.experts == "loop" else " loop (none grouped here)")
  cuda = args.device == "cuda"
  model = Model(shape, args.seq, args.share).to(args.device)
  if cuda and args.dtype == "bf16":
    model = model.to(torch.bfloat16)
  seconds, loss = train(model, shape.vocab, args)
  if not math.isfinite(loss):
    sys.exit(f"torch_peer.py: the loss is not finite: {loss}")
  median = statistics.median(seconds)
  print(json.dumps({
      "peer": f"torch {torch.__version__} {mode}", "shape": args.shape,
      "share": args.share, "dtype": args.dtype, "seq": args.seq,
      "batch": args.batch, "threads": torch.get_num_threads(),
      "seconds": median, "tokens_per_s": args.batch * args.seq / median,
      "parameters": sum(p.numel() for p in model.parameters()),
      "idle_bytes": 0 if cuda else idle,
      "peak_bytes": taken_of_gpu() if cuda else peak_resident(),
      "loss": loss}))


if __name__ == "__main__":
  main()
