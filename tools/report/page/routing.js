// How the routers of a model with experts spread their tokens.

const QUANTILES = [
  { label: 'Largest load', name: 'largest', unit: 'of the mean' },
  { label: 'Upper quartile', name: 'upper_quartile', unit: 'of the mean' },
  { label: 'Median load', name: 'median', unit: 'of the mean' },
  { label: 'Lower quartile', name: 'lower_quartile', unit: 'of the mean' },
  { label: 'Least load', name: 'least', unit: 'of the mean' },
];
const BALANCE = [
  {
    label: 'Maximal violation', name: 'max_violation',
    unit: '(largest load \u2212 mean) / mean',
  },
  { label: 'Dropped choices', name: 'dropped', unit: 'fraction of all' },
  { label: 'Entropy', name: 'entropy', unit: 'of a token\u2019s scores, nats' },
  {
    label: 'Auxiliary loss', name: 'aux_loss',
    unit: 'of a token, with its weight, nats',
  },
  {
    label: 'Squared log-partition', name: 'z',
    unit: 'of a token\u2019s logits, without weight',
  },
];

function showRouting(section) {
  const able = runs.filter((run) => run.routing.length > 0);
  if (able.length === 0) return;
  section.hidden = false;
  const shown = { run: able[0] };
  const parts = [];
  if (able.length > 1) {
    const host = element('div', { className: 'choice' });
    host.setAttribute('role', 'radiogroup');
    host.setAttribute('aria-label', 'Run');
    choice(host, able.map((run) => (
      { label: shortened(run.name, 24), value: run })), shown.run, (run) => {
      shown.run = run;
      parts.forEach((part) => part.draw());
    });
    section.append(element('div', { className: 'pick' }, host));
  }
  parts.push(new LoadMaps(section, shown));
  // Without maps, quantiles say how loads are spread.
  if (able.some((run) => mapsOf(run).length === 0)) {
    parts.push(routingPlot(section, shown, 'Loads of experts', QUANTILES));
  }
  parts.push(routingPlot(section, shown, 'Balance of experts', BALANCE));
  plots.push(...parts);
  addEventListener('resize', () => parts[0].draw());
}

// A line for each layer, of the measure that is chosen.
function routingPlot(section, shown, title, measures) {
  let measure = measures[0];
  const plot = new Plot(section, {
    title, unit: measure.unit, shape: 'wide', log: true, zero: true,
    runs: () => [shown.run], say: (y) => digits(y),
    datasets: () => shown.run.routing.flatMap((routing) => layerLines(
        routing, routing.layers, routing[measure.name])),
  });
  const menu = element('select', {}, ...measures.map(({ label }, index) =>
    element('option', { textContent: label, value: index })));
  menu.setAttribute('aria-label', 'Measure');
  menu.addEventListener('change', () => {
    measure = measures[Number(menu.value)];
    plot.figure.querySelector('.quiet').textContent = measure.unit;
    plot.draw();
  });
  plot.figure.querySelector('h3').after(menu);
  return plot;
}

function mapsOf(run) {
  return run.routing.flatMap(({ layers, maps }) => maps.map(
      ({ step, load }) => ({ step, load, layers })));
}

// The stage of a run that step `step` belongs to.
function stageAt(run, step) {
  return run.stages.filter(({ begin }) => begin.step < step).pop();
}

