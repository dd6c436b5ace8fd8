"""Imports token files that NumPy has written, and reads the corpus with h5py.

  import_oracle.py DELINK

Every format holds the same documents; every corpus must. Exit status 77:
skipped, something is not installed.
"""
import os
import struct
import subprocess
import sys
import tempfile

try:
  import h5py
  import numpy as np
except ImportError as missing:
  print(f"SKIPPED: {missing}; install python3-numpy and python3-h5py")
  sys.exit(77)

END = 500


def megatron(stem, documents, dtype, code):
  """Documents of two sequences each, the second with the end."""
  sequences = []
  for document in documents:
    half = len(document) // 2
    sequences += [document[:half], np.append(document[half:], END)]
  np.concatenate(sequences).astype(dtype).tofile(stem + ".bin")
  lengths = np.array([len(s) for s in sequences], "<i4")
  ends = np.cumsum(lengths, dtype="<i8") * np.dtype(dtype).itemsize
  bounds = np.arange(0, len(sequences) + 1, 2, dtype="<i8")
  with open(stem + ".idx", "wb") as file:
    file.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, code, len(lengths),
                                            len(bounds)))
    file.write(lengths.tobytes() + np.append(0, ends[:-1]).tobytes())
    file.write(bounds.tobytes())
  return stem + ".bin"


def llm_c(path, stream, dtype, magic, version):
  header = np.zeros(256, "<i4")
  header[:3] = magic, version, len(stream)
  with open(path, "wb") as file:
    file.write(header.tobytes() + stream.astype(dtype).tobytes())
  return path


def numpy_file(path, stream, dtype, shape=(-1,)):
  np.save(path, stream.astype(dtype).reshape(shape))
  return path


def documents_of(side):
  with h5py.File(os.path.join(side, "index.h5"), "r") as file:
    tokens, starts = file["tokens"][:], file["documents"][:]
    assert file.attrs["end_of_document"] == END
  documents = np.split(tokens, starts[1:])
  assert all(d[-1] == END for d in documents)
  return [tuple(d[:-1]) for d in documents]


def main():
  program = sys.argv[1]
  random = np.random.default_rng(1)
  documents = [random.integers(0, END, size=random.integers(2, 60))
               for _ in range(301)]
  documents[5] = random.integers(0, END, size=100_000)
  stream = np.concatenate([np.append(d, END) for d in documents])
  if len(stream) % 2:
    stream = np.append(stream, END)
  expected = sorted(tuple(d) for d in documents)
  with tempfile.TemporaryDirectory() as folder:
    at = lambda name: os.path.join(folder, name)
    files = [
        [megatron(at("a"), documents, "<u2", 8)],
        [megatron(at("b"), documents, "<i4", 4)],
        [llm_c(at("c.bin"), stream, "<u2", 20240520, 1)],
        [llm_c(at("d.bin"), stream, "<u4", 20240801, 7)],
        [numpy_file(at("e.npy"), stream, "uint16")],
        [numpy_file(at("f.npy"), stream, "int64")],
        [numpy_file(at("g.npy"), stream, "int32", shape=(2, -1))],
    ]
    stream.astype("<u2").tofile(at("h"))
    files.append([at("h"), "--dtype", "u16"])
    for words in files:
      out = at("corpus")
      subprocess.run([program, "data", "import", "--out", out, "--overwrite",
                      "--vocab", str(END + 1), "--eot", str(END)] + words,
                     check=True, capture_output=True)
      train = documents_of(os.path.join(out, "train"))
      validation = documents_of(os.path.join(out, "validation"))
      assert validation and sorted(train + validation) == expected, words
      subprocess.run([program, "data", "check", out], check=True,
                     capture_output=True)
      print(f"{os.path.basename(words[0])}: {len(train)} and "
            f"{len(validation)} documents as written")


main()
