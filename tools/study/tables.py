#!/usr/bin/python3
"""Tables and figures of a study from the sweeps that tools/study/run.sh made.

  tables.py RUNS OUT

For each sweep RUNS/NAME with a sweep.csv a table in Markdown, means over seeds
with the sample's standard deviation, and a figure of the validation losses,
OUT/NAME.svg, with every run as a dot. The best of the first two sweeps, from
scratch and with one switch, are repeated above every other table and figure. A
row's difference from scratch is the mean of the differences between runs of the
same seed. Prints the tables. Unfinished runs are reported and not counted.
"""
import csv
import html
import json
import os
import statistics
import sys
import tomllib

# Columns of the tables: what sweep.csv calls them, and what the table does.
COLUMNS = {
    "validation_loss": "validation loss",
    "train_loss": "training loss",
    "validation_loss_at_204800_tokens": "at 205 k tokens",
    "validation_loss_at_409600_tokens": "at 410 k tokens",
    "train_loss_at_60_s": "training loss at 60 s",
    "train_loss_at_90_s": "at 90 s",
    "seconds": "seconds",
    "planned_memory": "memory, MiB",
}
SCALE = {"planned_memory": 1 / 2**20}
DIGITS = {"seconds": 0, "planned_memory": 1}
# Seconds say something where every run had the machine in the same way.
TIMED = "7_memory"
SCRATCH, PSEUDO = "1_rate_scratch", "2_rate_pseudo"
COLORS = ["#1f5fa8", "#c2571a", "#3a7d34", "#7a3f98"]


def mean_and_spread(values, digits):
    if not values:
        return "\u2013"
    mean = f"{statistics.mean(values):.{digits}f}"
    if len(values) == 1 or len(set(values)) == 1:
        return mean
    return f"{mean} \u00b1 {statistics.stdev(values):.{digits}f}"


class Group:
    """The runs that differ in their seed alone."""

    def __init__(self, label):
        self.label, self.done, self.runs = label, 0, 0
        self.rows = {}  # by seed

    def add(self, row):
        self.runs += 1
        if row["status"] in ("finished", "early"):
            self.done += 1
            self.rows[row["seed"]] = row

    def by_seed(self, column):
        return {seed: float(row[column]) * SCALE.get(column, 1) for seed, row in self.rows.items() if row.get(column)}

    def values(self, column):
        return list(self.by_seed(column).values())

    def text(self, column):
        return mean_and_spread(self.values(column), DIGITS.get(column, 4))

    def loss(self):
        return statistics.mean(self.values("validation_loss"))

    def beside(self, other):
        theirs = other.by_seed("validation_loss")
        differences = [loss - theirs[seed] for seed, loss in self.by_seed("validation_loss").items() if seed in theirs]
        return mean_and_spread(differences, 4)


def finished(groups):
    return [group for group in groups if group.values("validation_loss")]


def read(path):
    """The settings' names, and the groups in the order of the grid."""
    with open(path, encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file)
        fields = list(rows.fieldnames)
        names = [name for name in fields[1:fields.index("status")] if name != "seed"]
        groups = {}
        for row in rows:
            label = tuple(row[name] for name in names)
            groups.setdefault(label, Group(label)).add(row)
    return names, list(groups.values())


def recipes(name):
    """The recipes that a sweep varies, as its file names them."""
    with open(os.path.join(os.path.dirname(__file__), f"{name}.toml"), "rb") as file:
        spec = tomllib.load(file)
    found = [spec["recipe"]] if "recipe" in spec else []
    for axis in spec["axis"]:
        for value in axis["values"]:
            found += [part for part in (value if isinstance(value, list) else [value]) if str(part).endswith(".toml")]
    return ", ".join(dict.fromkeys(found))


def renamed(group, label, width):
    copy = Group((label, *[""] * (width - 1)))
    copy.done, copy.runs, copy.rows = group.done, group.runs, group.rows
    return copy


