#!/usr/bin/python3
"""Tables and figures of a study from the sweeps that tools/study/run.sh made.

  tables.py RUNS OUT

For each sweep RUNS/NAME with a sweep.csv a table in Markdown, means over seeds
with the sample's standard deviation, and a figure of the validation losses,
OUT/NAME.svg, with every run as a dot. Prints the tables. What did not finish
is said, and not counted.
"""
import csv
import html
import os
import statistics
import sys

# Columns of the tables: what sweep.csv calls them, and what the table does.
COLUMNS = {
    "validation_loss": "validation loss",
    "train_loss": "training loss",
    "validation_loss_at_153600_tokens": "at 154 k tokens",
    "validation_loss_at_307200_tokens": "at 307 k tokens",
    "validation_loss_at_60_s": "at 60 s",
    "validation_loss_at_120_s": "at 120 s",
    "seconds": "seconds",
    "planned_memory": "memory, MiB",
}
SCALE = {"planned_memory": 1 / 2**20}
DIGITS = {"seconds": 0, "planned_memory": 1}


class Group:
    """The runs that differ in their seed alone."""

    def __init__(self, label):
        self.label, self.done, self.runs = label, 0, 0
        self.values = {column: [] for column in COLUMNS}

    def add(self, row):
        self.runs += 1
        if row["status"] not in ("finished", "early"):
            return
        self.done += 1
        for column in COLUMNS:
            if row.get(column):
                self.values[column].append(float(row[column]) * SCALE.get(column, 1))

    def text(self, column):
        values, digits = self.values[column], DIGITS.get(column, 4)
        if not values:
            return "\u2013"
        mean = f"{statistics.mean(values):.{digits}f}"
        if len(values) == 1 or len(set(values)) == 1:
            return mean
        return f"{mean} \u00b1 {statistics.stdev(values):.{digits}f}"


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


def table(names, groups):
    columns = [column for column in COLUMNS if any(group.values[column] for group in groups)]
    best = min((statistics.mean(group.values["validation_loss"]) for group in groups
                if group.values["validation_loss"]), default=None)
    lines = ["| " + " | ".join([*names, "runs", *(COLUMNS[column] for column in columns)]) + " |",
             "|" + "---|" * (len(names) + 1 + len(columns))]
    for group in groups:
        runs = str(group.runs) if group.done == group.runs else f"{group.done} of {group.runs}"
        cells = [group.text(column) for column in columns]
        values = group.values["validation_loss"]
        if values and statistics.mean(values) == best:
            cells[columns.index("validation_loss")] = f"**{group.text('validation_loss')}**"
        lines.append("| " + " | ".join([*group.label, runs, *cells]) + " |")
    return "\n".join(lines)


def figure(title, groups):
    """A row for each group: a dot for each run, a bar of a standard deviation to each side of the mean."""
    shown = [(", ".join(group.label) or title, group.values["validation_loss"]) for group in groups
             if group.values["validation_loss"]]
    low = min(min(values) for _, values in shown)
    high = max(max(values) for _, values in shown)
    room = (high - low) * 0.08 or 0.01
    low, high = low - room, high + room
    left, width, line = 230, 700, 26
    height = line * len(shown) + 60

    def x(value):
        return left + (width - left - 20) * (value - low) / (high - low)

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
             f'font-size="13"><rect width="{width}" height="{height}" fill="#fff"/>'
             f'<text x="10" y="20" font-weight="bold">{html.escape(title)}: validation loss, nats a token</text>']
    for tick in range(5):
        value = low + (high - low) * tick / 4
        parts.append(f'<line x1="{x(value):.1f}" y1="32" x2="{x(value):.1f}" y2="{height - 24}" stroke="#ddd"/>'
                     f'<text x="{x(value):.1f}" y="{height - 8}" text-anchor="middle" fill="#555">{value:.3f}</text>')
    for index, (label, values) in enumerate(shown):
        y = 48 + line * index
        mean = statistics.mean(values)
        parts.append(f'<text x="{left - 12}" y="{y + 4}" text-anchor="end">{html.escape(label)}</text>')
        if len(values) > 1:
            spread = statistics.stdev(values)
            parts.append(f'<line x1="{x(mean - spread):.1f}" y1="{y}" x2="{x(mean + spread):.1f}" y2="{y}" '
                         'stroke="#1f5fa8" stroke-width="5" stroke-opacity="0.35"/>')
        parts.append(f'<line x1="{x(mean):.1f}" y1="{y - 7}" x2="{x(mean):.1f}" y2="{y + 7}" stroke="#1f5fa8" '
                     'stroke-width="2"/>')
        parts += [f'<circle cx="{x(value):.1f}" cy="{y}" r="3" fill="#1f5fa8"/>' for value in values]
    return "\n".join(parts) + "\n</svg>\n"


def main():
    if len(sys.argv) != 3 or sys.argv[1].startswith("-"):
        print(__doc__.strip(), file=sys.stderr)
        sys.exit(0 if "--help" in sys.argv else 2)
    runs, out = sys.argv[1:]
    os.makedirs(out, exist_ok=True)
    sweeps = sorted(name for name in os.listdir(runs) if os.path.exists(os.path.join(runs, name, "sweep.csv")))
    if not sweeps:
        sys.exit(f"tables.py: {runs}: no sweep there; tools/study/run.sh makes them")
    for name in sweeps:
        names, groups = read(os.path.join(runs, name, "sweep.csv"))
        print(f"## {name}\n\n{table(names, groups)}\n")
        left = sum(group.runs - group.done for group in groups)
        if left:
            print(f"{left} runs did not finish and are not counted.\n")
        if not any(group.values["validation_loss"] for group in groups):
            continue
        with open(os.path.join(out, f"{name}.svg"), "w", encoding="utf-8") as file:
            file.write(figure(name, groups))
        print(f"![{name}]({name}.svg)\n")


if __name__ == "__main__":
    main()
