#!/usr/bin/python3
"""Tables and figures of the study's second part, on stages that run fewer layers.

  growth_tables.py RUNS OUT

RUNS has the sweeps that tools/study/run.sh made of files 8 to 15. Finished runs
are added to OUT/growth_runs.csv, one row a run, so that it can collect runs of
several machines; the tables are made from this file alone. Every run is
compared with the deep model from scratch with the same seed. FLOPs are those of
the steps that a run took, in each stage at its depth. Seconds are those of one
idle core, independent of a machine's other load: a token takes a + b x its
FLOPs, the line through the speeds of 14_seconds. "Scratch needs" is how many
times as long a run from scratch takes to reach the same loss, on the line
through the runs of 9_length (with logarithmic seconds).
"""
import csv
import json
import math
import os
import statistics
import sys

from tables import COLORS, canvas, line_at, mean_and_spread, read, text_at, write

SWEEPS = ["8_depth", "9_length", "10_grow", "11_switch", "12_share", "13_rate",
          "15_rates"]
SECONDS = "14_seconds"
FIELDS = ["sweep", "name", "settings", "label", "seed", "tokens_per_s", "curve"]
SCRATCH = "8 layers"  # of 9_length; others that begin with it are shorter or longer
TITLES = ["runs", "validation loss", "beside scratch", "%", "FLOPs", "seconds", "scratch needs"]


def events(folder, name):
    with open(os.path.join(folder, "runs", name, "metrics.jsonl"), encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def curve_of(folder, name):
    """tokens:FLOPs:validation loss, of each validation; without one, what the run took."""
    points, tokens, flops, a_token = [], 0, 0.0, 0.0
    for event in events(folder, name):
        more = max(event.get("tokens", 0) - tokens, 0)
        tokens, flops = tokens + more, flops + more * a_token
        a_token = event.get("flops_per_token", a_token)
        if "validation_loss" in event:
            points.append(f"{tokens}:{flops:.6g}:{event['validation_loss']:.6f}")
    return " ".join(points) or f"{tokens}:{flops:.6g}:nan"


def collect(runs, path):
    rows = {}
    if os.path.exists(path):
        with open(path, encoding="utf-8", newline="") as file:
            rows = {(row["sweep"], row["name"]): row for row in csv.DictReader(file)}
    for sweep in [*SWEEPS, SECONDS]:
        folder = os.path.join(runs, sweep)
        if not os.path.exists(os.path.join(folder, "sweep.csv")):
            continue
        names, groups = read(os.path.join(folder, "sweep.csv"))
        for group in groups:
            for seed, row in group.rows.items():
                rows[sweep, row["name"]] = {
                    "sweep": sweep, "name": row["name"], "settings": "|".join(names), "label": "|".join(group.label),
                    "seed": seed, "tokens_per_s": row["tokens_per_s"], "curve": curve_of(folder, row["name"])}
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows.values())
    return list(rows.values())


def line_through(points):
    """a and b of y = a + b x."""
    slope, constant = statistics.linear_regression(*zip(*points))
    return constant, slope


class Run:
    def __init__(self, row, cost):
        self.points = []  # tokens, FLOPs, seconds, validation loss
        for point in row["curve"].split():
            tokens, flops, loss = map(float, point.split(":"))
            self.points.append((tokens, flops, cost[0] * tokens + cost[1] * flops, loss))
        self.flops, self.seconds, self.loss = self.points[-1][1:]


def grouped(rows, sweep, cost):
    """By label the runs by seed."""
    groups = {}
    for row in rows:
        if row["sweep"] == sweep:
            groups.setdefault(row["label"], {})[row["seed"]] = Run(row, cost)
    return groups


def mean(of, what):
    return statistics.mean(getattr(run, what) for run in of.values())


def needs(lengths, loss):
    """Seconds in which scratch ends at `loss`, and the sign before them."""
    points = sorted((mean(of, "loss"), math.log(mean(of, "seconds"))) for of in lengths)
    sign = ">" if loss < points[0][0] else "<" if loss > points[-1][0] else ""
    loss = min(max(loss, points[0][0]), points[-1][0])
    for (low, long), (high, short) in zip(points, points[1:]):
        if loss <= high:
            return math.exp(long + (short - long) * (loss - low) / (high - low)), sign
    return math.exp(points[-1][1]), sign


