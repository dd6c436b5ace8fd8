// What each plot draws.

function lineOf(run) {
  return {
    label: shortened(run.name, 28),
    borderColor: colorOf(run),
    borderDash: dashOf(run),
  };
}

// A column of the steps: its values faintly, its smoothed values above.
function stepSeries(name) {
  return shownRuns().flatMap((run) => {
    const line = lineOf(run);
    const raw = points(run.steps, columnOf(run, name));
    if (HALF_LIVES[state.smooth] === 0 || raw.length === 0) {
      return [{ ...line, data: raw }];
    }
    return [
      {
        ...line, data: raw, silent: true,
        borderColor: faint(line.borderColor, 0.28), borderWidth: 1, order: 1,
      },
      { ...line, data: points(run.steps, smoothed(run.steps, name)), raw },
    ];
  });
}

// A column of the steps that is no measurement.
function plainSeries(name) {
  return shownRuns().map((run) => (
    { ...lineOf(run), data: points(run.steps, columnOf(run, name)) }));
}

const MARKERS = ['circle', 'rect', 'triangle', 'rectRot'];

// Few values, each with a marker.
function markedSeries(run, table, name) {
  return {
    ...lineOf(run),
    backgroundColor: colorOf(run),
    pointStyle: MARKERS[run.index % MARKERS.length],
    pointRadius: (table[name] || []).length > 60 ? 0 : 3.5,
    data: points(table, table[name] || []),
  };
}

// Columns of a part each: "rho attention", "loss web".
function partsOf(table, name) {
  return Object.keys(table).filter((key) => key.startsWith(`${name} `));
}

// The parts' lines are thin and dashed, the whole's is not.
function partSeries(run, table, name) {
  return partsOf(table, name).map((key, index) => ({
    ...markedSeries(run, table, key),
    label: `${shortened(run.name, 20)}, ${key.slice(name.length + 1)}`,
    pointRadius: 0,
    borderWidth: 1.25,
    borderDash: [[6, 3], [2, 3], [8, 3, 2, 3]][index % 3],
  }));
}

function agreementSeries() {
  return shownRuns().flatMap((run) => [
    {
      ...markedSeries(run, run.agreement, 'rho'),
      also: (row) => `  (${digits(run.agreement.unrelated[row])} times 1/n)`,
    },
    ...partSeries(run, run.agreement, 'rho'),
  ]);
}

// From the first layer's colour to the last's.
function depthColor(part) {
  const ends = ['--depth-0', '--depth-1'].map(
      (name) => css(name).split(',').map(parseFloat));
  // The short way round from blue to orange is through violet.
  const hues = [ends[0][0], ends[1][0] + 360];
  const mix = (a, b) => a + (b - a) * part;
  return `hsl(${mix(hues[0], hues[1]) % 360}, ` +
      `${mix(ends[0][1], ends[1][1])}%, ${mix(ends[0][2], ends[1][2])}%)`;
}

// A line for each layer of `table`, of its list in `values`.
function layerLines(table, layers, values) {
  const last = Math.max(layers.length - 1, 1);
  return layers.map((layer, index) => ({
    label: shortened(layer, 28),
    borderColor: depthColor(index / last),
    borderWidth: 1.4,
    data: points(table, values[index]),
    pointRadius: table.step.length === 1 ? 3 : 0,
  }));
}

function normSeries() {
  const { run, kind } = state.norms;
  if (!run) return [];
  return run.norms.flatMap(
      (norms) => layerLines(norms, norms.layers, norms[kind]));
}

const PLOTS = [
  {
    title: 'Training loss', unit: 'nats a token', shape: 'wide', log: true,
    is: () => anyRunHas('loss'), datasets: () => stepSeries('loss'),
    say: (y) => fixed(y),
  },
  {
    title: 'Validation loss', unit: 'nats a token', log: true,
    is: () => runs.some((run) => (run.validations.loss || []).some(known)),
    datasets: () => shownRuns().flatMap((run) => [
      markedSeries(run, run.validations, 'loss'),
      ...partSeries(run, run.validations, 'loss'),
    ]),
    say: (y) => `${fixed(y)}  (perplexity ${digits(Math.exp(y), 4)})`,
  },
  {
    title: 'Gradient norm', unit: 'before clipping', log: true, zero: true,
    is: () => anyRunHas('grad_norm'), datasets: () => stepSeries('grad_norm'),
  },
  {
    title: 'Learning rate', unit: 'as the stages scale it', log: true,
    is: () => anyRunHas('lr'), datasets: () => plainSeries('lr'),
    say: (y) => digits(y), zero: true,
  },
  {
    title: 'Speed', unit: 'tokens a second', zero: true,
    is: () => anyRunHas('tokens_per_s'),
    datasets: () => stepSeries('tokens_per_s'),
    say: (y) => `${si(y)} tokens/s`, tick: (y) => si(y),
  },
  {
    title: 'Matmul peak reached', unit: '% of what the machine was measured to do',
    zero: true, is: () => anyRunHas('peak_percent'),
    datasets: () => stepSeries('peak_percent'),
    say: (y) => `${digits(y)} %`, tick: (y) => digits(y),
  },
].filter((spec) => spec.is());

// A lone last plot takes the row.
if (PLOTS.length > 1 && PLOTS.length % 2 === 0) {
  PLOTS[PLOTS.length - 1].shape = 'wide low';
}

const AGREEMENT_PLOT = {
  title: 'Agreement of gradients', unit: 'rho of the layers that share',
  shape: 'wide low', zero: true,
  datasets: agreementSeries, say: (y) => digits(y),
};

const NORMS_PLOT = {
  title: 'Norms', unit: '', shape: 'wide', log: true, zero: true,
  runs: () => (state.norms.run ? [state.norms.run] : []),
  datasets: normSeries, say: (y) => digits(y),
};
