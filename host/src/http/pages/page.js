// The table of one kept result. The rows come once, as cells of text; searching, sorting and choosing columns happen
// here, and only the rows that can be seen are in the document, so that a hundred thousand of them cost no more than
// forty. Nothing here is loaded from anywhere else, and nothing that came in is taken for markup.
'use strict';

(() => {
  /** Height of a row, as in the style sheet. Fonts may make it higher: it is measured once there are rows. */
  let ROW = 34;
  /** Rows beyond both edges of the view. */
  const SPARE = 12;
  /** Browsers lose pixels above some ten million; longer tables scroll by share. */
  const MAX_HEIGHT = 8_000_000;
  /** Rows that are looked at to tell a column of numbers. */
  const SAMPLE = 2_000;
  /** Characters of a cell that are put into the table; the row's own window shows all. */
  const CELL = 400;

  const NUMBER = /^-?\d+(\.\d+)?([eE][+-]?\d+)?$/;
  const of = (id) => document.getElementById(id);
  const view = of('view');
  const table = of('table');
  const head = table.tHead;
  const body = table.tBodies[0];
  const message = of('message');
  const status = of('status');
  const search = of('search');
  const count = new Intl.NumberFormat();
  const collator = new Intl.Collator(undefined, { numeric: true, sensitivity: 'base' });

  const make = (name, properties = {}, ...children) => {
    const element = Object.assign(document.createElement(name), properties);
    element.append(...children);
    return element;
  };

  let columns = [];
  let rows = [];
  /** Places of the rows that are shown, in their order. */
  let shown = [];
  let haystacks;
  let sorted = { column: -1, direction: 1 };
  let first = -1;
  /** The widest that each column has been, so that columns do not jump while rows go by. */
  const widths = new Map();

  const isNested = (cell) => cell !== null && (cell.startsWith('{') || cell.startsWith('['));

  function read({ columns: names, declared, rows: cells, has_more: hasMore }) {
    rows = cells;
    columns = names.map((name, place) => {
      let numbers = 0;
      let others = 0;
      for (let row = 0; row < cells.length && row < SAMPLE; row += 1) {
        const cell = cells[row][place];
        if (cell === null) continue;
        if (NUMBER.test(cell)) numbers += 1;
        else others += 1;
      }
      return { name, place, isNumber: numbers > 0 && others === 0, isShown: declared === 0 || place < declared };
    });
    shown = rows.map((_, place) => place);
    if (hasMore) {
      of('column-list').append(make('p', { className: 'small', textContent: 'Some rows have more fields than a table can show. The JSON has them all.' }));
    }
  }

  function drawHead() {
    const cells = columns
      .filter((column) => column.isShown)
      .map((column) => {
        const isSorted = sorted.column === column.place;
        const arrow = make('span', { className: 'arrow', textContent: isSorted ? (sorted.direction > 0 ? '↑' : '↓') : '' });
        arrow.setAttribute('aria-hidden', 'true');
        const button = make('button', { type: 'button', title: `Sort by ${column.name}` }, column.name, arrow);
        button.addEventListener('click', () => sortBy(column.place));
        const cell = make('th', { scope: 'col', className: column.isNumber ? 'number' : '' }, button);
        cell.dataset.column = column.name;
        if (widths.has(column.name)) cell.style.minWidth = `${widths.get(column.name)}px`;
        if (isSorted) cell.setAttribute('aria-sort', sorted.direction > 0 ? 'ascending' : 'descending');
        return cell;
      });
    const corner = make('th', { scope: 'col', className: 'corner' }, make('span', { className: 'hidden', textContent: 'Row' }));
    head.replaceChildren(make('tr', {}, corner, ...cells));
  }

  /** Puts the rows that can be seen into the document, between two rows that take the place of all others. */
  function draw(force) {
    const full = shown.length * ROW;
    const height = Math.min(full, MAX_HEIGHT);
    const visible = Math.ceil(view.clientHeight / ROW);
    const range = Math.max(1, height - view.clientHeight);
    const top = Math.min(view.scrollTop, range);
    const at = full > height ? Math.floor((top / range) * Math.max(0, shown.length - visible)) : Math.floor(top / ROW);
    const from = Math.max(0, Math.min(at - SPARE, shown.length - 1));
    const end = Math.min(shown.length, at + visible + SPARE);
    if (!force && from === first) return;
    first = from;
    const before = full > height ? Math.max(0, top - (at - from) * ROW) : from * ROW;
    const after = Math.max(0, height - before - (end - from) * ROW);
    const wanted = columns.filter((column) => column.isShown);
    const space = (pixels) => {
      const cell = make('td', { colSpan: wanted.length + 1 });
      cell.style.height = `${pixels}px`;
      const row = make('tr', { className: 'space' }, cell);
      row.setAttribute('aria-hidden', 'true');
      return row;
    };
    const lines = [];
    for (let index = from; index < end; index += 1) {
      const place = shown[index];
      const number = make('button', { type: 'button', textContent: String(place + 1), title: 'Show the whole row' });
      number.setAttribute('aria-label', `Show row ${place + 1}`);
      number.addEventListener('click', () => showRow(place));
      const line = make('tr', { className: 'row' }, make('th', { scope: 'row' }, number));
      line.setAttribute('aria-rowindex', String(index + 2));
      for (const { place: column, isNumber } of wanted) {
        const cell = rows[place][column];
        const name = [isNumber ? 'number' : '', isNested(cell) ? 'nested' : '', cell === null ? 'none' : ''];
        line.append(make('td', { className: name.join(' ').trim(), textContent: cell === null ? '' : cell.slice(0, CELL) }));
      }
      lines.push(line);
    }
    // Focus stays where it is when the row under it is drawn anew.
    const focused = body.contains(document.activeElement) ? document.activeElement.textContent : undefined;
    body.replaceChildren(space(before), ...lines, space(after));
    if (focused !== undefined) {
      [...body.querySelectorAll('button')].find((button) => button.textContent === focused)?.focus({ preventScroll: true });
    }
    table.setAttribute('aria-rowcount', String(shown.length + 1));
    measure();
  }

  function measure() {
    const height = body.querySelector('tr.row')?.getBoundingClientRect().height;
    if (height && Math.abs(height - ROW) > 0.5) {
      ROW = height;
      draw(true);
      return;
    }
    for (const cell of head.querySelectorAll('th[data-column]')) {
      const width = Math.ceil(cell.getBoundingClientRect().width);
      const name = cell.dataset.column;
      if (width > (widths.get(name) ?? 0) && view.scrollWidth > view.clientWidth) {
        widths.set(name, width);
        cell.style.minWidth = `${width}px`;
      }
    }
  }

  function say() {
    const all = count.format(rows.length);
    const is = rows.length === 1 ? 'row' : 'rows';
    status.textContent = shown.length === rows.length ? `${all} ${is}` : `${count.format(shown.length)} of ${all} ${is}`;
    message.hidden = shown.length > 0;
    message.textContent = rows.length > 0 ? 'No row has that in it.' : 'There are no rows.';
  }

  function order() {
    const { column, direction } = sorted;
    if (column < 0) {
      shown.sort((a, b) => a - b);
      return;
    }
    const isNumber = columns[column].isNumber;
    const keys = new Map(shown.map((place) => [place, isNumber && rows[place][column] !== null ? Number(rows[place][column]) : rows[place][column]]));
    shown.sort((a, b) => {
      const [left, right] = [keys.get(a), keys.get(b)];
      // A row without the field comes last, whichever way.
      if (left === null || right === null) return (left === null) - (right === null) || a - b;
      const difference = isNumber ? left - right : collator.compare(left, right);
      return (direction * difference) || a - b;
    });
  }

  /** Up, down, and back to the order in which the rows came. */
  function sortBy(column) {
    if (sorted.column !== column) sorted = { column, direction: 1 };
    else if (sorted.direction > 0) sorted.direction = -1;
    else sorted = { column: -1, direction: 1 };
    order();
    const focused = document.activeElement?.closest('th')?.dataset.column;
    drawHead();
    if (focused !== undefined) {
      [...head.querySelectorAll('th')].find((cell) => cell.dataset.column === focused)?.firstElementChild.focus();
    }
    draw(true);
  }

  function find() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    haystacks ??= rows.map((row) => row.join('\n').toLowerCase());
    shown = [];
    for (let place = 0; place < rows.length; place += 1) {
      if (words.every((word) => haystacks[place].includes(word))) shown.push(place);
    }
    order();
    view.scrollTop = 0;
    say();
    draw(true);
  }

  function showRow(place) {
    const dialog = of('row');
    of('row-title').textContent = `Row ${count.format(place + 1)}`;
    const pairs = columns.flatMap(({ name, place: column }) => {
      const cell = rows[place][column];
      if (cell === null) return [];
      let text = cell;
      // Only where reading it and writing it again changes nothing but white space.
      if (isNested(cell)) {
        try {
          const value = JSON.parse(cell);
          if (JSON.stringify(value) === cell) text = JSON.stringify(value, null, 2);
        } catch { /* not JSON: it is shown as it is */ }
      }
      return [make('dt', { textContent: name }), make('dd', { textContent: text, className: isNested(cell) ? 'nested' : '' })];
    });
    dialog.querySelector('dl').replaceChildren(...pairs);
    dialog.showModal();
  }

  /** The chosen columns go into the addresses of the tables. */
  function setDownloads() {
    const wanted = columns.filter((column) => column.isShown).map((column) => column.place);
    for (const link of document.querySelectorAll('a[data-table]')) {
      const url = new URL(link.href);
      url.searchParams.set('columns', wanted.join(','));
      link.href = url.href;
    }
  }

  function choose() {
    drawHead();
    draw(true);
    setDownloads();
  }

  function listColumns() {
    const boxes = columns.map((column) => {
      const box = make('input', { type: 'checkbox', checked: column.isShown });
      box.addEventListener('change', () => {
        const isLast = columns.filter(({ isShown }) => isShown).length === 1;
        if (!box.checked && isLast) {
          box.checked = true;
          return;
        }
        column.isShown = box.checked;
        choose();
      });
      return { column, box, label: make('label', {}, box, column.name) };
    });
    const all = make('button', { type: 'button', textContent: 'Show all' });
    all.addEventListener('click', () => {
      for (const { column, box } of boxes) column.isShown = box.checked = true;
      choose();
    });
    of('column-list').prepend(all, ...boxes.map(({ label }) => label));
  }

  function listen() {
    let isWaiting = false;
    const soon = () => {
      if (isWaiting) return;
      isWaiting = true;
      requestAnimationFrame(() => {
        isWaiting = false;
        draw(false);
      });
    };
    view.addEventListener('scroll', soon, { passive: true });
    new ResizeObserver(() => draw(true)).observe(view);
    search.addEventListener('input', find);
    of('row').addEventListener('click', (event) => {
      if (event.target === of('row')) of('row').close();
    });
    document.addEventListener('click', (event) => {
      for (const menu of document.querySelectorAll('details.menu[open]')) {
        if (!menu.contains(event.target)) menu.open = false;
      }
    });
    document.addEventListener('keydown', (event) => {
      if (event.key === 'Escape') {
        for (const menu of document.querySelectorAll('details.menu[open]')) {
          menu.open = false;
          menu.firstElementChild.focus();
        }
      } else if (event.key === '/' && document.activeElement !== search && !of('row').open) {
        event.preventDefault();
        search.focus();
      }
    });
  }

  const until = of('until');
  until.textContent = new Date(until.dateTime).toLocaleString(undefined, { dateStyle: 'medium', timeStyle: 'short' });

  fetch(`${location.pathname}/table`)
    .then(async (response) => {
      if (!response.ok) throw new Error(response.status === 410 ? 'This result is no longer kept. Call the tool again for a new link.' : `The host answered ${response.status}.`);
      return response.json();
    })
    .then((answer) => {
      read(answer);
      listColumns();
      listen();
      search.disabled = false;
      say();
      choose();
      document.documentElement.dataset.state = 'ready';
    })
    .catch((error) => {
      message.hidden = false;
      message.textContent = `The rows could not be loaded. ${error.message}`;
      document.documentElement.dataset.state = 'failed';
    });
})();
