"""What the rounds of peers.sh amount to: peer_ratios.py FOLDER.

FOLDER holds N.delink.json (of `delink bench --suite step --json`) and
N.eager.json, N.compile.json (of torch_peer.py; with experts -loop or -grouped
after the mode) for rounds N = 1, 2, ...
Speed is ours over the peer's of the same round, the peer being the one that is
fastest at the median. Memory is what is resident beyond 16 bytes a parameter
(weight, gradient and two moments in fp32): ours of the whole process, torch's
above an idle `import torch`; on a GPU, what of it is taken.
"""

import json
import os
import statistics
import sys

BYTES_A_PARAMETER = 16
MIB = 2.0 ** 20


def read_rounds(folder):
  """Measurements by who, in the order of rounds."""
  rounds = {"delink": []}
  for name in sorted(os.listdir(folder), key=lambda n: int(n.split(".")[0])):
    who = name.split(".")[1]
    with open(os.path.join(folder, name), encoding="utf-8") as file:
      measured = json.load(file)
    rounds.setdefault(who, []).append(
        measured["steps"][0] if who == "delink" else measured)
  return rounds


def spread(values, decimals):
  """Median (least - most)."""
  return "{:.{d}f} ({:.{d}f} - {:.{d}f})".format(
      statistics.median(values), min(values), max(values), d=decimals)


def speeds(measured):
  return [m["tokens_per_s"] for m in measured]


def beyond_parameters(measured, peak, idle=lambda m: 0):
  """Median bytes beyond those that every trainer has to hold."""
  parameters = measured[0].get("parameters",
                               measured[0].get("unique_parameters"))
  return statistics.median(
      peak(m) - idle(m) - BYTES_A_PARAMETER * parameters for m in measured)


def report(rounds):
  ours = rounds["delink"]
  lines = []
  peers = sorted((who for who in rounds if who != "delink"), reverse=True)
  for who in ["delink", *peers]:
    name = rounds[who][0].get("peer", "delink")
    lines.append(f"  {name:28} tokens/s {spread(speeds(rounds[who]), 0)}")
  best = max(peers, key=lambda who: statistics.median(speeds(rounds[who])))
  ratios = [a / b for a, b in zip(speeds(ours), speeds(rounds[best]))]
  lines.append(f"  speed, ours over {best}'s: {spread(ratios, 2)}")
  mine = beyond_parameters(
      ours, lambda m: m.get("device_bytes") or m["peak_resident_bytes"])
  for who in peers:
    theirs = beyond_parameters(rounds[who], lambda m: m["peak_bytes"],
                               lambda m: m["idle_bytes"])
    lines.append(f"  memory beyond 16 bytes a parameter: ours {mine / MIB:.0f} "
                 f"MiB, {who}'s {theirs / MIB:.0f} MiB: {mine / theirs:.2f}")
  return "\n".join(lines)


if __name__ == "__main__":
  print(report(read_rounds(sys.argv[1])))
