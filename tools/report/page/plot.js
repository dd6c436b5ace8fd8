// One plot: a figure with a canvas, drawn by Chart.js.

function element(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in node) {
      node[name] = value;
    } else {
      node.setAttribute(name, value);
    }
  }
  node.append(...children);
  return node;
}

function sentence(section, text) {
  section.append(element('p', { className: 'quiet', textContent: text }));
}

// The index of the point nearest to x; points are in the order of x.
function nearest(list, x) {
  let low = 0, high = list.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (list[middle].x < x) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  const before = low > 0 && x - list[low - 1].x < list[low].x - x;
  return before ? low - 1 : low;
}

const MOST_VALUES = 12;  // that a tooltip has room for

// What is under the pointer: of each line the value at its x.
Chart.Interaction.modes.everyRun = (chart, event) => {
  const at = Chart.helpers.getRelativePosition(event, chart);
  const area = chart.chartArea;
  if (at.x < area.left || at.x > area.right || at.y < area.top ||
      at.y > area.bottom) {
    return [];
  }
  const x = chart.scales.x.getValueForPixel(at.x);
  let found = [];
  chart.data.datasets.forEach((dataset, datasetIndex) => {
    if (dataset.silent || dataset.data.length === 0) return;
    const index = nearest(dataset.data, x);
    const point = chart.getDatasetMeta(datasetIndex).data[index];
    const inside = x >= dataset.data[0].x &&
        x <= dataset.data[dataset.data.length - 1].x;
    if (!inside && Math.abs(point.x - at.x) > 24) return;
    if (Number.isNaN(dataset.data[index].y)) return;
    found.push({ element: point, datasetIndex, index });
  });
  if (found.length > MOST_VALUES) {
    const distance = (item) => Math.abs(item.element.y - at.y);
    found.sort((a, b) => distance(a) - distance(b));
    found = found.slice(0, MOST_VALUES)
        .sort((a, b) => a.datasetIndex - b.datasetIndex);
  }
  return found;
};

function verticalLine(chart, x, color, dash) {
  const { ctx, chartArea: area } = chart;
  ctx.save();
  ctx.beginPath();
  ctx.setLineDash(dash);
  ctx.lineWidth = 1;
  ctx.strokeStyle = color;
  ctx.moveTo(x, area.top);
  ctx.lineTo(x, area.bottom);
  ctx.stroke();
  ctx.restore();
}

// Where something happened to a run: a switch, with the name of the stage that
// begins, and each going on by --resume.
function eventsOf(run) {
  return [
    ...run.stages.slice(1).map(
        (stage) => ({ at: stage.begin, text: stage.name, dash: [4, 3] })),
    ...run.starts.slice(1).map(
        ({ at }) => ({ at, text: 'resumed', dash: [1, 3] })),
  ];
}

// Lines in the run's colour with their text. Of many runs, what happens to
// several at one place has one text.
function marksOf(chart) {
  const marks = [];
  const scale = chart.scales.x;
  const shown = chart.runs();
  const many = shown.length > 4;
  for (const run of shown) {
    eventsOf(run).forEach(({ at, text, dash }) => {
      const x = xOf(at[state.axis.column]);
      if (!Number.isFinite(x) || (state.logX && x <= 0)) return;
      const pixel = scale.getPixelForValue(x);
      if (pixel < chart.chartArea.left || pixel > chart.chartArea.right) return;
      const of = shown.length > 1 && !many ?
        `${shortened(run.name, 18)}: ` : '';
      const told = many && marks.some((mark) =>
        mark.text === text && Math.abs(mark.pixel - pixel) < 3);
      marks.push({
        pixel, text: told ? '' : of + text, color: colorOf(run), dash,
      });
    });
  }
  return marks;
}

function drawMarkText(chart, mark, line) {
  const { ctx, chartArea: area } = chart;
  ctx.save();
  ctx.font = `600 11px ${Chart.defaults.font.family}`;
  const width = ctx.measureText(mark.text).width;
  const left = mark.pixel + 5 + width > area.right;
  ctx.textAlign = left ? 'right' : 'left';
  ctx.textBaseline = 'top';
  ctx.lineJoin = 'round';
  ctx.lineWidth = 4;
  ctx.strokeStyle = css('--panel');
  ctx.fillStyle = mark.color;
  const x = mark.pixel + (left ? -5 : 5);
  const y = area.top + 3 + 14 * line;
  ctx.strokeText(mark.text, x, y);
  ctx.fillText(mark.text, x, y);
  ctx.restore();
}

