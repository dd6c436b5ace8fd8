#!/usr/bin/python3
"""What `gpu_check.py offload` foretells of steps with planes at home on the host.

  offload_foretold.py DELINK ROOT

By the rates that are assumed it says what docs/benchmarks.md says, and does so
where there is no GPU; a prediction changes with tokens and rates as it must. A
GPU that fails, a rate that is missing and a step that fails for want of anything
but memory are failures.
"""
import argparse
import dataclasses
import json
import os
import re
import subprocess
import sys
import tempfile


def rows(text):
    """Model and homes, tokens and percent of resident speed."""
    return re.findall(r"^\| (3\.09B, .*?) \| (\d+) \| (\d+) % \|$", text, re.M)


def failure_of(call):
    """What a stage of gpu_check.py fails with; "" where it does not."""
    import gpu_check

    try:
        call()
    except gpu_check.Failure as failure:
        return str(failure)
    return ""


def check_rates(folder):
    """Of programs that are not there, or measure not all."""
    import gpu_check
    import offload_check

    check = gpu_check.Check(argparse.Namespace(device="cuda", out=folder, delink="delink", quick=True))
    said = [""]

    def fails(*unused):
        raise gpu_check.Failure(f"delink ended with 2: see offload.log\nerror: {said[0]}")

    check.run = fails
    for text in ("the CUDA devices of this machine cannot be used: cudaErrorSystemNotReady",
                 "the NVIDIA driver is too old: it serves CUDA 11.4, but this build needs CUDA 12.8",
                 "CUDA error: an illegal memory access was encountered"):
        said[0] = text
        assert text in failure_of(check.offload_rates), text
    for text in ("this machine has no NVIDIA driver, so no CUDA device; install one",
                 "this machine has an NVIDIA driver, but shows no CUDA device",
                 'this build has no CUDA backend; use run.device = "cpu"'):
        said[0] = text
        assert check.offload_rates() is offload_check.ASSUMED and not check.runs, text

    bus = {f"{both}{way}_bytes_per_s": 1e9 for both in ("", "both_") for way in ("to_device", "to_host")}
    host = {"place": "host", "master": "split", "moments": "bf16", "parameters_per_s": 1e9}
    device = {**host, "place": "device"}

    def toml(table):
        return "".join(f"{key} = {json.dumps(value)}\n" for key, value in table.items())

    def measures(updates, products):
        with open(check.path("offload-cache/delink/machine.toml"), "w", encoding="utf-8") as file:
            # Without products or updates the key is an empty list.
            file.write("" if products else "products = []\n")
            file.write("[pinned]\n" + toml(bus))
            file.writelines("[[updates]]\n" + toml(row) for row in updates)
            file.writelines("[[products]]\n" + toml(row) for row in products)

    bf16 = {"dtype": "bf16", "smallest": 1, "flops_per_s": 1e12}
    for updates, products, missing in (([host, device], [bf16], ""), ([device], [bf16], "not measured: host_update;"),
                                       ([host], [bf16], "not measured: device_update;"),
                                       ([host, device], [], "not measured: flops;")):
        check.run = lambda *unused, of=(updates, products): measures(*of)
        assert failure_of(check.offload_rates).startswith(missing), missing
        assert check.runs or missing


def check_steps(folder):
    """Of a budget that does not hold a model the next is tried; of a program that
    fails otherwise none."""
    import gpu_check
    import offload_check

    check = gpu_check.Check(argparse.Namespace(device="cuda", out=folder, delink="delink", quick=True))
    step = {"tokens_per_s": 1000, "memory": {"total": 1 << 30}}
    tried, said = [], [""]

    def takes(log, model, unused, homes):
        tried.append((model, homes))
        if log == "offload-8b-capped" or len(tried) == 4:
            return step
        raise gpu_check.Failure(said[0])

    check.offload_step = takes
    for stage in (check.offload_capped, check.offload_largest):
        for said[0] in ("delink ended with 2: see the log\nerror: out of memory on NVIDIA H100: asked for 8 bytes",
                        "delink ended with 2: see the log\nerror: --set: stage[0].offload.device: 72.0 GiB, but",
                        "delink ended with -9: see the log\n"):
            tried.clear()
            assert not failure_of(lambda: stage(offload_check.ASSUMED)) and len(tried) == 4, said
        for said[0] in ("out of time in delink: see the log", "delink ended with -6: see the log\nillegal access"):
            tried.clear()
            assert failure_of(lambda: stage(offload_check.ASSUMED)) == said[0] and len(tried) < 3, said


def expect_largest(check, written):
    """As many blocks as fit into the host with the ends, and what is written of them."""
    model, host = check.LLAMA_8B, int(0.95 * check.HOST)
    layers = check.most_layers(model, host)

    def at_home(layers):
        return check.with_layers(model, layers).parameters() * (check.WEIGHT + check.GRADIENT + check.STATE)
    assert at_home(layers) <= host < at_home(layers + 1), layers
    assert check.most_layers(model, at_home(0) - 1) == 0
    largest, tokens = check.with_layers(model, layers), 16384
    speed = tokens / check.seconds(check.ASSUMED, largest, tokens, check.HOMES["all, updated by the host"])
    said = (f"of {largest.parameters() / 1e9:.0f}B ({layers} blocks of the 8B shape), at {speed:.0f} tokens/s with "
            f"{tokens} tokens a step. The inputs of its blocks, {2 * layers * tokens * model.dim / 1e9:.0f} GB ")
    assert said in written, f"docs/benchmarks.md does not have: {said}"


def main():
    delink, root = map(os.path.abspath, sys.argv[1:])
    sys.path.insert(0, f"{root}/tools/bundle")
    import offload_check as check

    with open(f"{root}/docs/benchmarks.md", encoding="utf-8") as file:
        text = file.read()
    written = rows(text)
    expect_largest(check, text)
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
        check_rates(folder)
        check_steps(folder)
        # Without a GPU, wherever this runs.
        done = subprocess.run([sys.executable, "-B", f"{root}/tools/bundle/gpu_check.py", "offload", "--delink", delink,
                               "--out", folder], capture_output=True, text=True, check=False,
                              env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "not run: " in done.stdout and done.stdout.count(" foretold") == len(foretold) + 2, done.stdout
    print(done.stdout)


main()
