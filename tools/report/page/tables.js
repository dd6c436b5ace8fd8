// What the page says in numbers and words.

function swatch(run) {
  const line = element('span', { className: 'swatch' });
  line.style.borderTopColor = `var(--run-${run.index % 8})`;
  if (run.index >= 8) {
    line.style.borderTopStyle = run.index % 16 < 8 ? 'dotted' : 'dashed';
  }
  return line;
}

function tableIn(section, head, body, className = '') {
  section.append(element(
      'div', { className: `table ${className}`, tabIndex: 0 },
      element('table', {}, element('thead', {}, head),
          element('tbody', {}, ...body))));
}

function headOfRuns() {
  return element('tr', {}, element('td'), ...runs.map(
      (run) => element('th', { scope: 'col' }, swatch(run), run.name)));
}

function rowOf(title, cells, className = '') {
  return element('tr', {}, element('th', { scope: 'row', textContent: title }),
      ...cells.map((text) => element('td', { className, textContent: text })));
}

// Rows of what runs have, one column a run; rows that no run has are left out.
function tableOfRuns(section, rows) {
  const body = rows.map(({ title, of, words, least }) => {
    const texts = runs.map(of);
    if (texts.every((text) => text === UNKNOWN)) return null;
    const row = rowOf(title, texts, words ? 'words' : '');
    if (least && runs.length > 1) markLeast(row, runs.map(least));
    return row;
  });
  tableIn(section, headOfRuns(), body.filter((row) => row !== null));
}

function markLeast(row, values) {
  const all = values.filter(known);
  if (all.length < 2) return;
  const best = Math.min(...all);
  values.forEach((value, index) => {
    if (value === best) row.children[index + 1].classList.add('best');
  });
}

function stateText(run) {
  const { steps, planned_steps: planned } = run.summary;
  const at = known(steps) ? ` after step ${steps}` : '';
  const of = known(planned) ? ` of ${planned}` : '';
  return {
    empty: 'nothing was measured',
    running: `at work,${at.replace(' after', ' now at')}${of}`,
    died: `died${at}${of}`,
    stopped: `ended${at}${of}`,
    finished: 'finished',
  }[run.state];
}

// What each stage has of something, one after the other.
function stagesText(run, name) {
  if (!run.stages.some((stage) => known(stage[name]))) return UNKNOWN;
  return run.stages.map((stage) => `${si(stage[name])} (${stage.name})`)
      .join(' \u2192 ');
}

// Seconds of a step, as planned and as measured.
function timedText(run) {
  return run.stages.filter((stage) => known(stage.planned_step))
      .map((stage) => {
        const planned = digits(stage.planned_step);
        return `${planned} s \u2192 ${digits(stage.measured_step)} s ` +
            `(${stage.name})`;
      }).join('; ') || UNKNOWN;
}

function switchText(run) {
  const all = run.stages.slice(1).filter((stage) => known(stage.loss_before));
  if (all.length === 0) return UNKNOWN;
  return all.map((stage) => {
    const before = fixed(stage.loss_before), after = fixed(stage.loss_after);
    const change = stage.loss_before === stage.loss_after ?
      `${before}, unchanged` : `${before} \u2192 ${after}`;
    return `step ${stage.begin.step}: ${change}`;
  }).join('; ');
}

function sourcesText(run) {
  return run.sources.map((source) => `${source.name}: ${si(source.tokens)} ` +
      `(${digits(source.epochs)} epochs)`).join('; ') || UNKNOWN;
}

function sourceLossText(run) {
  return partsOf(run.validations, 'loss').map((key) => {
    const losses = run.validations[key];
    return `${key.slice(5)}: ${fixed(losses[losses.length - 1])}`;
  }).join('; ') || UNKNOWN;
}

// A string as TOML has it, without its quotes.
function unquoted(text) {
  return text.replaceAll('"', '') || UNKNOWN;
}

function showSummary(section) {
  const of = (name, say) => (run) => say(run.summary[name]);
  const lastSteps = Math.max(...runs.map((run) => run.summary.loss_steps));
  const virtual = (run) => {
    const last = run.stages[run.stages.length - 1];
    return last ? si(last.virtual_parameters) : UNKNOWN;
  };
  tableOfRuns(section, [
    { title: 'State', of: stateText, words: true },
    { title: 'Model', of: (run) => unquoted(run.model) },
    {
      title: 'Blocks that are run', of: (run) => stagesText(run, 'depth'),
      words: true,
    },
    {
      title: 'Parameters that exist',
      of: (run) => stagesText(run, 'unique_parameters'), words: true,
    },
    { title: 'Parameters that layers see', of: virtual },
    { title: 'Steps', of: of('steps', (n) => known(n) ? String(n) : UNKNOWN) },
    { title: 'Tokens', of: of('tokens', si) },
    { title: 'Tokens of each source', of: sourcesText, words: true },
    { title: 'Time', of: of('seconds', duration) },
    {
      title: 'A step, planned and measured', of: timedText, words: true,
    },
    {
      title: 'FLOPs computed',
      of: of('flops', (n) => known(n) ? `${si(n)}FLOP` : UNKNOWN),
    },
    {
      title: `Training loss, mean of the last ${lastSteps} steps`,
      of: of('loss', fixed), least: (run) => run.summary.loss,
    },
    {
      title: 'Validation loss, at the end', of: of('validation_loss', fixed),
      least: (run) => run.summary.validation_loss,
    },
    {
      title: 'Validation loss, least', of: of('best_validation_loss', fixed),
      least: (run) => run.summary.best_validation_loss,
    },
    {
      title: 'Validation loss of each source, at the end', of: sourceLossText,
      words: true,
    },
    { title: 'Loss across the switch', of: switchText, words: true },
    { title: 'Tokens a second, median', of: of('tokens_per_s', si) },
    {
      title: 'Of the matmul peak, median',
      of: of('peak_percent', (n) => known(n) ? `${digits(n)} %` : UNKNOWN),
    },
    { title: 'Steps skipped', of: of('skipped_steps', si) },
    { title: 'Peak memory of rank 0', of: of('peak_memory', bytes) },
  ]);
}

