#!/usr/bin/python3
"""Runs that others published, each as a recipe, held against plans.

  tools/bench/published_rows.py [--delink PROGRAM] [--only WORD] [--recipes]

Prints for each row seconds of a step, GB of the device that has most, and
whether it fits, published and planned. Keys of a recipe store what the peer
stores: 16-bit weights, gradients in their type, fp32 master and moments where
it has them, its sharding and recomputation. Where a layout of memory differs by
design, a formula below says by how much, in a column of its own: nothing is
fitted to a row. What nvidia-smi shows of PyTorch also has the CUDA context, and
memory that the allocator has but does not use (CONTEXT, UNUSED).

The last column says whether the plan fits the machine, and whether it does with
the differences. --only takes rows whose name has the word; --recipes prints
them too.
"""
import argparse
import json
import os
import re
import tempfile

import published

GB, GIB = 1e9, 2**30
MACHINES = os.path.join(published.ROOT, "machines")
BENCH = os.path.join(published.ROOT, "tools/bench")
# Of memory that PyTorch's allocator has: the mean of eight models on A100s
# (GMLake, arXiv 2401.08156).
UNUSED = 0.15
# Bytes, of kernels and runtime: "cuda kernels" of BigScience's notes
# (chronicles-prequel.md).
CONTEXT = {"v100": 1271 * 2**20, "a100": 1573 * 2**20}
COMMON = {"data.train": "corpus/train", "optimizer.kind": "adamw",
          "optimizer.lr": 1e-4, "schedule.steps": 2, "run.precision": "bf16"}


def gpt(layers, dim, heads, vocab, seq, **more):
  """BigScience's GPTs: everything in 16 bits but the optimizer, recomputed."""
  keys = {"kind": "gpt", "layers": layers, "dim": dim, "heads": heads,
          "vocab": vocab, "dropout": 0.1, **more}
  return {**{f"model.{key}": value for key, value in keys.items()},
          "data.seq": seq, "run.gradients": "bf16", "run.recompute": "block"}


LLAMA_8B = {"model.kind": "llama", "model.layers": 32, "model.dim": 4096,
            "model.heads": 32, "model.kv_heads": 8, "model.ffn": 14336,
            "model.vocab": 128256}
GPT_52B = gpt(64, 8192, 32, 50688, 1024)
GPT_181B = gpt(72, 14336, 64, 250880, 2048)
# One node, all that can be in host memory, a layer's micro-batches in turn; as
# als244/dataflow's 8B: 16-bit moments, no master.
STREAMED = {**LLAMA_8B, "data.seq": 4096, "data.batch": 16,
            "run.micro_batch": 1, "run.order": "layer",
            "run.recompute": "block", "run.gradients": "bf16",
            "run.master": "none", "optimizer.moments": "bf16"}


def mesh(tensor=1, data=1, pipeline=1, zero=0, **more):
  keys = {"tensor": tensor, "data": data, "pipeline": pipeline, "zero": zero,
          "sequence": False, **more}
  return {f"parallel.{key}": value for key, value in keys.items()}