// The load of each expert of each layer, at a step that is chosen.
class LoadMaps {
  constructor(host, shown) {
    this.shown = shown;
    this.canvas = element('canvas', { role: 'img' });
    this.canvas.setAttribute('aria-label', 'Load of each expert by layer');
    this.slider = element('input', { type: 'range', min: '0', step: '1' });
    this.slider.setAttribute('aria-label', 'Step');
    this.when = element('output');
    this.under = element('p', { className: 'quiet' });
    this.scale = element('span', { className: 'depth' });
    this.figure = element('figure', { className: 'plot wide heat' },
        element('figcaption', {},
            element('h3', { textContent: 'Load of each expert' }),
            element('span', { className: 'quiet' }, 'of the mean: 1/8',
                this.scale, '8; a row is a layer, a column an expert')),
        element('div', { className: 'pick' }, element('label',
            { className: 'check' }, 'step ', this.slider), this.when),
        this.canvas, this.under);
    host.append(this.figure);
    this.slider.addEventListener('input', () => this.paint());
    this.canvas.addEventListener('pointermove', (event) => this.tell(event));
    this.canvas.addEventListener('pointerleave', () => this.tell(null));
  }

  // The last step, until another is chosen.
  draw() {
    const maps = mapsOf(this.shown.run);
    if (this.of !== this.shown.run) {
      this.of = this.shown.run;
      this.slider.max = maps.length - 1;
      this.slider.value = maps.length - 1;
    }
    this.figure.hidden = maps.length === 0;
    if (maps.length > 0) this.paint();
  }

  paint() {
    const { step, load, layers } = mapsOf(this.of)[Number(this.slider.value)];
    const stage = stageAt(this.of, step);
    this.when.textContent = `${step}${stage ? `, ${stage.name}` : ''}`;
    this.slider.setAttribute('aria-valuetext', this.when.textContent);
    const color = loadColors();
    this.scale.style.background = `linear-gradient(to right, ${
      [-3, -2, -1, 0, 1, 2, 3].map((x) => color(2 ** x)).join()})`;
    const context = this.canvas.getContext('2d');
    const ratio = window.devicePixelRatio || 1;
    const width = this.canvas.clientWidth;
    const each = Math.max(4, Math.min(24, 420 / layers.length));
    this.canvas.style.height = `${each * layers.length}px`;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(each * layers.length * ratio);
    context.scale(ratio, ratio);
    context.font = `11px ${Chart.defaults.font.family}`;
    const left = 8 + Math.max(
        ...layers.map((layer) => context.measureText(layer).width));
    this.cells = { left, each, width: width - left, step, load, layers };
    context.textBaseline = 'middle';
    // Of many layers, as many names as there is room for.
    const named = Math.ceil(12 / each);
    load.forEach((loads, row) => {
      context.fillStyle = css('--quiet');
      if (row % named === 0) {
        context.fillText(layers[row], 0, each * (row + 0.5));
      }
      const gap = each > 8 ? 1 : 0;
      const cell = (width - left) / loads.length;
      loads.forEach((x, expert) => {
        context.fillStyle = color(x);
        context.fillRect(left + expert * cell, row * each,
            cell - (cell > 8 ? 1 : 0), each - gap);
      });
    });
    this.tell(null);
  }

  // What is under the pointer, or without one which experts stand out.
  tell(event) {
    const { left, each, width, load, layers } = this.cells;
    let row = 0, expert = -1;
    if (event) {
      row = Math.floor(event.offsetY / each);
      if (!load[row]) return;
      expert = Math.floor((event.offsetX - left) / width * load[row].length);
    } else {
      const most = load.map((loads) => Math.max(...loads.map((x) => x || 0)));
      row = most.indexOf(Math.max(...most));
      expert = load[row].indexOf(most[row]);
    }
    if (expert < 0 || expert >= load[row].length) return;
    this.under.textContent = `${event ? '' : 'Largest: '}${layers[row]}, ` +
        `expert ${expert}: ${digits(load[row][expert])} times the mean`;
  }
}

// Of a ratio to the mean: blue below it, orange above, stronger with distance.
function loadColors() {
  const below = css('--depth-0'), above = css('--depth-1');
  return (ratio) => {
    if (!known(ratio)) return 'transparent';
    const far = Math.max(-3, Math.min(3, Math.log2(ratio))) / 3;
    const part = (0.06 + 0.94 * Math.abs(far)).toFixed(3);
    return `hsla(${far < 0 ? below : above}, ${part})`;
  };
}
