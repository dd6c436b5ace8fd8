#!/usr/bin/env python3
"""DeepSpeed's CPU Adam in Gparam/s, a peer of `delink bench --suite update`.

Runs DeepSpeed's own fused AdamW of the CPU over one flat tensor, with f32
parameters and moments, in two ways:

    adam            the step alone: gradients are f32 and already unscaled
    with the rest   as in a step of offloaded training: bf16 gradients are
                    widened and unscaled, then the step, then the parameters
                    are rounded to bf16

Speeds are by wall-clock time, and by processor time divided by the threads. The
latter is more reliable on a machine that others use.

Delink does not depend on DeepSpeed. Install it in a virtual environment; it
needs a C++ compiler, since its kernel is compiled at first use:

    python3 -m venv VENV && VENV/bin/pip install torch deepspeed ninja
    VENV/bin/python tools/bench/deepspeed_adam.py --threads 1
"""
import argparse
import os
import statistics
import sys
import time


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--parameters", type=int, default=32_000_000,
                        help="elements of the tensor (32000000)")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15,
                        help="measured steps; the median is printed")
    return parser.parse_args()


def skip(why):
    print(f"SKIPPED: {why}; see --help")
    sys.exit(77)


def adam_of(torch, parameters, threads):
    """An optimizer over `parameters`; its kernel is compiled here."""
    try:
        from deepspeed.ops.adam import DeepSpeedCPUAdam
        torch.set_num_threads(threads)
        return DeepSpeedCPUAdam([parameters], lr=1e-3, betas=(0.9, 0.95),
                                eps=1e-8, weight_decay=0.1, adamw_mode=True)
    except Exception as error:  # DeepSpeed raises whatever its builders do.
        skip(f"DeepSpeed's CPU Adam cannot be had: {error}")


def main():
    args = parse()
    os.environ["OMP_NUM_THREADS"] = str(args.threads)
    try:
        import torch
        import deepspeed
    except ImportError as error:
        skip(f"{error}")
    torch.set_num_threads(args.threads)
    n = args.parameters
    torch.manual_seed(1)
    parameters = torch.nn.Parameter(torch.randn(n))
    narrow = torch.randn(n).bfloat16()
    gradient = torch.randn(n)
    weights = torch.empty(n, dtype=torch.bfloat16)
    parameters.grad = gradient
    adam = adam_of(torch, parameters, args.threads)

    def whole():
        gradient.copy_(narrow)
        gradient.mul_(0.5)
        adam.step()
        weights.copy_(parameters.data)

    ways = {"adam": adam.step, "with the rest": whole}
    clock = {name: [] for name in ways}
    processor = {name: [] for name in ways}
    for turn in range(args.rounds + 2):
        for name, run in ways.items():
            begin, worked = time.perf_counter(), time.process_time()
            run()
            if turn < 2:
                continue
            clock[name].append(time.perf_counter() - begin)
            processor[name].append((time.process_time() - worked) /
                                   args.threads)
    print(f"DeepSpeed {deepspeed.__version__}, torch {torch.__version__}, "
          f"{n} parameters, {args.threads} threads, median of {args.rounds}, "
          f"load {os.getloadavg()[0]:.1f}")
    for name in ways:
        by_clock, by_processor = (n / statistics.median(of[name]) / 1e9
                                  for of in (clock, processor))
        print(f"  {name:<15} {by_clock:6.3f} Gparam/s by the clock, "
              f"{by_processor:6.3f} by processor time")


if __name__ == "__main__":
    main()
