#!/usr/bin/python3
"""What `gpu_check.py offload` foretells of steps with planes at home on the host.

  offload_foretold.py DELINK ROOT

By the rates that are assumed it says what docs/benchmarks.md says, and does so
where there is no GPU; a prediction changes with tokens and rates as it must.
"""
import dataclasses
import os
import re
import subprocess
import sys
import tempfile


def rows(text):
    """Model and homes, tokens and percent of resident speed."""
    return re.findall(r"^\| (3\.09B, .*?) \| (\d+) \| (\d+) % \|$", text, re.M)


def main():
    delink, root = map(os.path.abspath, sys.argv[1:])
    sys.path.insert(0, f"{root}/tools/bundle")
    import offload_check as check

    with open(f"{root}/docs/benchmarks.md", encoding="utf-8") as file:
        written = rows(file.read())
    foretold = [(f"{model.parameters() / 1e9:.3g}B, {name}", str(tokens),
                 f"{check.percent(check.ASSUMED, model, tokens, check.HOMES[name]):.0f}")
                for model, tokens, name in check.cases()]
    assert written == foretold, f"docs/benchmarks.md has {written}, foretold are {foretold}"
    for model, tokens, name in check.cases():
        def at(count, rates=check.ASSUMED, model=model, homes=check.HOMES[name]):
            return check.percent(rates, model, count, homes)
        assert at(tokens // 4) < at(tokens) < 105, name
        slower = dataclasses.replace(check.ASSUMED, to_device=1e9, to_host=1e9)
        assert at(tokens, slower) < 0.5 * at(tokens), name
    with tempfile.TemporaryDirectory() as folder:
        # Without a GPU, wherever this runs.
        done = subprocess.run([sys.executable, "-B", f"{root}/tools/bundle/gpu_check.py", "offload", "--delink", delink,
                               "--out", folder], capture_output=True, text=True, check=False,
                              env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "not run: " in done.stdout and done.stdout.count(" foretold") == len(foretold) + 2, done.stdout
    print(done.stdout)


main()
