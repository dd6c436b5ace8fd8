#!/usr/bin/python3
"""`delink convert` both ways, compared with fio for the same reads and writes.

  tools/bench/convert.py --folder DIR [--delink PROGRAM] [--layers N]
                         [--dtype bf16|fp32] [--rounds N] [--json]

Writes a model of random numbers with the shape of Llama 3.2 3B to DIR, in
shards of 5 GB; DIR needs room for about four times the model. Converts it to a
checkpoint and the checkpoint back, and compares the resulting tensors with the
original ones. Before each conversion its input is dropped from the page cache.
fio then reads and writes as many bytes at the same time, in blocks of 1 MiB,
with an fsync at the end. All this is repeated for several rounds, since the
speed of a shared disk varies. Prints for each way the bytes read and written,
the seconds of all rounds, the largest resident memory, fio's seconds, and the
speed as a fraction of fio's: the median of the rounds.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time

import numpy

SHARD = 5_000_000_000
VOCAB, DIM, FFN, HEADS, KV, HEAD_DIM = 128256, 3072, 8192, 24, 8, 128


def tensors(layers):
  """Names and shapes, as the family has them."""
  yield "model.embed_tokens.weight", (VOCAB, DIM)
  for i in range(layers):
    layer = f"model.layers.{i}."
    yield layer + "input_layernorm.weight", (DIM,)
    yield layer + "self_attn.q_proj.weight", (HEADS * HEAD_DIM, DIM)
    for name in ("k", "v"):
      yield layer + f"self_attn.{name}_proj.weight", (KV * HEAD_DIM, DIM)
    yield layer + "self_attn.o_proj.weight", (DIM, HEADS * HEAD_DIM)
    yield layer + "post_attention_layernorm.weight", (DIM,)
    for name in ("gate", "up"):
      yield layer + f"mlp.{name}_proj.weight", (FFN, DIM)
    yield layer + "mlp.down_proj.weight", (DIM, FFN)
  yield "model.norm.weight", (DIM,)


def config(layers):
  return {"architectures": ["LlamaForCausalLM"], "model_type": "llama",
          "vocab_size": VOCAB, "hidden_size": DIM, "num_hidden_layers": layers,
          "num_attention_heads": HEADS, "num_key_value_heads": KV,
          "head_dim": HEAD_DIM, "intermediate_size": FFN,
          "max_position_embeddings": 8192, "rms_norm_eps": 1e-5,
          "rope_theta": 500000.0, "tie_word_embeddings": True,
          "hidden_act": "silu", "attention_bias": False, "mlp_bias": False}


def random_bytes(count, size):
  """Numbers of either sign from 2^-8 to 2, of 2 or 4 bytes each."""
  random = numpy.random.default_rng(count)
  kind, sign, low, span = ((numpy.uint16, 15, 119 << 7, 8 << 7) if size == 2
                           else (numpy.uint32, 31, 119 << 23, 8 << 23))
  block = random.integers(0, span, 1 << 22, dtype=kind) + kind(low)
  block |= random.integers(0, 2, 1 << 22, dtype=kind) << kind(sign)
  for first in range(0, count, len(block)):
    yield block[:count - first].tobytes()


def make_model(folder, options):
  os.makedirs(folder)
  with open(folder + "/config.json", "w", encoding="utf-8") as file:
    json.dump(config(options.layers), file)
  size, dtype = (2, "BF16") if options.dtype == "bf16" else (4, "F32")
  shards, room = [], 0
  for name, shape in tensors(options.layers):
    count = int(numpy.prod(shape))
    if not shards or room < count * size:
      shards.append([])
      room = SHARD
    shards[-1].append((name, shape, count))
    room -= count * size
  index = {}
  for number, shard in enumerate(shards, 1):
    file_name = f"model-{number:05}-of-{len(shards):05}.safetensors"
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, shape, count in shard:
      header[name] = {"dtype": dtype, "shape": shape,
                      "data_offsets": [end, end + count * size]}
      end += count * size
      index[name] = file_name
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(f"{folder}/{file_name}", "wb") as file:
      file.write(len(text).to_bytes(8, "little") + text)
      for _, _, count in shard:
        for block in random_bytes(count, size):
          file.write(block)
      file.flush()
      os.fsync(file.fileno())
  with open(folder + "/model.safetensors.index.json", "w",
            encoding="utf-8") as file:
    json.dump({"metadata": {}, "weight_map": index}, file)


def files_of(folder):
  for path, _, names in os.walk(folder):
    for name in names:
      yield os.path.join(path, name)


def size_of(folder):
  return sum(os.path.getsize(path) for path in files_of(folder))


def let_go(folder):
  """Of what the cache has of these files, once all is written."""
  for path in files_of(folder):
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def convert(options, source, target, words):
  """Seconds, and the largest resident memory in bytes."""
  let_go(source)
  begin = time.monotonic()
  child = subprocess.Popen(
      [options.delink, "convert", source, target, *words],
      stdout=subprocess.DEVNULL)
  _, status, usage = os.wait4(child.pid, 0)
  child.returncode = os.waitstatus_to_exitcode(status)
  if child.returncode != 0:
    sys.exit(f"delink convert {source} {target} ended with "
             f"{child.returncode}")
  return time.monotonic() - begin, usage.ru_maxrss * 1024


def fio(folder, read, write):
  """Seconds until both are done."""
  common = [f"--directory={folder}", "--bs=1M", "--ioengine=psync",
            "--thread", "--invalidate=1", "--fallocate=native"]
  job = ["--name=read", "--rw=read", f"--size={read}", "--filename=fio-read",
         "--name=write", "--rw=write", f"--size={write}",
         "--filename=fio-write", "--end_fsync=1"]
  # What is to be read is laid out before, and is not in the cache.
  subprocess.run(["fio", *common, *job[:4], "--rw=write", "--end_fsync=1"],
                 check=True, stdout=subprocess.DEVNULL)
  done = subprocess.run(["fio", "--output-format=json", *common, *job],
                        check=True, text=True, stdout=subprocess.PIPE)
  for name in ("fio-read", "fio-write"):
    os.remove(os.path.join(folder, name))
  return max(part["job_runtime"]
             for part in json.loads(done.stdout)["jobs"]) / 1e3


def data_of(folder):
  """Where each tensor's bytes are: path, first, count."""
  places = {}
  for path in files_of(folder):
    if not path.endswith(".safetensors"):
      continue
    with open(path, "rb") as file:
      length = int.from_bytes(file.read(8), "little")
      header = json.loads(file.read(length))
    for name, entry in header.items():
      if name != "__metadata__":
        begin, end = entry["data_offsets"]
        places[name] = (path, 8 + length + begin, end - begin)
  return places