def table(name, names, groups, scratch):
    columns = [column for column in COLUMNS if any(group.values(column) for group in groups)]
    if name != TIMED:
        columns = [column for column in columns if column != "seconds"]
    best = min((group.loss() for group in finished(groups)), default=None)
    titles = [COLUMNS[column] for column in columns]
    beside = scratch is not None and "validation_loss" in columns
    if beside:
        titles.insert(1, "beside scratch")
    lines = ["| " + " | ".join([*names, "runs", *titles]) + " |", "|" + "---|" * (len(names) + 1 + len(titles))]
    for group in groups:
        runs = str(group.runs) if group.done == group.runs else f"{group.done} of {group.runs}"
        cells = [group.text(column) for column in columns]
        if finished([group]) and group.loss() == best:
            cells[columns.index("validation_loss")] = f"**{group.text('validation_loss')}**"
        if beside:
            cells.insert(1, group.beside(scratch))
        lines.append("| " + " | ".join([*group.label, runs, *cells]) + " |")
    return "\n".join(lines)


def text_at(x, y, text, **style):
    styled = "".join(f' {key.replace("_", "-")}="{value}"' for key, value in style.items())
    return f'<text x="{x:.1f}" y="{y:.1f}"{styled}>{html.escape(text)}</text>'


def line_at(x1, y1, x2, y2, **style):
    styled = "".join(f' {key.replace("_", "-")}="{value}"' for key, value in style.items())
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"{styled}/>'


def canvas(width, height, title):
    return [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
            f'font-size="13"><rect width="{width}" height="{height}" fill="#fff"/>',
            text_at(10, 20, title, font_weight="bold")]


def dots(title, groups):
    """A row for each group: a dot for each run, a bar of a standard deviation to each side of the mean."""
    shown = [(", ".join(filter(None, group.label)), group.values("validation_loss")) for group in finished(groups)]
    low = min(min(values) for _, values in shown)
    high = max(max(values) for _, values in shown)
    room = (high - low) * 0.08 or 0.01
    low, high = low - room, high + room
    left, width, line = 230, 760, 26
    height = line * len(shown) + 60

    def x(value):
        return left + (width - left - 20) * (value - low) / (high - low)

    parts = canvas(width, height, f"{title}: validation loss, nats a token")
    for tick in range(5):
        value = low + (high - low) * tick / 4
        parts.append(line_at(x(value), 32, x(value), height - 24, stroke="#ddd"))
        parts.append(text_at(x(value), height - 8, f"{value:.3f}", text_anchor="middle", fill="#555"))
    for index, (label, values) in enumerate(shown):
        y = 48 + line * index
        mean = statistics.mean(values)
        parts.append(text_at(left - 12, y + 4, label, text_anchor="end"))
        if len(values) > 1:
            spread = statistics.stdev(values)
            parts.append(line_at(x(mean - spread), y, x(mean + spread), y, stroke=COLORS[0], stroke_width=5,
                                 stroke_opacity=0.35))
        parts.append(line_at(x(mean), y - 7, x(mean), y + 7, stroke=COLORS[0], stroke_width=2))
        parts += [f'<circle cx="{x(value):.1f}" cy="{y}" r="3" fill="{COLORS[0]}"/>' for value in values]
    return "\n".join(parts) + "\n</svg>\n"


def curve(folder, group, key):
    """(x, mean training loss of 20 steps), each the mean over the group's runs."""
    runs = []
    for row in group.rows.values():
        with open(os.path.join(folder, "runs", row["name"], "metrics.jsonl"), encoding="utf-8") as file:
            steps = [event for event in map(json.loads, file) if "loss" in event]
        runs.append([(steps[at][key], statistics.mean(step["loss"] for step in steps[at - 19:at + 1]))
                     for at in range(19, len(steps), 5)])
    return [tuple(map(statistics.mean, zip(*points))) for points in zip(*runs)]


