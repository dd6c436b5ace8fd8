"""What `gpu_check.py moe` measures: steps of mixtures of experts, and of the dense
model that does the same work for a token.

Tokens are random, so that the loads of experts are nearly even, or of a few ids:
equal tokens choose the same experts, of which some are idle and others have
several times the mean.
"""

import dataclasses

SEQ, TOKENS = 2048, 8192
IDS = 16  # of tokens, for uneven loads
# 10 bytes of a parameter: what one GPU holds of the largest.
FORM = ("run.gradients=bf16", "run.master=split", "optimizer.moments=bf16")


@dataclasses.dataclass(frozen=True)
class Model:
  """Blocks of a published model, and as many of them as fit."""
  layers: int
  dim: int
  heads: int
  kv_heads: int
  experts: int
  top_k: int
  ffn: int  # of an expert
  vocab: int
  head_dim: int

  def sets(self, dense):
    sizes = {"layers": self.layers, "dim": self.dim, "heads": self.heads,
             "kv_heads": self.kv_heads, "head_dim": self.head_dim,
             "ffn": self.top_k * self.ffn, "vocab": self.vocab,
             "tied": "false", "qkv_bias": "false", "qk_norm": "true"}
    if not dense:
      sizes |= {"experts": self.experts, "top_k": self.top_k,
                "expert_ffn": self.ffn}
    return [f"model.{key}={value}" for key, value in sizes.items()]


QWEN3_30B = Model(8, 2048, 32, 4, 128, 8, 768, 151936, 128)
MODELS = {
    "8 blocks of Qwen3-30B-A3B": QWEN3_30B,
    "16 blocks of Qwen3-30B-A3B": dataclasses.replace(QWEN3_30B, layers=16),
    "OLMoE-1B-7B": Model(16, 2048, 16, 16, 64, 8, 1024, 50304, 128),
}
TINY = {"tiny": Model(2, 32, 2, 1, 8, 2, 16, 256, 16)}


def words(model, seq, tokens, dense, uneven):
  """Of `delink bench`."""
  said = ["--suite", "step", "--shape", "llama-tiny" if dense else "moe-tiny",
          "--seq", str(seq), "--batch", str(tokens // seq), "--share", "none",
          "--precision", "bf16", "--recompute", "norm+activation",
          # Of the machine nothing more is wanted than its matmul's peak.
          "--quick", "--steps", "10"]
  if uneven:
    said += ["--distinct", str(IDS)]
  for value in [*model.sets(dense), *FORM]:
    said += ["--set", value]
  return said


def cases(device):
  """Names, and words of `delink bench` for each."""
  models, seq, tokens = MODELS, SEQ, TOKENS
  if device == "cpu":
    models, seq, tokens = TINY, 32, 64
  kinds = {"even loads": (False, False), f"tokens of {IDS} ids":
           (False, True), "dense": (True, False)}
  return [(f"{name}, {kind}", words(model, seq, tokens, *how))
          for name, model in models.items() for kind, how in kinds.items()]


def figures(step):
  """TFLOP/s are 6 FLOPs of an active parameter and token."""
  active = step["active_parameters"]
  rate = 6e-12 * active * step["tokens_per_s"]
  return (f"{step['tokens_per_s']:.0f} tokens/s, {rate:.3g} TFLOP/s of "
          f"{active / 1e9:.3g}B active of {step['unique_parameters'] / 1e9:.3g}B "
          f"parameters, {step['percent_of_peak']:.1f} % of peak, "
          f"{step['allocated_bytes'] / 2**30:.1f} GiB")
