"""Makes the tokenizers of this folder and what they give for its lines.

  make.py

Needs the `tokenizers` package (PyPI). NAME.json are small tokenizers with the
pre-tokenizers of GPT-2, Llama 3 and Qwen; NAME.ids has the ids of each line of
lines.txt. A test reads them without the package.
"""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import tokenizer_kinds  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))


def main():
  with open(os.path.join(HERE, "lines.txt"), newline="") as file:
    lines = file.read().split("\n")[:-1]
  for name in tokenizer_kinds.KINDS:
    tokenizer = tokenizer_kinds.train(name, lines * 20, 400)
    path = os.path.join(HERE, name)
    with open(path + ".json", "w") as file:
      file.write(tokenizer.to_str() + "\n")
    with open(path + ".ids", "w") as file:
      for line in lines:
        ids = tokenizer.encode(line, add_special_tokens=False).ids
        file.write(" ".join(map(str, ids)) + "\n")


main()