def row_of(label, of, scratch, lengths):
    pairs = [(run.loss, scratch[seed].loss) for seed, run in of.items() if seed in scratch]
    seconds, sign = needs(lengths, mean(of, "loss"))
    return "| " + " | ".join([
        *label.split("|"), str(len(of)), mean_and_spread([run.loss for run in of.values()], 4),
        mean_and_spread([loss - other for loss, other in pairs], 4),
        mean_and_spread([100 * (loss / other - 1) for loss, other in pairs], 2),
        f"{mean(of, 'flops') / mean(scratch, 'flops'):.2f}", f"{mean(of, 'seconds') / mean(scratch, 'seconds'):.2f}",
        f"{sign}{seconds / mean(of, 'seconds'):.2f}"]) + " |"


def curves(lines, unit, at):
    """Validation losses from where the first fifth of all that is shown is over."""
    points = sorted(point[3] for _, line in lines for point in line)
    low, high = points[0], points[-len(points) // 4]
    right = max(point[at] for _, line in lines for point in line)
    left, width, height = 60, 760, 420

    def x(value):
        return left + (width - left - 20) * value / right

    def y(value):
        return 40 + (height - 90) * (high - value) / (high - low)

    parts = canvas(width, height, "Validation loss, nats a byte")
    for tick in range(6):
        value = low + (high - low) * tick / 5
        parts.append(line_at(left, y(value), width - 20, y(value), stroke="#ddd"))
        parts.append(text_at(left - 8, y(value) + 4, f"{value:.2f}", text_anchor="end", fill="#555"))
        parts.append(text_at(x(right * tick / 5), height - 30, f"{right * tick / 5:.3g}", text_anchor="middle",
                             fill="#555"))
    parts.append(text_at((left + width) / 2, height - 10, unit, text_anchor="middle", fill="#555"))
    for index, (label, line) in enumerate(lines):
        path = " ".join(f"{x(point[at]):.1f},{y(point[3]):.1f}" for point in line if point[3] <= high)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{COLORS[index]}" stroke-width="2"/>')
        parts.append(line_at(width - 300, 56 + 20 * index, width - 276, 56 + 20 * index, stroke=COLORS[index],
                             stroke_width=3))
        parts.append(text_at(width - 268, 60 + 20 * index, label))
    return "\n".join(parts) + "\n</svg>\n"


def averaged(of):
    return [tuple(map(statistics.mean, zip(*points))) for points in zip(*(run.points for run in of.values()))]


def main():
    if len(sys.argv) != 3 or sys.argv[1].startswith("-"):
        print(__doc__.strip(), file=sys.stderr)
        sys.exit(0 if "--help" in sys.argv else 2)
    runs, out = sys.argv[1:]
    os.makedirs(out, exist_ok=True)
    rows = collect(runs, os.path.join(out, "growth_runs.csv"))
    speeds = []  # FLOPs a token, seconds a token
    for row in rows:
        if row["sweep"] == SECONDS:
            tokens, flops, _ = map(float, row["curve"].split(":"))
            speeds.append((flops / tokens, 1 / float(row["tokens_per_s"])))
    lengths = grouped(rows, "9_length", (0, 0))
    if not speeds or SCRATCH not in lengths:
        sys.exit(f"growth_tables.py: {SECONDS} and '{SCRATCH}' of 9_length are missing; run these sweeps first")
    cost = line_through(speeds)
    lengths = grouped(rows, "9_length", cost)
    scratch = lengths[SCRATCH]
    of_scratch = [of for label, of in lengths.items() if label.startswith(SCRATCH)]
    shown = [("8 layers from scratch", scratch)]
    print(f"A token takes {cost[0] * 1e6:.2f} us and {cost[1] * 1e12:.2f} us a MFLOP.\n")
    for sweep in SWEEPS:
        groups = grouped(rows, sweep, cost)
        if not groups:
            continue
        settings = next(row["settings"] for row in rows if row["sweep"] == sweep).split("|")
        print(f"## {sweep}\n\n| " + " | ".join([*settings, *TITLES]) + " |")
        print("|" + "---|" * (len(settings) + len(TITLES)))
        print("\n".join(row_of(label, of, scratch, of_scratch) for label, of in groups.items()) + "\n")
        if sweep in ("10_grow", "12_share"):
            label, of = min(groups.items(), key=lambda entry: mean(entry[1], "loss"))
            begins = "growth at 0.5, layers and what new ones are: " if sweep == "10_grow" else ""
            shown.append((begins + ", ".join(label.split("|")), of))
    shown += [(label, of) for label, of in lengths.items() if not label.startswith(SCRATCH)]
    for at, unit in ((0, "tokens"), (1, "FLOPs"), (2, "seconds of one idle core")):
        lines = [(label, averaged(of)) for label, of in shown[:len(COLORS)]]
        write(out, f"growth_{unit.split()[0].lower()}.svg", curves(lines, unit, at))


if __name__ == "__main__":
    main()
