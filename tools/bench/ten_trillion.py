#!/usr/bin/python3
"""The table of docs/ten-trillion.md: plans of M6-10T's model on 512 GPUs.

  tools/bench/ten_trillion.py [--delink PROGRAM]
"""
import argparse
import json
import os
import subprocess

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
RUNS = [("512 V100-32GB", "m6_10t_v100", "v100-32gb-8x64"),
        ("512 H100-80GB", "m6_10t_v100", "h100-80gb-8x64"),
        ("512 H200", "m6_10t_h200", "h200-8x64")]
GIB = 2**30


def plan(delink, recipe, machine):
  done = subprocess.run(
      [delink, "plan", f"{ROOT}/recipes/{recipe}.toml", "--ranks", "512",
       "--machine", f"{ROOT}/machines/{machine}.toml", "--json"],
      capture_output=True, text=True, check=True)
  return json.loads(done.stdout)


def exchanged(stage, kinds):
  """Bytes of activations that a token sends through such an exchange."""
  rank = stage["exchanges"][0]["rank"]
  sent = sum(of["bytes"] for of in stage["exchanges"]
             if of["rank"] == rank and of["what"] == "activations"
             and of["kind"] in kinds)
  share = stage["flops_per_step"] / stage["flops_per_token"] / 512
  return sent / share / 1e6


def cells(stage):
  """Of a column of the table, in the order of LABELS."""
  parts = [f"{100 * seconds / stage['seconds_per_step']:.0f} % {word}"
           for word, seconds in stage["critical_path"].items()
           if seconds > 0.04 * stage["seconds_per_step"]]
  return [stage["layout"].split(";")[0],
          f"{stage['bytes']['total'] / GIB:.1f} GiB",
          f"{stage['bytes'].get('host', 0) / GIB:.1f} GiB",
          f"{stage['saves']['bytes_of_node'] / GIB:.0f} GiB",
          f"{exchanged(stage, ['all-to-all of nodes']):.0f} MB",
          f"{exchanged(stage, ['all-to-all within a node']):.0f} MB",
          f"{stage['seconds_per_step']:.1f}",
          f"{stage['tokens_per_second'] / 1e3:.0f} k",
          ", ".join(parts)]


LABELS = ["layout", "memory of a rank's device", "host memory of a rank",
          "checkpoint, on the disk of a node",
          "sent between nodes by a token's share", "sent within a node",
          "seconds a step", "tokens/s", "critical path"]


def main():
  parser = argparse.ArgumentParser()
  parser.add_argument("--delink", default="delink")
  options = parser.parse_args()
  for name, recipe, machine in RUNS:
    plans = plan(options.delink, recipe, machine)
    pseudo, real = plans["stages"]
    print(f"\n**{name}**, `{recipe}.toml`\n\n| | pseudo | real |\n|---|---|---|")
    for row in zip(LABELS, cells(pseudo), cells(real)):
      print("| " + " | ".join(row) + " |")
    switch = real["switch"]
    print(f"\nFits: {'yes' if plans['machine']['fits'] else 'no'}. The switch: "
          f"{switch['bytes_of_rank'] / GIB:.1f} GiB a rank in "
          f"{switch['seconds']:.1f} s. The run takes {plans['days']:.2f} days.")


if __name__ == "__main__":
  main()
