#!/usr/bin/python3
"""`delink delink` of a model that is larger than the memory it is given.

  offline_memory.py DELINK RECIPE [--mib N]

The model has N MiB of weights and optimizer state once its links are cut. It is
delinked with as much address space (ulimit -v) as the program takes for a model
of nothing, and a quarter of the model's bytes besides. The checkpoint must be
that of a run without a limit, bit for bit, and the largest resident set no more
above that of the small model than a few pieces of a tensor.
"""
import argparse
import os
import resource
import subprocess
import sys
import tempfile

import runs

MIB = 1 << 20
BLOCKS = 8
# Two pieces of a move, one on its way through a file, and what grows with the
# number of tensors.
RISE = 20 * MIB


def train(delink, recipe, corpus, out, dim):
    """One step of a model whose blocks share everything; its checkpoint."""
    pairs = [f"model.layers={BLOCKS}", f"model.dim={dim}", "model.heads=4", "data.seq=8", "data.batch=1",
             "run.micro_batch=1", f"data.train={corpus}/train", "schedule.steps=2", "schedule.warmup=1",
             "stage.0.until.steps=1", "run.checkpoint_every=1", "run.validate_every=0"]
    runs.succeed([delink, "train", recipe, *runs.sets(*pairs), "--until-step", "1", "--out", out])
    return os.path.join(out, "checkpoints", "step-00000001")


def cut(delink, checkpoint, out, limit=resource.RLIM_INFINITY):
    """Whether it went well under a limit of address space, and the largest resident set."""
    process = subprocess.Popen([delink, "delink", checkpoint, out, "--share", "none"], stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"},
                               preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode == 0, usage.ru_maxrss * 1024


def own_need(delink, checkpoint, folder):
    """The least address space that delinks a small model, to a MiB."""
    fails, works = 0, 16
    while not cut(delink, checkpoint, os.path.join(folder, f"need-{works}"), works * MIB)[0]:
        fails, works = works, 2 * works
        if works > 64 * 1024:
            sys.exit("a small model cannot be delinked in any memory")
    while works - fails > 1:
        middle = (fails + works) // 2
        if cut(delink, checkpoint, os.path.join(folder, f"need-{middle}"), middle * MIB)[0]:
            works = middle
        else:
            fails = middle
    return works * MIB


def sums(folder):
    with open(os.path.join(folder, "step-00000001", "SHA256SUMS"), encoding="utf-8") as file:
        return file.read()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("delink")
    parser.add_argument("recipe")
    parser.add_argument("--mib", type=int, default=200)
    arguments = parser.parse_args()
    delink = os.path.abspath(arguments.delink)
    # A block has 12 dim^2 weights of 4 bytes, and two moments of each.
    dim = int((arguments.mib * MIB / (BLOCKS * 12 * 4 * 3)) ** 0.5) // 8 * 8
    with tempfile.TemporaryDirectory() as folder:
        corpus = runs.build_corpus(delink, folder)
        small = train(delink, arguments.recipe, corpus, os.path.join(folder, "small"), 8)
        large = train(delink, arguments.recipe, corpus, os.path.join(folder, "large"), dim)
        need = own_need(delink, small, folder)
        _, least = cut(delink, small, os.path.join(folder, "small-cut"))
        free, limited = os.path.join(folder, "free"), os.path.join(folder, "limited")
        works, most = cut(delink, large, free)
        assert works, "delinking failed without a limit"
        model = os.path.getsize(os.path.join(free, "step-00000001", "rank-00000.h5"))
        assert model > 0.9 * arguments.mib * MIB, f"the model is of {model / MIB:.0f} MiB only"
        limit = need + model // 4
        assert cut(delink, large, limited, limit)[0], (
            f"a model of {model / MIB:.0f} MiB was not delinked in {limit / MIB:.0f} MiB, of which {need / MIB:.0f} "
            "are the program's")
        assert sums(free) == sums(limited), "under a limit the checkpoint is another one"
        assert most - least <= RISE, f"{(most - least) / MIB:.1f} MiB are held of a model of {model / MIB:.0f} MiB"
        print(f"a model of {model / MIB:.0f} MiB in {limit / MIB:.0f} MiB of address space, of which "
              f"{need / MIB:.0f} are the program's; {(most - least) / MIB:.1f} MiB resident above a small model's")


if __name__ == "__main__":
    main()
