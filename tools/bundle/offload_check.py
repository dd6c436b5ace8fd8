"""What `gpu_check.py offload` measures and what it foretells: steps with planes
at home on the host, as percent of the speed with all on the device.

A prediction takes rates of the machine and knows no more of a model than its
parameters: forward takes 2 FLOPs of a parameter and token, backward 4, and 2
more where blocks are computed again. All micro-batches pass a layer before the
next one is fetched, so what moves does so once a pass: forward takes as long as
its products, as what comes in, as what goes out or as the host's updates,
whichever is longest, and so does backward. Updates run under the next forward.
"""

import dataclasses
import os

GIB = 1 << 30
# Bytes of a parameter: bf16 weights and gradients, the lower half of the master
# and two moments in bf16.
WEIGHT, GRADIENT, STATE = 2, 2, 6
FORM = ("run.gradients=bf16", "run.master=split", "optimizer.moments=bf16",
        "run.order=layer")
SEQ = 1024  # tokens of a sequence
MICRO_BATCH = 8  # sequences
CAP = "24GiB"
# Of the host, assumed where nothing runs.
HOST = 1024 * GIB


@dataclasses.dataclass(frozen=True)
class Model:
  """Of the shape of a bench, with other sizes."""
  shape: str
  layers: int
  dim: int
  heads: int
  kv_heads: int
  ffn: int
  vocab: int
  tied: bool

  def block(self):
    kv = self.dim * self.kv_heads // self.heads
    return 2 * self.dim * (self.dim + kv) + 3 * self.dim * self.ffn

  def ends(self):
    return (1 if self.tied else 2) * self.vocab * self.dim

  def parameters(self):
    return self.layers * self.block() + self.ends()

  def sets(self):
    return [f"model.{key}={value}" for key, value in (
        ("layers", self.layers), ("dim", self.dim), ("heads", self.heads),
        ("kv_heads", self.kv_heads), ("ffn", self.ffn), ("vocab", self.vocab),
        ("tied", str(self.tied).lower()))]


QWEN_3B = Model("qwen-3b", 36, 2048, 16, 2, 11008, 151936, True)
LLAMA_8B = Model("qwen-7b", 32, 4096, 32, 8, 14336, 128256, False)
TINY = Model("llama-tiny", 2, 32, 2, 1, 64, 256, False)

# The host-resident planes, and a stage's `offload` for each.
HOMES = {
    "states, updated by the device": 'state="host"',
    "states, updated by the host":
        'weights="device",gradients="device",update="host"',
    "all, updated by the host":
        'weights="host",gradients="host",update="host"',
}


@dataclasses.dataclass(frozen=True)
class Rates:
  """A second."""
  flops: float  # that products in bf16 reach
  to_device: float  # bytes, both ways at once
  to_host: float
  device_update: float  # parameters
  host_update: float


# Of one H100 SXM with a host of 16 cores, assumed.
# The device reads and writes 18 bytes a parameter at 3 TB/s.
ASSUMED = Rates(flops=500e12, to_device=45e9, to_host=45e9,
                device_update=3e12 / (2 * STATE + 2 * WEIGHT + GRADIENT),
                host_update=6e9)


def measured(machine):
  """From `delink bench --suite machine`. What was not measured is 0."""
  bf16 = [row for row in machine["products"] if row["dtype"] == "bf16"]
  large = max(bf16, key=lambda row: row["smallest"], default={})

  def update(place):
    return max((row["parameters_per_s"] for row in machine["updates"]
                if row["place"] == place and row["master"] == "split"
                and row["moments"] == "bf16"), default=0)
  bus = machine["pinned"]
  return Rates(flops=large.get("flops_per_s", 0),
               to_device=bus["both_to_device_bytes_per_s"],
               to_host=bus["both_to_host_bytes_per_s"],
               device_update=update("device"), host_update=update("host"))


def seconds(rates, model, tokens, homes):
  """Of a step. `homes` None: all is on the device."""
  parameters = model.parameters()
  forward = 2 * parameters * tokens / rates.flops
  backward = 3 * forward
  on_host = homes is not None and "update" in homes  # the updates
  if not on_host:
    forward += parameters / rates.device_update
  if homes is None:
    return forward + backward
  # Bytes in and out, forward and backward, and seconds of the host.
  into = out = parameters * STATE
  back_into = back_out = host = 0
  if on_host:
    into, out, host = parameters * WEIGHT, 0, parameters / rates.host_update
    back_out = parameters * GRADIENT
    if 'weights="host"' in homes:
      back_into = parameters * WEIGHT
  return (max(forward, into / rates.to_device, out / rates.to_host, host) +
          max(backward, back_into / rates.to_device, back_out / rates.to_host))


def as_fast_as(rates, model, tokens, step):
  """The rates with the speed of products that a step of `step` seconds reaches
  with everything on the device; attention and all other work are counted in."""
  update = model.parameters() / rates.device_update
  return dataclasses.replace(
      rates, flops=8 * model.parameters() * tokens / (step - update))


def percent(rates, model, tokens, homes):
  return 100 * seconds(rates, model, tokens, None) / seconds(
      rates, model, tokens, homes)


def cases():
  """Model, tokens of a step and homes of the table."""
  return [(QWEN_3B, tokens, name) for tokens in (16384, 65536)
          for name in HOMES]


def within(budget):
  """What a stage's `offload` says that may have so much of the device."""
  return f'device="{budget}"'


def most_layers(model, host_bytes):
  """Blocks of a host with so many bytes, which has the ends, too."""
  a_parameter = WEIGHT + GRADIENT + STATE
  left = host_bytes - model.ends() * a_parameter
  return max(0, int(left // (model.block() * a_parameter)))


def with_layers(model, layers):
  return dataclasses.replace(model, layers=layers)


def available_memory():
  """Of the host, bytes."""
  with open("/proc/meminfo", encoding="utf-8") as file:
    for line in file:
      if line.startswith("MemAvailable:"):
        return 1024 * int(line.split()[1])
  return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def words(model, tokens, homes):
  """Of `delink bench`."""
  said = ["--suite", "step", "--shape", model.shape, "--seq", str(SEQ),
          "--batch", str(tokens // SEQ), "--share", "none", "--precision",
          "bf16", "--recompute", "block",
          # Of the machine nothing more is wanted: five steps, quickly begun.
          "--quick", "--steps", "5"]
  sets = [*model.sets(), *FORM, f"run.micro_batch={MICRO_BATCH}"]
  if homes is not None:
    sets.append(f"stage.0.offload={{{homes}}}")
  for value in sets:
    said += ["--set", value]
  return said
