"""How threads wait, as GCC's OpenMP itself tells it when it is loaded: as
documented, unless the environment says otherwise; under mpirun too.

usage: waiting_threads.py DELINK CLI.MD

Exit status 77: skipped, it is another OpenMP.
"""

import os
import re
import shutil
import subprocess
import sys

OURS = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "KMP_LIBRARY",
        "GLIBC_TUNABLES")
# A person's own, so that the program does not restart itself for huge pages.
OWN = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=0"}


def told(delink, launcher=(), **variables):
  """The rounds that OpenMP is to spin, as it last says, and how often it is
  loaded."""
  environment = {name: value for name, value in os.environ.items()
                 if name not in OURS}
  environment.update(variables, OMP_DISPLAY_ENV="VERBOSE")
  done = subprocess.run([*launcher, delink, "--help"], env=environment,
                        capture_output=True, text=True, check=True)
  assert "train" in done.stdout, "the arguments were lost"
  rounds = re.findall(r"GOMP_SPINCOUNT = '(\d+)'", done.stderr)
  return (rounds[-1] if rounds else None,
          done.stderr.count("OPENMP DISPLAY ENVIRONMENT BEGIN"))


def main():
  delink = os.path.abspath(sys.argv[1])
  with open(sys.argv[2], encoding="utf-8") as file:
    documented = re.search(r"`GOMP_SPINCOUNT=(\d+)`", file.read())[1]
  rounds, times = told(delink)
  if rounds is None:
    print("SKIPPED: this build's OpenMP is not GCC's")
    sys.exit(77)
  assert (rounds, times) == (documented, 2), (rounds, times, documented)
  if shutil.which("mpirun"):
    assert told(delink, ("mpirun", "-np", "1")) == (documented, 2)
  # It restarts once for both.
  assert told(delink, **OWN) == (documented, 2)
  # A person's own word, whichever it is.
  assert told(delink, OMP_WAIT_POLICY="passive") == ("0", 2)
  assert told(delink, OMP_WAIT_POLICY="passive", **OWN) == ("0", 1)
  assert told(delink, GOMP_SPINCOUNT="123", **OWN) == ("123", 1)
  for name in ("KMP_BLOCKTIME", "KMP_LIBRARY"):
    rounds, times = told(delink, **{name: "5"}, **OWN)
    assert rounds != documented and times == 1, (name, rounds, times)


main()
