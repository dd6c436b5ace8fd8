#!/usr/bin/python3
"""M6-10T's graph at toy width, by Pseudo-to-Real over expert ranks.

  expert_ranks.py DELINK RECIPE

48 layers, each with 640 experts in 80 prototypes, of width 16, over 8 expert
ranks that gather tokens; at the switch the ranks take another layout. A rank is
killed after the switch, and the run goes on over a third layout, where tokens
are sent to their experts. Losses and validation are those of the run that
nobody killed, to the rounding of sums, and the switch changes no bit of the
loss.

Exit status 77: skipped, there is no mpirun.
"""
import os
import signal
import sys
import tempfile

import runs

STEPS, SWITCH = 8, 3
TOLERANCE = 1e-4  # docs/equality.md, and a choice may flip
M6 = ["model.layers=48", "model.dim=16", "model.heads=2", "model.experts=640", "model.prototypes=80",
      "model.top_k=80", "model.expert_ffn=16", "data.seq=16", "data.batch=8", "run.micro_batch=1"]
PSEUDO = "{data=8,expert=8,dispatch=\"gather\"}"
REAL = "{data=4,tensor=2,expert=8,dispatch=\"gather\"}"
LATER = "{data=2,pipeline=2,expert=2,dispatch=\"all-to-all\",expert_room=0.5,expert_overlap=true}"


def words(run, corpus, real, ranks):
    return ["mpirun", "-np", str(ranks), DELINK, "train", RECIPE, "--out", run, "--threads", "1", "--resume",
            *runs.sets(*M6, f"data.train={corpus}/train", f"schedule.steps={STEPS}",
                       f"stage.0.until.steps={SWITCH}", "run.checkpoint_every=2", f"run.validate_every={STEPS}",
                       f"stage.0.parallel={PSEUDO if ranks == 8 else real}", f"stage.1.parallel={real}")]


def losses(run):
    rows = runs.rows(run)
    found = [row["loss"] for row in rows if "loss" in row]
    assert [row["step"] for row in rows if "loss" in row] == list(range(1, STEPS + 1)), "steps are missing or doubled"
    return found + [row["validation_loss"] for row in rows if "validation_loss" in row]


def main():
    runs.skip_without_mpirun()
    with tempfile.TemporaryDirectory() as folder:
        corpus = runs.build_corpus(DELINK, folder)
        straight, run = (os.path.join(folder, name) for name in ("straight", "run"))
        runs.succeed(words(straight, corpus, REAL, 8))
        switches = [row for row in runs.rows(straight) if "loss_before" in row]
        assert len(switches) == 1 and switches[0]["loss_before"] == switches[0]["loss_after"], switches

        command = words(run, corpus, REAL, 8)
        with runs.Run(8, command[3:], os.path.join(folder, "output")) as process:
            assert process.find_ranks() and process.wait_for_step(run, SWITCH + 2), process.told()
            os.kill(process.pids[5], signal.SIGKILL)
            process.wait_for_end(10)
            told = process.told()
        assert process.mpirun.returncode != 0 and told.count("rank 5 is gone: it was in step ") == 1, told
        runs.succeed(words(run, corpus, LATER, 4))
        most = max(abs(a - b) / b for a, b in zip(losses(run), losses(straight), strict=True))
        assert most < TOLERANCE, f"losses differ by {most:.1e}"
        print(f"killed after the switch, went on over 4 ranks: losses within {most:.1e}")


DELINK, RECIPE = map(os.path.abspath, sys.argv[1:])
RECIPE = os.path.join(os.path.dirname(RECIPE), "tiny_m6.toml")
main()