def pieces_of(place, most=1 << 26):
  """Its bytes, some at a time: what this program holds counts for its children
  too (ru_maxrss)."""
  path, first, count = place
  with open(path, "rb") as file:
    file.seek(first)
    for begin in range(0, count, most):
      yield file.read(min(most, count - begin))


def check_equal(before, after):
  ours, theirs = data_of(before), data_of(after)
  if ours.keys() != theirs.keys():
    sys.exit("the converted model has other tensors: "
             f"{ours.keys() ^ theirs.keys()}")
  for name, place in ours.items():
    if place[2] != theirs[name][2] or any(
        ours != back for ours, back in
        zip(pieces_of(place), pieces_of(theirs[name]))):
      sys.exit(f"{name}: other bits after converting there and back")


def measure(work, options):
  """A round: both ways, and fio's."""
  model, checkpoint, back = (f"{work}/{name}"
                             for name in ("model", "checkpoint", "back"))
  ways = []
  for name, source, target, words in (
      ("in", model, checkpoint, []),
      ("out", checkpoint, back,
       ["--to", "huggingface", "--dtype", options.dtype])):
    seconds, resident = convert(options, source, target, words)
    ways.append({"way": name, "read": size_of(source),
                 "written": size_of(target), "seconds": seconds,
                 "resident": resident})
  check_equal(model, back)
  for folder in (checkpoint, back):
    shutil.rmtree(folder)
  for way in ways:
    way["fio_seconds"] = fio(work, way["read"], way["written"])
  return ways


def report(ways, options):
  """One way, of all rounds."""
  way = dict(ways[0], resident=max(w["resident"] for w in ways),
             seconds=[w["seconds"] for w in ways],
             fio_seconds=[w["fio_seconds"] for w in ways])
  way["of_fio"] = statistics.median(w["fio_seconds"] / w["seconds"]
                                    for w in ways)
  if options.json:
    print(json.dumps(way))
    return
  mine, theirs = (", ".join(f"{s:.1f}" for s in way[key])
                  for key in ("seconds", "fio_seconds"))
  print(f"{way['way']:3}  read {way['read'] / 1e9:.2f} GB, "
        f"written {way['written'] / 1e9:.2f} GB in {mine} s, "
        f"{way['resident'] / 1e6:.0f} MB resident; fio {theirs} s: "
        f"{100 * way['of_fio']:.0f} %")


def main():
  parser = argparse.ArgumentParser(
      description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
  parser.add_argument("--folder", required=True)
  parser.add_argument("--delink", default="delink")
  parser.add_argument("--layers", type=int, default=28)
  parser.add_argument("--dtype", choices=("bf16", "fp32"), default="bf16")
  parser.add_argument("--rounds", type=int, default=5)
  parser.add_argument("--json", action="store_true")
  options = parser.parse_args()
  if shutil.which("fio") is None:
    sys.exit("fio is missing: apt-get install fio")
  work = os.path.join(options.folder, "convert-bench")
  os.makedirs(work)
  try:
    make_model(work + "/model", options)
    rounds = [measure(work, options) for _ in range(options.rounds)]
  finally:
    shutil.rmtree(work)
  for ways in zip(*rounds):
    report(ways, options)


if __name__ == "__main__":
  main()
