// What is shown: the runs, and the choices made in the bar.

const report = JSON.parse(document.getElementById('data').textContent);
const runs = report.runs;
runs.forEach((run, index) => { run.index = index; });

function columnOf(run, name) {
  return run.steps[name] || [];
}

function anyRunHas(name) {
  return runs.some((run) => columnOf(run, name).some(known));
}

function largest(name) {
  let most = 0;
  for (const run of runs) {
    for (const value of columnOf(run, name)) most = Math.max(most, value || 0);
  }
  return most;
}

// Plots measure time in the unit that suits the longest run.
function timeUnit() {
  const longest = largest('seconds');
  if (longest < 180) return { name: 'seconds', seconds: 1 };
  if (longest < 3 * 3600) return { name: 'minutes', seconds: 60 };
  if (longest < 4 * 86400) return { name: 'hours', seconds: 3600 };
  return { name: 'days', seconds: 86400 };
}

const unit = timeUnit();
const AXES = [
  {
    column: 'tokens', label: 'Tokens', title: 'tokens', scale: 1,
    tick: (x) => si(x), say: (x) => `${si(x, 4)} tokens`,
  },
  {
    column: 'seconds', label: 'Time', title: `time, ${unit.name}`,
    scale: 1 / unit.seconds, tick: (x) => digits(x, 4),
    say: (x) => duration(x * unit.seconds),
  },
  {
    column: 'flops', label: 'FLOPs', title: 'FLOPs computed', scale: 1,
    tick: (x) => si(x), say: (x) => `${si(x, 4)}FLOP`,
  },
  {
    column: 'step', label: 'Steps', title: 'steps', scale: 1,
    tick: (x) => si(x), say: (x) => `step ${Math.round(x)}`,
  },
];

// Of smoothing, in steps: see smoothed().
const HALF_LIVES = (() => {
  const most = Math.max(largest('step') / 5, 1);
  const all = [];
  for (let power = 1; power <= most; power *= 10) {
    all.push(power, 2 * power, 5 * power);
  }
  return [0, ...all.filter((steps) => steps <= most)];
})();

const state = {
  axis: AXES[0],
  logX: false,
  logY: false,
  // A step in a hundred, as far as there is such a choice.
  smooth: HALF_LIVES.filter((steps) => steps <= largest('step') / 100).length - 1,
  hidden: new Set(),
  norms: { run: runs.find((run) => run.norms.length > 0), kind: 'gradient' },
};
state.smooth = Math.max(state.smooth, 0);

function shownRuns() {
  return runs.filter((run) => !state.hidden.has(run.index));
}

// The horizontal position of a value of the axis's column.
function xOf(value) {
  return known(value) ? value * state.axis.scale : NaN;
}

function points(table, values) {
  const list = [];
  const places = table[state.axis.column] || [];
  for (let row = 0; row < values.length; ++row) {
    const x = xOf(places[row]);
    if (!Number.isFinite(x) || (state.logX && x <= 0)) continue;
    list.push({ x, y: known(values[row]) ? values[row] : NaN, row });
  }
  return list;
}

// A mean over the steps around, whose weight halves with every half-life of
// distance. Where rows were left out, their mean stands for them.
function smoothed(table, name) {
  const halfLife = HALF_LIVES[state.smooth];
  const values = table[`${name}_mean`] || table[name];
  const steps = table.step;
  const sums = new Array(values.length).fill(0);
  const weights = new Array(values.length).fill(0);
  // What is there on one side of each row, and the row itself if `own`.
  const pass = (first, by, own) => {
    let sum = 0, weight = 0;
    for (let row = first; row >= 0 && row < values.length; row += by) {
      const before = row - by;
      if (before >= 0 && before < values.length) {
        const keep = 2 ** (-Math.abs(steps[row] - steps[before]) / halfLife);
        sum *= keep;
        weight *= keep;
      }
      if (!own) {
        sums[row] += sum;
        weights[row] += weight;
      }
      if (known(values[row])) {
        const stands = row > 0 ? Math.max(steps[row] - steps[row - 1], 1) : 1;
        sum += stands * values[row];
        weight += stands;
      }
      if (own) {
        sums[row] += sum;
        weights[row] += weight;
      }
    }
  };
  pass(0, 1, true);
  pass(values.length - 1, -1, false);
  return values.map((value, row) =>
    known(value) ? sums[row] / weights[row] : null);
}

function css(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name)
      .trim();
}

function colorOf(run) {
  return css(`--run-${run.index % 8}`);
}

const DASHES = [[], [7, 3], [2, 3], [9, 3, 2, 3]];

// Eight colours, and a dash more for every eight runs.
function dashOf(run) {
  return DASHES[Math.floor(run.index / 8) % DASHES.length];
}

// "#rrggbb" with less of it.
function faint(color, part) {
  const alpha = Math.round(part * 255).toString(16).padStart(2, '0');
  return color + alpha;
}