def curves(title, lines, unit):
    """Training losses, beginning where the first tenth is over."""
    lines = [(label, points[len(points) // 10:]) for label, points in lines]
    every = [point for _, points in lines for point in points]
    right, low, high = (max(x for x, _ in every), min(y for _, y in every), max(y for _, y in every))
    left, width, height = 60, 760, 420

    def x(value):
        return left + (width - left - 20) * value / right

    def y(value):
        return 40 + (height - 90) * (high - value) / (high - low)

    parts = canvas(width, height, f"{title}: training loss, nats a token")
    for tick in range(6):
        at, value = right * tick / 5, low + (high - low) * tick / 5
        parts.append(line_at(left, y(value), width - 20, y(value), stroke="#ddd"))
        parts.append(text_at(left - 8, y(value) + 4, f"{value:.2f}", text_anchor="end", fill="#555"))
        parts.append(text_at(x(at), height - 30, f"{at:.0f}", text_anchor="middle", fill="#555"))
    parts.append(text_at((left + width) / 2, height - 10, unit, text_anchor="middle", fill="#555"))
    for index, (label, points) in enumerate(lines):
        path = " ".join(f"{x(at):.1f},{y(value):.1f}" for at, value in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{COLORS[index]}" stroke-width="2"/>')
        parts.append(line_at(width - 260, 56 + 20 * index, width - 236, 56 + 20 * index, stroke=COLORS[index],
                             stroke_width=3))
        parts.append(text_at(width - 228, 60 + 20 * index, label))
    return "\n".join(parts) + "\n</svg>\n"


def write(out, name, text):
    with open(os.path.join(out, name), "w", encoding="utf-8") as file:
        file.write(text)
    print(f"![{name.removesuffix('.svg')}]({name})\n")


def best_of(sweeps, name):
    groups = finished(sweeps[name][1]) if name in sweeps else []
    return min(groups, key=Group.loss, default=None)


def main():
    if len(sys.argv) != 3 or sys.argv[1].startswith("-"):
        print(__doc__.strip(), file=sys.stderr)
        sys.exit(0 if "--help" in sys.argv else 2)
    runs, out = sys.argv[1:]
    folders = sorted(os.listdir(runs)) if os.path.isdir(runs) else []
    folders = [name for name in folders if name[:2] in ("1_", "2_", "3_", "4_", "5_", "6_", "7_")]
    paths = {name: os.path.join(runs, name, "sweep.csv") for name in folders}
    sweeps = {name: read(path) for name, path in paths.items() if os.path.exists(path)}
    if not sweeps:
        sys.exit(f"tables.py: {runs}: holds no sweep; make the sweeps with tools/study/run.sh")
    os.makedirs(out, exist_ok=True)
    scratch, pseudo = best_of(sweeps, SCRATCH), best_of(sweeps, PSEUDO)
    print("# Tables of the study\n")
    for name, (names, groups) in sweeps.items():
        title = f"{name} ({recipes(name)})"
        left = sum(group.runs - group.done for group in groups)
        if name not in (SCRATCH, TIMED) and scratch:
            base = [(scratch, f"scratch, {scratch.label[0]}")]
            if name != PSEUDO and pseudo:
                base.append((pseudo, f"all until 0.2, scale, {pseudo.label[0]}"))
            groups = [renamed(group, label, len(names)) for group, label in base] + groups
        beside = groups[0] if name == TIMED else scratch
        print(f"## {title}\n\n{table(name, names, groups, beside)}\n")
        if left:
            print(f"{left} runs did not finish and are not counted.\n")
        if not finished(groups):
            continue
        write(out, f"{name}.svg", dots(title, groups))
        if name == TIMED:
            for key, unit in (("tokens", "tokens"), ("seconds", "seconds")):
                lines = [(group.label[0], curve(os.path.join(runs, name), group, key)) for group in finished(groups)]
                write(out, f"{name}_{key}.svg", curves(title, lines, unit))


if __name__ == "__main__":
    main()
