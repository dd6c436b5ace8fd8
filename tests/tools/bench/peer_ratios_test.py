"""What rounds of peers.sh amount to, against sums made by hand."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                      "../../../tools/bench/peer_ratios.py")
MIB = 2 ** 20


def ours(speed, resident_mib):
  return {"steps": [{"tokens_per_s": speed, "unique_parameters": MIB,
                     "peak_resident_bytes": resident_mib * MIB}]}


def torch(mode, speed, peak_mib):
  return {"peer": f"torch 9 {mode}", "tokens_per_s": speed, "parameters": MIB,
          "idle_bytes": 100 * MIB, "peak_bytes": peak_mib * MIB}


def report(rounds):
  """Of {"1.delink": measurement, ...}, the lines."""
  with tempfile.TemporaryDirectory() as folder:
    for name, measured in rounds.items():
      with open(os.path.join(folder, name + ".json"), "w",
                encoding="utf-8") as file:
        json.dump(measured, file)
    return subprocess.run([sys.executable, "-B", SCRIPT, folder], check=True,
                          stdout=subprocess.PIPE, text=True).stdout


class PeerRatios(unittest.TestCase):

  def test_the_faster_peer_counts(self):
    text = report({
        "1.delink": ours(150, 20), "1.eager": torch("eager", 80, 140),
        "1.compile": torch("compile", 100, 150),
        "2.delink": ours(180, 20), "2.eager": torch("eager", 90, 140),
        "2.compile": torch("compile", 100, 150),
        "10.delink": ours(120, 20), "10.eager": torch("eager", 300, 140),
        "10.compile": torch("compile", 80, 150)})
    self.assertIn("ours over compile's: 1.50 (1.50 - 1.80)", text)
    self.assertRegex(text, r"delink +tokens/s 150 \(120 - 180\)")
    self.assertRegex(text, r"torch 9 eager +tokens/s 90 \(80 - 300\)")

  def test_experts_have_two_forms(self):
    text = report({
        "1.delink": ours(150, 20), "1.eager-loop": torch("eager loop", 80, 140),
        "1.eager-grouped": torch("eager grouped", 100, 150)})
    self.assertIn("ours over eager-grouped's: 1.50", text)
    self.assertRegex(text, r"torch 9 eager loop +tokens/s 80")

  def test_memory_is_beyond_the_parameters(self):
    text = report({"1.delink": ours(1, 28), "1.eager": torch("eager", 1, 140)})
    # 28 - 16, and 140 - 100 - 16.
    self.assertIn("ours 12 MiB, eager's 24 MiB: 0.50", text)
    self.assertNotIn("compile", text)

  def test_of_a_gpu_it_is_the_gpus(self):
    mine = ours(1, 1000)
    mine["steps"][0]["device_bytes"] = 40 * MIB
    text = report({"1.delink": mine, "1.eager": torch("eager", 1, 140)})
    self.assertIn("ours 24 MiB, eager's 24 MiB: 1.00", text)


if __name__ == "__main__":
  unittest.main()
