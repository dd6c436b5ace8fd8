// Sweeps: runs that differ in their seed alone as one row, sorted by a click.

// How a measure is written, by its name.
function measureText(name, value) {
  if (!known(value)) return UNKNOWN;
  if (name.includes('loss')) return fixed(value);
  if (name.endsWith('_memory')) return bytes(value);
  if (name === 'seconds') return duration(value);
  if (name === 'steps' || name === 'best_step') return digits(value, 6);
  return si(value);
}

// Of a measure that not all runs have, of how many it is.
function cellText(name, group, index) {
  const { done, counts: { [index]: count }, spread: { [index]: spread } } = group;
  let text = measureText(name, group.mean[index]);
  if (known(spread) && spread > 0) {
    text += ` \u00b1 ${measureText(name, spread)}`;
  }
  return count > 0 && count < done ? `${text} (${count} of ${done})` : text;
}

// The columns of a sweep's table, each with what its cells say and how they
// are sorted.
function sweepColumns(sweep) {
  const settings = sweep.settings.map((name, index) => ({
    name, text: (group) => group.settings[index],
    key: (group) => {
      const number = Number(group.settings[index]);
      return Number.isNaN(number) ? group.settings[index] : number;
    },
  }));
  const count = {
    name: 'runs',
    text: ({ done, runs: all }) => done === all ? `${all}` : `${done} of ${all}`,
    key: (group) => group.done,
  };
  const measures = sweep.measures.map((name, index) => ({
    name: name.replaceAll('_', ' '),
    measure: name,
    text: (group) => cellText(name, group, index),
    key: (group) => group.mean[index],
  })).filter(({ key }) => sweep.groups.some((group) => known(key(group))));
  return [...settings, count, ...measures];
}

// What is not known comes last, whatever the direction.
function compareKeys(a, b, direction) {
  const missing = (key) => key === null || key === undefined;
  if (missing(a) || missing(b)) return Number(missing(a)) - Number(missing(b));
  if (typeof a === typeof b) return direction * (a < b ? -1 : Number(a > b));
  return direction * (typeof a === 'number' ? -1 : 1);
}

function showSweep(section, sweep) {
  const columns = sweepColumns(sweep);
  const body = element('tbody');
  const heads = columns.map((column) => {
    const button = element(
        'button', { className: 'sort', type: 'button', textContent: column.name });
    const head = element('th', { scope: 'col' }, button);
    button.addEventListener('click', () => {
      const down = head.getAttribute('aria-sort') === 'ascending';
      heads.forEach((other) => other.removeAttribute('aria-sort'));
      head.setAttribute('aria-sort', down ? 'descending' : 'ascending');
      fill([...sweep.groups].sort((a, b) =>
        compareKeys(column.key(a), column.key(b), down ? -1 : 1)));
    });
    return head;
  });
  const least = columns.map(({ key, measure }) => {
    const keys = sweep.groups.map(key).filter(known);
    return measure && measure.includes('loss') && keys.length > 1 ?
      Math.min(...keys) : undefined;
  });
  const fill = (groups) => body.replaceChildren(...groups.map(
      (group) => element('tr', {}, ...columns.map((column, index) => element(
          'td', {
            textContent: column.text(group),
            className: column.key(group) === least[index] ? 'best' : '',
          })))));
  fill(sweep.groups);
  section.append(element('h3', { textContent: sweep.name }), element(
      'div', { className: 'table sweep', tabIndex: 0 }, element(
          'table', {}, element('thead', {}, element('tr', {}, ...heads)), body)));
  for (const { name, error } of sweep.failures) {
    section.append(element('p', { className: 'quiet' },
        element('b', { textContent: name }), ` failed: ${error}`));
  }
}

function showSweeps(section) {
  if (report.sweeps.length === 0) return;
  section.hidden = false;
  for (const sweep of report.sweeps) showSweep(section, sweep);
  sentence(section, 'Means over seeds \u00b1 the sample\u2019s ' +
      'standard deviation, of the runs that are finished. A click on a ' +
      'heading sorts.');
}