const marks = {
  id: 'marks',
  beforeDatasetsDraw(chart) {
    for (const mark of marksOf(chart)) {
      verticalLine(chart, mark.pixel, mark.color, mark.dash);
    }
  },
  afterDatasetsDraw(chart) {
    marksOf(chart).filter((mark) => mark.text !== '').forEach((mark, line) => {
      drawMarkText(chart, mark, line % 8);
    });
    const active = chart.getActiveElements();
    if (active.length > 0) {
      const x = Math.round(active[0].element.x) + 0.5;
      verticalLine(chart, x, faint(css('--quiet'), 0.6), []);
    }
  },
};

class Plot {
  // `spec`: title, unit, datasets(), and optionally shape (a class), say(y) for
  // text of values, tick(y), log (whether "log y" is for it), zero (whether y
  // begins there) and runs() (otherwise those that are shown).
  constructor(host, spec) {
    this.spec = spec;
    this.canvas = element('canvas', { role: 'img' });
    this.canvas.setAttribute(
        'aria-label', `${spec.title}; its numbers are in the tables below`);
    const unitText = spec.unit ? [element(
        'span', { className: 'quiet', textContent: spec.unit })] : [];
    this.figure = element(
        'figure', { className: `plot ${spec.shape || ''}` },
        element('figcaption', {},
            element('h3', { textContent: spec.title }), ...unitText),
        element('div', { className: 'frame' }, this.canvas));
    host.append(this.figure);
    this.chart = null;
  }

  draw() {
    if (this.chart) this.chart.destroy();
    const shown = this.spec.runs || shownRuns;
    const datasets = this.spec.datasets();
    this.chart = new Chart(this.canvas, {
      type: 'line',
      data: { datasets },
      options: this.options(datasets),
      plugins: [{ id: 'runs', beforeInit(chart) { chart.runs = shown; } },
                marks],
    });
  }

  options(datasets) {
    const say = this.spec.say || ((y) => digits(y, 4));
    return {
      animation: false,
      parsing: false,
      normalized: true,
      maintainAspectRatio: false,
      clip: 6,
      interaction: { mode: 'everyRun', intersect: false },
      scales: { x: this.xScale(), y: this.yScale(datasets) },
      elements: {
        point: { radius: 0, hoverRadius: 4, hitRadius: 0 },
        line: { borderWidth: 1.75, borderJoinStyle: 'round' },
      },
      plugins: {
        legend: { display: false },
        tooltip: {
          backgroundColor: css('--text'),
          titleColor: css('--page'),
          bodyColor: css('--page'),
          boxWidth: 8,
          boxHeight: 8,
          boxPadding: 5,
          multiKeyBackground: 'transparent',
          padding: 9,
          caretSize: 0,
          callbacks: {
            title: (items) =>
              items.length > 0 ? state.axis.say(items[0].parsed.x) : '',
            label: ({ dataset, dataIndex, parsed }) => {
              const raw = dataset.raw ? dataset.raw[dataIndex].y : NaN;
              const step = known(raw) ? `  (this step ${say(raw)})` : '';
              const also = dataset.also ?
                dataset.also(dataset.data[dataIndex].row) : '';
              return `${dataset.label}  ${say(parsed.y)}${step}${also}`;
            },
            labelColor: ({ dataset }) => ({
              backgroundColor: dataset.borderColor,
              borderColor: dataset.borderColor,
            }),
          },
        },
      },
    };
  }

  // All plots are as wide as the runs that they show, so that they compare.
  xScale() {
    let least = Infinity, most = -Infinity;
    for (const run of (this.spec.runs || shownRuns)()) {
      for (const { x } of points(run.steps, columnOf(run, 'step'))) {
        least = Math.min(least, x);
        most = Math.max(most, x);
      }
      for (const { x } of points(run.validations, run.validations.step || [])) {
        most = Math.max(most, x);
      }
    }
    const any = least < most;
    return {
      type: state.logX ? 'logarithmic' : 'linear',
      min: !any ? undefined : state.logX ? least : Math.min(least, 0),
      max: any ? most : undefined,
      title: { display: true, text: state.axis.title },
      ticks: {
        maxRotation: 0,
        autoSkipPadding: 20,
        includeBounds: false,
        callback: (x) => state.axis.tick(x),
      },
      grid: { color: css('--grid'), borderColor: css('--line') },
    };
  }

  yScale(datasets) {
    const log = state.logY && this.spec.log && datasets.some(
        ({ data }) => data.some(({ y }) => y > 0));
    const tick = this.spec.tick || ((y) => digits(y, 4));
    return {
      type: log ? 'logarithmic' : 'linear',
      beginAtZero: Boolean(this.spec.zero),
      grace: log ? 0 : '3%',
      ticks: {
        autoSkipPadding: 12,
        maxTicksLimit: 8,
        callback: (y) => tick(y),
      },
      grid: { color: css('--grid'), borderColor: css('--line') },
    };
  }
}

function setChartDefaults() {
  Chart.defaults.color = css('--quiet');
  Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
  Chart.defaults.font.size = 12;
}
