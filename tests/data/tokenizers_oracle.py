"""Holds our tokenizer.json against the `tokenizers` library, line by line.

  tokenizers_oracle.py ENCODE_LINES [--megabytes N] [TOKENIZER.json...]

ENCODE_LINES prints our ids of the lines it reads. The text is what this machine
has of code, documentation and manual pages, then lines with accents, emoji, CJK,
marks and white space of all kinds, drawn with a fixed seed. Without files five
tokenizers are trained on it, one for each kind of pre-tokenizer. Exit status 77:
skipped, the package is not installed (tools/test.sh brings it).
"""
import argparse
import glob
import gzip
import os
import random
import subprocess
import sys
import tempfile
import time
import unicodedata

sys.path.insert(0, os.path.join(
    os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")),
    "delink", "python"))
try:
  import tokenizers
  # Without the library the folder of that name beside this file is found.
  from tokenizers import Tokenizer
except ImportError as missing:
  print(f"SKIPPED: {missing}; python3 -m pip install tokenizers")
  sys.exit(77)
import tokenizer_kinds

FILES = ("/usr/lib/python3/**/*.py", "/usr/include/**/*.h",
         "/usr/share/man/*/man*/*.gz", "/usr/share/doc/**/*",
         "/usr/share/perl/**/*.p[lm]")
SCRIPTS = ((0x4E00, 0x9FFF), (0x3041, 0x30FF), (0xAC00, 0xD7A3),
           (0x400, 0x4FF), (0x370, 0x3FF), (0x5D0, 0x5EA), (0x620, 0x64A),
           (0x900, 0x97F), (0xE00, 0xE7F), (0xC0, 0x24F), (0x1F300, 0x1FAFF),
           (0x2000, 0x2BFF), (0x300, 0x36F), (0x1100, 0x11FF),
           (0xFF00, 0xFFEF), (0x1E00, 0x1FFF), (0x1D400, 0x1D7FF),
           (0x20, 0x7E), (0x660, 0x669), (0x20000, 0x2A6DF))
ENDINGS = ("\u0301", "\u200d", "\ufe0f", "'s", "'S", "'ll", "1234567", "  ",
           "\t", "\u3000", "\u00a0", "\x85", "\u180e", "\u2028", "...",
           "<|endoftext", "<|im_start|>", "!!\r", "\r", "    ", "caf\u00e9")


def file_lines(limit):
  for pattern in FILES:
    left = limit // len(FILES)
    paths = sorted(glob.glob(pattern, recursive=True))
    random.shuffle(paths)
    for path in paths:
      try:
        opened = gzip.open(path) if path.endswith(".gz") else open(path, "rb")
        with opened as file:
          text = file.read().decode()
      except (OSError, EOFError, UnicodeDecodeError):
        continue
      for line in text.split("\n"):
        yield line[:5000]
      left -= len(text)
      if left < 0:
        break


def known(begin, end):
  """Characters that the library's Unicode has: marks that are newer than its
  tables stay where they are there."""
  theirs = tokenizers.normalizers.NFC()
  for c in map(chr, range(begin, end)):
    if c != "\n" and unicodedata.category(c) not in ("Cn", "Cs"):
      after = "\u0315" + c
      if theirs.normalize_str(after) == unicodedata.normalize("NFC", after):
        yield c


def drawn_lines(limit):
  scripts = [list(known(*ends)) for ends in SCRIPTS]
  any_character = list(known(1, 0x110000))
  while limit > 0:
    words = []
    for _ in range(random.randint(1, 12)):
      script = random.choice(scripts)
      word = "".join(random.choices(script, k=random.randint(1, 8)))
      if random.random() < 0.3:
        word += random.choice(ENDINGS)
      if random.random() < 0.2:
        word += random.choice(any_character)
      words.append(word)
    line = random.choice((" ", "", "  ", "，")).join(words)
    limit -= len(line.encode()) + 1
    yield line


def compare(program, path, text, lines):
  began = time.monotonic()
  with open(text, "rb") as file:
    ours = subprocess.run([program, path], stdin=file, check=True,
                          capture_output=True, text=True).stdout.split("\n")
  seconds = time.monotonic() - began
  theirs = Tokenizer.from_file(path).encode_batch(
      lines, add_special_tokens=False)
  assert len(ours) == len(lines) + 1, (len(ours), len(lines))
  wrong = [i for i, encoding in enumerate(theirs)
           if ours[i] != " ".join(map(str, encoding.ids))]
  print(f"{os.path.basename(path)}: {len(lines)} lines, {len(wrong)} differ "
        f"({seconds:.1f} s of ours)")
  for i in wrong[:5]:
    print("  ", ascii(lines[i]), ours[i], theirs[i].ids, sep="\n    ")
  return not wrong


def main():
  parser = argparse.ArgumentParser()
  parser.add_argument("program")
  parser.add_argument("files", nargs="*")
  parser.add_argument("--megabytes", type=float, default=1)
  given = parser.parse_args()
  random.seed(5)
  size = int(given.megabytes * 1e6)
  lines = list(file_lines(size * 3 // 4)) + list(drawn_lines(size // 4))
  with tempfile.TemporaryDirectory() as folder:
    text = os.path.join(folder, "text")
    with open(text, "w", newline="") as file:
      file.write("\n".join(lines) + "\n")
    print(f"{os.path.getsize(text) / 1e6:.1f} MB, tokenizers "
          f"{tokenizers.__version__}")
    paths = given.files
    for name in [] if paths else tokenizer_kinds.KINDS:
      paths = paths + [os.path.join(folder, name + ".json")]
      tokenizer_kinds.train(name, lines[::3], 4000).save(paths[-1])
    if not all([compare(given.program, path, text, lines) for path in paths]):
      sys.exit("ids differ")


main()
