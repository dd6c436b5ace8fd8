"""What a trained tokenizer and that of bytes become for others, beside the
`tokenizers` library: the files that a Hugging Face folder gets.

  tokenizer_files_oracle.py ENCODE_LINES DELINK

Exit status 77: skipped, the package is not installed (tools/test.sh brings it).
"""
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(
    os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")),
    "delink", "python"))
try:
  # Without the library the folder of that name beside this file is found.
  from tokenizers import Tokenizer
except ImportError as missing:
  print(f"SKIPPED: {missing}; python3 -m pip install tokenizers")
  sys.exit(77)

DOCS = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__)))), "docs")
OTHERS = ["  a  b", " ", "\u4e2d\u6587 k\u016f\u0148 \u2603\ufe0f caf\u00e9",
          "\x01\x7f\t tab", "\U0001f600\U0001f680 \u0915\u094d"]


def told(program, tokenizer, lines, *more):
  done = subprocess.run([program, tokenizer, *more], check=True,
                        input="\n".join(lines) + "\n", encoding="utf-8",
                        capture_output=True)
  return [list(map(int, line.split())) for line in done.stdout.split("\n")[:-1]]


def compare(program, tokenizer, lines, vocab):
  with tempfile.TemporaryDirectory() as folder:
    told(program, tokenizer, [], folder)
    theirs = Tokenizer.from_file(
        os.path.join(folder, "tokenizer.json"))
    ours = told(program, tokenizer, lines)
    # The folder itself is a tokenizer.
    assert ours == told(program, folder, lines)
  assert theirs.get_vocab_size() == vocab, theirs.get_vocab_size()
  assert len(ours) == len(lines)
  # The same pieces in another order are equally likely.
  found = [theirs.encode(line).ids for line in lines]
  wrong = [i for i, ids in enumerate(ours)
           if sorted(ids) != sorted(found[i])
           or theirs.decode(ids, skip_special_tokens=False) != lines[i]]
  ties = sum(ids != other for ids, other in zip(ours, found)) - len(wrong)
  print(f"{os.path.basename(os.path.dirname(os.path.dirname(tokenizer)))}: "
        f"{len(lines)} lines, {len(wrong)} differ, {ties} in order alone")
  assert ties < len(lines) / 20
  for i in wrong[:5]:
    print("  ", ascii(lines[i]), ours[i], found[i], sep="\n    ")
  return not wrong


def main():
  program, delink = map(os.path.abspath, sys.argv[1:])
  lines = []
  texts = [os.path.join(DOCS, name) for name in sorted(os.listdir(DOCS))
           if name.endswith(".md")]
  for path in texts:
    with open(path, encoding="utf-8") as file:
      lines += file.read().split("\n")
  with tempfile.TemporaryDirectory() as folder:
    corpora = [os.path.join(folder, kind) for kind in ("trained", "bytes")]
    for corpus, kind in zip(corpora, (["--train-tokenizer", "2000"],
                                      ["--bytes"])):
      subprocess.run([delink, "data", "build", "--out", corpus, *kind, *texts],
                     check=True, capture_output=True)
    trained, plain = (os.path.join(corpus, "train", "tokenizer.model")
                      for corpus in corpora)
    # Names of tokens are found in text there.
    clear = [line for line in lines
             if not re.search(r"</s>|<unk>|\u2581", line)]
    assert len(clear) > 1000, len(clear)
    same = [compare(program, trained, clear + OTHERS, 2000),
            compare(program, plain, lines[:300] + OTHERS, 257)]
  if not all(same):
    sys.exit("ids or texts differ")


main()