def even(layers, pipeline):
  return [layers // pipeline] * pipeline


# Bytes, by a recipe's keys: of [seq, micro_batch, dim] elements, tensor ranks.
def elements(of):
  return of["data.seq"] * of["run.micro_batch"] * of["model.dim"]


def scores(of):
  """Attention that is not fused, of the block at work: scores, their softmax
  and the mask of its dropout (Korthikanti et al. 2022: 5 a s^2 b / t), and two
  gradients in 16 bits."""
  return (9 * of["model.heads"] * of["data.seq"]**2 * of["run.micro_batch"] /
          of["parallel.tensor"])


def outputs(of):
  """Of the first stage, kept for each micro-batch under way until its
  backward."""
  return of["parallel.pipeline"] * 2 * elements(of)


def fp32_gradients(of):
  """Megatron's copy of 16-bit gradients for the optimizer, kept until the next
  step's: 4 bytes a parameter of the first stage."""
  dim = of["model.dim"]
  blocks = of["model.layers"] // of["parallel.pipeline"]
  return 4 * (12 * blocks * dim**2 + of["model.vocab"] * dim) / of[
      "parallel.tensor"]


def dropout_masks(of):
  """A byte for each output of attention, MLP and embedding; Delink draws them
  again."""
  return (2 * of["model.layers"] + 1) * elements(of)


def logits(size):
  """Of the vocabulary's loss, whole; Delink works on a chunk of tokens."""
  return lambda of: (size * of["data.seq"] * of["run.micro_batch"] *
                     of["model.vocab"] / of["parallel.tensor"])


def live(_):
  """DeepSpeed's stage 3 gathers at most 1e9 parameters (stage3_max_live_
  parameters) and buckets gradients by hidden^2; Delink has 4.5 GB of gathered
  weights and as much of whole gradients here: two of each size of slab."""
  return 2e9 + 2 * 8192**2 - 2 * 4.513e9


def torch_saved(of):
  """What op-level checkpointing keeps of a token in a block: every second
  product (q, v, w1, w2), attention and the input, less what norm+activation
  does: input, q, k, v, attention, residual, w1, w3."""
  dim, ffn = of["model.dim"], of["model.ffn"]
  theirs = 2 * (4 * dim + dim // 4 + ffn)
  ours = 2 * (4 * dim + dim // 2 + 2 * ffn)
  tokens = of["data.seq"] * of["run.micro_batch"]
  return (theirs - ours) * tokens * of["model.layers"]


def no_bf16_shard(_):
  """FSDP shards fp32 weights alone; Delink also 2 bytes each of bf16."""
  return -2 * 8.03e9 / 8


class Row:
  """`memory`: published bytes of the peak; `seen`: as "allocated", "reserved"
  or by "nvidia-smi"; `states`: between steps. `differences`: formulas above.
  `device`: another memory of the machine."""

  def __init__(self, name, machine, ranks, root, stage, seconds=None,
               memory=None, seen="allocated", fits=True, differences=(),
               device=None, states=None, note=""):
    self.name, self.machine, self.ranks = name, machine, ranks
    self.root, self.stage, self.seconds = {**COMMON, **root}, stage, seconds
    self.memory, self.seen, self.fits = memory, seen, fits
    self.differences, self.device = differences, device
    self.states, self.note = states, note

  def recipe(self):
    def lines(keys):
      return "".join(f"{key} = {json.dumps(value)}\n"
                     for key, value in keys.items())
    return lines(self.root) + "[[stage]]\n" + lines(self.stage)

  def machine_file(self, folder):
    """Its path: with other memory, a copy in the folder."""
    path = {"v100": os.path.join(BENCH, "published_v100.toml"),
            "a100": os.path.join(BENCH, "published_a100.toml"),
            "h100": os.path.join(MACHINES, "h100-80gb-8x64.toml")}[self.machine]
    if self.device is None:
      return path
    with open(path, encoding="utf-8") as file:
      text = re.sub(r'(?m)^memory = "\w+"', f'memory = "{self.device}"',
                    file.read(), count=1)
    path = os.path.join(folder, "machine.toml")
    with open(path, "w", encoding="utf-8") as file:
      file.write(text)
    return path


def bloom(name, tensor, data, pipeline, micro, seconds, memory):
  return Row(f"181B, 384 A100, {name}", "a100", 384,
             {**GPT_181B, "data.batch": 2048, "run.micro_batch": micro},
             mesh(tensor, data, pipeline, 1,
                  **{"layers": even(72, pipeline)}),
             seconds, memory * GB, "nvidia-smi",
             differences=(outputs, scores))


SMI = "nvidia-smi"
ROWS = [
    Row("52B, 64 V100, Megatron p16/m256", "v100", 64,
        {**GPT_52B, "data.batch": 1024, "run.micro_batch": 4},
        mesh(4, 1, 16, layers=even(64, 16)), (126,), 32 * GB, SMI,
        differences=(fp32_gradients, outputs, scores),
        note="217 to 225 s on other days: the network of many users"),
    Row("52B, 64 V100, DeepSpeed 3D", "v100", 64,
        {**GPT_52B, "data.batch": 1024, "run.micro_batch": 4},
        mesh(4, 1, 16, layers=even(64, 16)), (137,), 26 * GB, SMI,
        differences=(outputs, scores)),
    Row("116B, 128 V100, p32/m4", "v100", 128,
        {**gpt(64, 12288, 32, 50688, 1024), "data.batch": 4,
         "run.micro_batch": 1},
        mesh(4, 1, 32, layers=even(64, 32)), (4.234,), None, SMI,
        differences=(fp32_gradients, outputs, scores)),
    Row("52B, 64 V100, ZeRO, 48 a replica", "v100", 64,
        {**GPT_52B, "data.batch": 768, "run.micro_batch": 48},
        {**mesh(4, 16, zero=3, sequence=True), "offload.activations": "host"},
        (122, 127), 30 * GB, SMI, differences=(scores,),
        note="stage 3, tensor 4, activations divided among the tensor ranks "
        "and on the host, and 30 GB, as its script says"),
    Row("52B, 64 V100, ZeRO-3, 8 a rank", "v100", 64,
        {**GPT_52B, "data.batch": 512, "run.micro_batch": 8},
        mesh(1, 64, zero=3), (117, 118), None, SMI,
        differences=(live, scores)),
    Row("52B, 64 V100, on the host, 12 a rank", "v100", 64,
        {**GPT_52B, "data.batch": 768, "run.micro_batch": 12},
        {**mesh(1, 64, zero=3), "offload.weights": "host",
         "offload.gradients": "host", "offload.state": "host",
         "offload.update": "host"}, (177,), None, SMI, differences=(scores,)),
    bloom("TP8 PP6 DP8, micro-batch 4", 8, 8, 6, 4, (121.5,), 56),
    bloom("TP8 PP12 DP4, micro-batch 1", 8, 4, 12, 1, (143.3,), 29),
    bloom("TP8 PP12 DP4, micro-batch 4", 8, 4, 12, 4, (123.7,), 49),
    bloom("TP4 PP12 DP8, micro-batch 2", 4, 8, 12, 2, (110.5,), 44),
    Row("181B, 384 A100, TP8 DP48 PP1", "a100", 384,
        {**GPT_181B, "data.batch": 2016, "run.micro_batch": 1},
        mesh(8, 48, 1, 1), None, None, SMI, False, (outputs, scores)),
    Row("Megatron golden 7B, 8 H100", "h100", 8,
        {**gpt(32, 4096, 32, 131584, 8192, kv_heads=8, ffn=16384, tied=False),
         "data.batch": 8, "run.micro_batch": 2, "run.recompute": "none",
         "run.gradients": "fp32"},
        mesh(4, 2, zero=1), (1.115,), 57.14 * GB, states=20.66 * GB,
        differences=(dropout_masks, logits(6)),
        note="two data ranks, as 20.66 GB say; deterministic kernels, not "
        "tuned"),
    Row("Moonlight-16B, 8 H100", "h100", 8,
        {"model.kind": "moe", "model.layers": 27, "model.dim": 2048,
         "model.heads": 16, "model.head_dim": 128, "model.ffn": 11264,
         "model.vocab": 163840, "model.experts": 64, "model.top_k": 6,
         "model.expert_ffn": 1408, "model.shared_experts": 2,
         "model.dense_layers": 1, "data.seq": 4096, "data.batch": 4,
         "run.micro_batch": 1, "run.recompute": "none",
         "run.gradients": "bf16", "optimizer.moments": "bf16"},
        mesh(2, 4, zero=1, sequence=True, expert=8, dispatch="all-to-all",
             expert_room=1.0), (0.457,), 36.6 * GB,
        note="plain attention instead of latent attention; room for the mean "
        "number of tokens of an expert, as theirs has for those that come"),
    Row("Llama 3.1 8B, 8 H100, FSDP", "h100", 8,
        {**LLAMA_8B, "data.seq": 8192, "data.batch": 16, "run.micro_batch": 2,
         "run.recompute": "norm+activation"}, mesh(1, 8, zero=3),
        (2 * 8192 / 5762,), 82.4 * GIB, "reserved", device="94GiB",
        differences=(torch_saved, logits(12), no_bf16_shard),
        note="H100s of 96 GB at 500 W; segments of the allocator expand, so "
        "nothing is added for it"),
    Row("8B, one H100, 67.3 GiB", "h100", 1, STREAMED,
        {"offload.device": "67.3GiB"}, (65536 / 11700, 65536 / 11500),
        67.3 * GIB),
    Row("8B, one H100, 8.8 GiB", "h100", 1, STREAMED,
        {f"offload.{key}": "host" for key in (
            "weights", "gradients", "state", "activations", "update")},
        (65536 / 10000, 65536 / 9800), 8.8 * GIB),
]


def hold(options, row, folder):
  if options.recipes:
    print(f"# {row.name}\n{row.recipe()}")
  machine = row.machine_file(folder)
  answer = published.plan(options, row.recipe(), row.ranks, machine)
  stage = answer["stages"][0]
  of = {"parallel.tensor": 1, "parallel.pipeline": 1, **row.root, **row.stage}
  more = sum(formula(of) for formula in row.differences)
  whole = answer["peak_bytes"] + more
  seen = whole
  if row.seen == SMI:
    seen = whole / (1 - UNUSED) + CONTEXT[row.machine]
  return {"row": row, "seconds": stage["seconds_per_step"],
          "planned": answer["peak_bytes"], "more": more, "seen": seen,
          "fits": answer["machine"]["fits"],
          "fits_too": whole <= answer["machine"]["device_bytes"],
          "states": sum(stage["bytes"][key] for key in (
              "weights", "gradients", "state"))}


def gb(size):
  return f"{size / GB:.1f}" if size else ""


def error(planned, measured, digits):
  return f"{100 * (planned / measured - 1):+.{digits}f} %" if measured else ""


def line(held):
  row, word = held["row"], {True: "yes", False: "no"}
  seconds = row.seconds or ()
  mean = sum(seconds) / len(seconds) if seconds else None
  cells = [row.name, " to ".join(f"{each:.4g}" for each in seconds),
           f"{held['seconds']:.4g}", error(held["seconds"], mean, 0),
           gb(row.memory), gb(held["planned"]), gb(held["more"]),
           gb(row.memory and held["seen"]),
           error(held["seen"], row.memory, 1),
           word[row.fits], f"{word[held['fits']]}, {word[held['fits_too']]}"]
  print(f"| {' | '.join(cells)} |")
  if row.states:
    print(f"| the same, between steps | | | | {row.states / GB:.2f} "
          f"| {held['states'] / GB:.2f} | | {held['states'] / GB:.2f} "
          f"| {error(held['states'], row.states, 1)} | | |")


def main():
  parser = argparse.ArgumentParser()
  parser.add_argument("--delink", default="delink")
  parser.add_argument("--only", default="")
  parser.add_argument("--recipes", action="store_true")
  options = parser.parse_args()
  options.delink = os.path.abspath(options.delink)
  print("| run | seconds | planned | error | GB | planned | differences "
        "| as seen | error | fits | planned, with differences |")
  print("|" + "---|" * 11)
  with tempfile.TemporaryDirectory() as folder:
    rows = [row for row in ROWS if options.only in row.name]
    for row in rows:
      line(hold(options, row, folder))
  for row in rows:
    if row.note:
      print(f"\n{row.name}: {row.note}.")


if __name__ == "__main__":
  main()
