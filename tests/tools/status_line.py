"""The status line of a run as a terminal gets it: live, behind a bar, never
wider than the terminal, under mpirun too; and plain lines elsewhere.

usage: status_line.py DELINK RECIPE

Exit status 77: skipped, there is no mpirun.
"""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios

import runs

DELINK, RECIPE = os.path.abspath(sys.argv[1]), sys.argv[2]
LIVE = "\r\033[K"
FULL = " MiB"  # the last of a line


def set_width(terminal, columns):
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))


def seen(words, columns, then=None, **variables):
    """What a terminal of so many columns gets; of `then` from the first live line on."""
    terminal, end = pty.openpty()
    set_width(terminal, columns)
    process = subprocess.Popen(words, stdin=end, stdout=end, stderr=end, env={**os.environ, "TERM": "xterm", **variables})
    os.close(end)
    told = b""
    while True:
        try:
            told += os.read(terminal, 1 << 16)
        except OSError:  # all who wrote are gone
            break
        if then and b"%  step" in told:
            set_width(terminal, then)
            then = None
    os.close(terminal)
    assert process.wait() == 0, told.decode()
    return told.decode().replace("\r\n", "\n")


def live(told):
    """The live lines, as they came."""
    lines = [piece.split("\n")[0].split("\r")[0] for piece in told.split(LIVE)[1:]]
    return [line for line in lines if re.match(r"(\[[#.]{10}\] +\d+%  )?step \d+/\d+", line)]


def check_wide(told, out, columns):
    lines = live(told)
    assert lines and all(len(line) < columns for line in lines), (columns, lines)
    bars = [line for line in lines if line.startswith("[")]
    assert bars, told
    for line in bars:
        step, steps = map(int, re.search(r"step (\d+)/(\d+)", line).groups())
        assert line.count("#") == 10 * step // steps and f" {100 * step // steps}%" in line, line
        assert "loss" in line and " left" in line, line
    assert "tokens/s" in bars[0], bars
    # Lines that stay are cut on the terminal, not in the log.
    stay = [line.split(LIVE)[-1] for line in told.split("\n") if "step 1/" in line]
    assert len(stay) == 1 and len(stay[0]) < columns and FULL not in stay[0], stay
    with open(os.path.join(out, "log.txt"), encoding="utf-8") as file:
        log = file.read()
    assert re.search(f"(?m)^step 1/.*{FULL}$", log) and "\033" not in log and "#" not in log, log


def main():
    runs.skip_without_mpirun()
    with tempfile.TemporaryDirectory() as folder:
        corpus, out = runs.build_corpus(DELINK, folder), os.path.join(folder, "run")
        train = [DELINK, "train", RECIPE, "--out", out, "--overwrite", "--threads", "1", "--set",
                 f"data.train={corpus}/train", "--set", "data.batch=16", "--set", "run.validate_every=0",
                 "--set", "run.log_every=1000", "--set"]
        many, few = train + ["schedule.steps=60"], train + ["schedule.steps=2", "--set", "stage.0.until.steps=1"]
        mpirun = ["mpirun", "-np", "2"]

        told = seen(many, 100, then=66)
        check_wide(told, out, 100)
        assert len(live(told)[0]) > 66 > len(live(told)[-1]), live(told)
        check_wide(seen(mpirun + many, 80), out, 80)
        lines = live(seen(mpirun + many, 30))
        assert lines and all(len(line) < 30 and "loss" in line for line in lines), lines

        path = os.path.join(folder, "output")
        for name, words in {
                "a file": ["sh", "-c", f"\"$@\" 2>{path}", "sh"] + few,
                "a file, by mpirun": ["sh", "-c", f"\"$@\" 2>{path}", "sh"] + mpirun + few,
                "a pipe within mpirun": mpirun + ["sh", "-c", f"\"$@\" 2>&1 | cat >>{path}", "sh"] + few}.items():
            assert "step" not in seen(words, 80), name
            with open(path, encoding="utf-8") as file:
                plain = file.read()
            assert "\033" not in plain and re.search(f"(?m)^step 1/2 .*{FULL}$", plain), (name, plain)
            os.remove(path)
        dumb = seen(few, 80, TERM="dumb")
        assert "\033" not in dumb and re.search(f"(?m)^step 1/2 .*{FULL}$", dumb), dumb


main()
