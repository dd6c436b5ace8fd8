// Puts the page together, and draws anew what a choice changes.

const plots = [];

const MANY_RUNS = 4;  // of which all or none can be chosen at once

function drawAll() {
  setChartDefaults();
  for (const plot of plots) plot.draw();
}

function byId(id) {
  return document.getElementById(id);
}

function joined(names) {
  if (names.length < 2) return names.join('');
  return `${names.slice(0, -1).join(', ')} and ${names[names.length - 1]}`;
}

function showHead() {
  const title = runs.length <= 4 ? joined(runs.map((run) => run.name)) :
    `${runs.length} runs`;
  byId('title').textContent = title;
  document.title = `${title} \u2013 Delink report`;
  const time = report.time.replace('T', ' ').replace('Z', ' UTC');
  byId('made').textContent = `Made by Delink ${report.version} on ${time}`;
  const notes = byId('notes');
  for (const run of runs) {
    for (const note of run.notes) {
      notes.append(element('p', {}, element('b', { textContent: run.name }),
          ` ${note}`));
    }
  }
  notes.hidden = notes.children.length === 0;
}

function showRunChoices() {
  const buttons = [];
  const hide = (run, is) => {
    if (is) {
      state.hidden.add(run.index);
    } else {
      state.hidden.delete(run.index);
    }
    buttons[run.index].setAttribute('aria-pressed', String(!is));
  };
  if (runs.length > MANY_RUNS) {
    for (const [label, is] of [['all', false], ['none', true]]) {
      const button = element('button',
          { className: 'run', type: 'button', textContent: label });
      button.addEventListener('click', () => {
        runs.forEach((run) => hide(run, is));
        drawAll();
      });
      byId('runs').append(button);
    }
  }
  for (const run of runs) {
    const button = element('button', { className: 'run', type: 'button' },
        swatch(run), run.name);
    button.setAttribute('aria-pressed', 'true');
    button.addEventListener('click', () => {
      hide(run, !state.hidden.has(run.index));
      drawAll();
    });
    buttons.push(button);
    byId('runs').append(button);
  }
}

// Buttons of which one is chosen. Arrows move the choice.
function choice(host, options, chosen, choose) {
  const buttons = options.map(({ label, value, off }) => {
    const button = element(
        'button', { type: 'button', textContent: label, disabled: off || false });
    button.setAttribute('role', 'radio');
    button.addEventListener('click', () => {
      mark(value);
      choose(value);
    });
    return button;
  });
  const mark = (value) => buttons.forEach((button, index) => {
    const is = options[index].value === value;
    button.setAttribute('aria-checked', String(is));
    button.tabIndex = is ? 0 : -1;
  });
  host.addEventListener('keydown', (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
    if (!(event.key in step)) return;
    const able = buttons.filter((button) => !button.disabled);
    const at = able.indexOf(document.activeElement);
    const next = able[(at + step[event.key] + able.length) % able.length];
    next.focus();
    next.click();
    event.preventDefault();
  });
  mark(chosen);
  host.append(...buttons);
}

function showAxisChoices() {
  const able = (axis) => anyRunHas(axis.column);
  state.axis = AXES.find(able) || AXES[0];
  choice(byId('axis'), AXES.map((axis) => (
    { label: axis.label, value: axis, off: !able(axis) })), state.axis,
  (axis) => {
    state.axis = axis;
    drawAll();
  });
  for (const [id, name] of [['log-x', 'logX'], ['log-y', 'logY']]) {
    const box = byId(id);
    box.checked = state[name];
    box.addEventListener('change', () => {
      state[name] = box.checked;
      drawAll();
    });
  }
  const slider = byId('smooth'), text = byId('smooth-text');
  const tell = () => {
    const steps = HALF_LIVES[state.smooth];
    text.textContent = steps === 0 ? 'not at all' :
      `${steps} step${steps === 1 ? '' : 's'}`;
    slider.setAttribute('aria-valuetext', text.textContent);
  };
  slider.max = HALF_LIVES.length - 1;
  slider.value = state.smooth;
  slider.addEventListener('input', () => {
    state.smooth = Number(slider.value);
    tell();
    drawAll();
  });
  tell();
}

function showSharing(section) {
  if (!runs.some((run) => (run.agreement.rho || []).some(known))) {
    sentence(section, 'No run has probed how far the gradients of layers that ' +
        'share agree (run.probe_every).');
    return;
  }
  const plot = new Plot(section, AGREEMENT_PLOT);
  plots.push(plot);
  sentence(plot.figure, 'At 1 the layers want the same of the weights that ' +
      'they share. At 1/n, for n layers, what they want is unrelated: then ' +
      'sharing has done its work, and it is time to delink. Solid: all parts ' +
      'together; dashed: each part.');
}

function showNorms(section) {
  const able = runs.filter((run) => run.norms.length > 0);
  if (able.length === 0) {
    sentence(section, 'No run has told of the norms of its layers ' +
        '(run.norms_every).');
    return;
  }
  const pick = element('div', { className: 'pick' });
  section.append(pick);
  const plot = new Plot(section, NORMS_PLOT);
  plots.push(plot);
  const group = (label, options, chosen, choose) => {
    const host = element('div', { className: 'choice' });
    host.setAttribute('role', 'radiogroup');
    host.setAttribute('aria-label', label);
    choice(host, options, chosen, (value) => {
      choose(value);
      plot.draw();
    });
    pick.append(host);
  };
  if (able.length > 1) {
    group('Run', able.map((run) => (
      { label: shortened(run.name, 24), value: run })), state.norms.run,
    (run) => { state.norms.run = run; });
  }
  group('Norm of', [{ label: 'Gradient', value: 'gradient' },
                    { label: 'Weights', value: 'weight' }], 'gradient',
  (kind) => { state.norms.kind = kind; });
  const depth = element('span', { className: 'depth' });
  const paint = () => {
    const colors = [0, 0.25, 0.5, 0.75, 1].map(depthColor);
    depth.style.background = `linear-gradient(to right, ${colors.join()})`;
  };
  paint();
  repaints.push(paint);
  pick.append(element('span', { className: 'quiet' }, 'first layer', depth,
      'last layer'));
}

const repaints = [];  // of what is coloured by hand, when colours change

function redrawInColors() {
  repaints.forEach((paint) => paint());
  drawAll();
}

function watchColors() {
  matchMedia('(prefers-color-scheme: dark)')
      .addEventListener('change', redrawInColors);
  // Paper is white.
  addEventListener('beforeprint', () => {
    document.documentElement.setAttribute('data-print', '');
    redrawInColors();
  });
  addEventListener('afterprint', () => {
    document.documentElement.removeAttribute('data-print');
    redrawInColors();
  });
}

showHead();
showRunChoices();
showAxisChoices();
for (const spec of PLOTS) plots.push(new Plot(byId('plots'), spec));
if (PLOTS.length === 0) sentence(byId('plots'), 'There is nothing to plot.');
showSweeps(byId('sweeps'));
showSummary(byId('summary'));
showMemory(byId('memory'));
showSharing(byId('sharing'));
showNorms(byId('norms'));
showRouting(byId('routing'));
showDifferences(byId('differences'));
showEnvironment(byId('environment'));
watchColors();
drawAll();