const KINDS = [
  ['weights', (b) => b.weights],
  ['gradients', (b) => b.gradients],
  ['optimizer state', (b) => b.state],
  ['activations', (b) => b.activations],
  ['other', (b) => (b.copies || 0) + (b.records || 0)],
];

function kindMark(index) {
  const mark = element('span', { className: 'kind' });
  mark.style.background = `var(--kind-${index})`;
  return mark;
}

function memoryRow(run, stage, most) {
  const amount = element('div', { className: 'amount' });
  KINDS.forEach(([name, of], index) => {
    const part = element('span', { title: `${name} ${bytes(of(stage.bytes))}` });
    part.style.width = `${100 * of(stage.bytes) / most}%`;
    part.style.background = `var(--kind-${index})`;
    amount.append(part);
  });
  const name = element(
      'th', { scope: 'row' }, swatch(run), `${run.name}, ${stage.name}`);
  const numbers = [...KINDS.map(([, of]) => of(stage.bytes)),
                   stage.bytes.total];
  return element('tr', {}, name, element('td', {}, amount), ...numbers.map(
      (number) => element('td', { textContent: bytes(number) })));
}

function showMemory(section) {
  const all = runs.flatMap((run) => run.stages
      .filter((stage) => stage.bytes !== null)
      .map((stage) => ({ run, stage })));
  if (all.length === 0) {
    sentence(section, 'No run has told of its memory.');
    return;
  }
  const most = Math.max(...all.map(({ stage }) => stage.bytes.total));
  const head = element('tr', {}, element('td'), element('td'), ...KINDS.map(
      ([name], index) => element('th', { scope: 'col' }, kindMark(index),
          name)), element('th', { scope: 'col', textContent: 'in all' }));
  tableIn(section, head,
      all.map(({ run, stage }) => memoryRow(run, stage, most)), 'memory');
}

function showDifferences(section) {
  if (runs.length < 2 || report.differences.length === 0) {
    sentence(section, runs.length < 2 ?
      'One run: nothing to compare its recipe with.' :
      'In nothing: all recipes that are there are the same.');
    return;
  }
  tableIn(section, headOfRuns(), report.differences.map(
      ({ key, values }) => element('tr', {},
          element('td', { className: 'key', textContent: key }),
          ...values.map((value) => element('td', {
            className: 'value', textContent: value === null ? UNKNOWN : value,
          })))));
}

// Of all beginnings of a run, each value once.
function ofStarts(run, say) {
  const texts = [...new Set(run.starts.map(say))].filter(
      (text) => text !== '' && text !== UNKNOWN);
  return texts.length === 0 ? UNKNOWN : texts.join('; ');
}

function count(number, one, many) {
  return `${digits(number)} ${number === 1 ? one : many}`;
}

function showEnvironment(section) {
  const machine = (s) => s.processor &&
      `${s.processor}, ${count(s.cores, 'core', 'cores')}`;
  const ranks = (s) => known(s.ranks) ?
    `${count(s.ranks, 'rank', 'ranks')} of ` +
    `${count(s.threads, 'thread', 'threads')}` : UNKNOWN;
  const version = (s) =>
    s.commit ? `${s.version}, commit ${s.commit}` : s.version;
  const peak = (s) => known(s.peak_flops) ?
    `${si(s.peak_flops)}FLOP/s` : UNKNOWN;
  tableOfRuns(section, [
    { title: 'Folder', of: (run) => run.folder, words: true },
    {
      title: 'Begun', of: (run) => run.starts.length === 0 ? UNKNOWN :
        run.starts[0].time.replace('T', ' ').replace('Z', ' UTC') || UNKNOWN,
    },
    {
      title: 'Gone on with --resume',
      of: (run) => run.starts.length < 2 ? UNKNOWN :
        count(run.starts.length - 1, 'time', 'times'),
    },
    {
      title: 'Commands', of: (run) => ofStarts(run, (s) => s.command),
      words: true,
    },
    { title: 'Delink', of: (run) => ofStarts(run, version) },
    { title: 'Processor', of: (run) => ofStarts(run, machine), words: true },
    { title: 'Processes', of: (run) => ofStarts(run, ranks) },
    {
      title: 'Precision', of: (run) => unquoted(run.precision),
    },
    { title: 'Matmul peak of all ranks', of: (run) => ofStarts(run, peak) },
  ]);
}
