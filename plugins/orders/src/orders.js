// The order book: 40,000 made-up orders. Each is a function of the seed and its number alone, so that one order can be
// had without the others, and every instance has the same book.
//
// A row is put together as text from ready-made pieces, since most calls need all of them and a guest's JavaScript is
// interpreted: with objects, array methods and JSON.stringify a row costs ten times as much. What stands at the top level
// of a module runs when the component is built, so that the pieces cost a call nothing.

/** How many orders there are. */
export const COUNT = 40_000;

const SEED = 0x504c494d;
const CUSTOMERS = 1_200;
/** The first order was placed at this time (UTC), and one follows every 13 minutes. */
const FIRST = Date.UTC(2025, 10, 20, 6, 0);
const MINUTES_APART = 13;
const MINUTES_A_DAY = 1_440;

const TOWNS = ['Aveiro', 'Bergen', 'Cork', 'Danzig', 'Esbjerg', 'Funchal', 'Genoa', 'Hamburg', 'Izmir', 'Jaffa'];
const STREETS = ['Ropewalk', 'Quay Road', 'Lantern Lane', 'Chandler Street', 'Mast Yard', 'Old Harbour', 'Tide Row'];
const HOUSES = 90;
const GOODS = [
  { sku: 'RO-12', name: 'Mooring rope, 12 mm', cents: 189 },
  { sku: 'SH-08', name: 'Bow shackle, 8 mm', cents: 640 },
  { sku: 'LA-01', name: 'Masthead light', cents: 7_450 },
  { sku: 'CO-03', name: 'Steering compass', cents: 21_900 },
  { sku: 'FE-20', name: 'Fender, 20 cm', cents: 2_380 },
  { sku: 'PU-05', name: 'Bilge pump, 5 l', cents: 9_900 },
  { sku: 'CH-10', name: 'Anchor chain, 10 mm', cents: 1_120 },
  { sku: 'OI-02', name: 'Oilskin jacket', cents: 12_500 },
  { sku: 'FL-04', name: 'Signal flag set', cents: 5_600 },
  { sku: 'VA-15', name: 'Spar varnish, 1 l', cents: 3_150 },
];
const MAX_QUANTITY = 12;
const REMARKS = [
  'Leave with the harbour office if nobody is aboard.',
  'Please call the day before: the lock closes at low water.',
  'One invoice for all orders of this month, as agreed.',
  'The last delivery was short of one item; see the claim.',
];

// The pieces.
const made = (length, make) => Array.from({ length }, (_, index) => make(index));
const padded = (number, digits) => String(number).padStart(digits, '0');
const THOUSANDS = made(COUNT / 1_000 + 1, (thousand) => padded(thousand, 2));
const BELOW_A_THOUSAND = made(1_000, (rest) => padded(rest, 3));
const CUSTOMER_IDS = made(CUSTOMERS, (index) => `C-${padded(index + 1, 4)}`);
const DAYS = made(Math.ceil((COUNT * MINUTES_APART) / MINUTES_A_DAY) + 2, (day) =>
  new Date(FIRST + day * MINUTES_A_DAY * 60_000).toISOString().slice(0, 10),
);
const TIMES = made(MINUTES_A_DAY, (minute) => `${padded(Math.floor(minute / 60), 2)}:${padded(minute % 60, 2)}`);
const FIRST_MINUTE = (FIRST / 60_000) % MINUTES_A_DAY;
const ADDRESSES = made(HOUSES * STREETS.length, (index) =>
  JSON.stringify(`${1 + Math.floor(index / STREETS.length)} ${STREETS[index % STREETS.length]}`),
);
const LINES = GOODS.flatMap(({ sku, name, cents }) =>
  made(MAX_QUANTITY, (index) => {
    const quantity = index + 1;
    return { quantity, cents: quantity * cents, text: JSON.stringify({ sku, name, quantity, cents }) };
  }),
);
const REMARK_TEXTS = [...REMARKS.map((remark) => JSON.stringify(remark)), ...made(12, () => 'null')];

/** The number of an order by its id; none where there is no such order. */
export function numberOf(id) {
  const number = Number(/^O-(\d{5})$/.exec(id)?.[1]);
  return number >= 1 && number <= COUNT ? number : undefined;
}

let state = 0;

/** A random integer from 0 to below `count`, the next one of its seed. */
function below(count) {
  state = (Math.imul(state, 1_664_525) + 1_013_904_223) | 0;
  return ((state >>> 16) * count) >>> 16;
}

/** The state of an order: old ones are over, and one in eleven was cancelled. */
function statusOf(number) {
  if (below(11) === 0) return 'cancelled';
  const age = COUNT - number;
  if (age > 1_500) return 'delivered';
  if (age > 600) return 'shipped';
  return age > 200 ? 'packed' : 'open';
}

/** One order by its number, as JSON. */
export function order(number) {
  state = Math.imul(number, 0x9e3779b1) ^ SEED;
  const status = statusOf(number);
  const minutes = FIRST_MINUTE + number * MINUTES_APART;
  const minute = minutes % MINUTES_A_DAY;
  const thousand = (number / 1_000) | 0;
  let line = LINES[below(LINES.length)];
  let items = line.quantity;
  let cents = line.cents;
  let lines = line.text;
  for (let left = below(4); left > 0; left -= 1) {
    line = LINES[below(LINES.length)];
    items += line.quantity;
    cents += line.cents;
    lines += `,${line.text}`;
  }
  return (
    `{"id":"O-${THOUSANDS[thousand]}${BELOW_A_THOUSAND[number - thousand * 1_000]}","customer":"${CUSTOMER_IDS[below(CUSTOMERS)]}",` +
    `"status":"${status}","placed":"${DAYS[(minutes - minute) / MINUTES_A_DAY]}T${TIMES[minute]}Z","items":${items},` +
    `"total":{"cents":${cents},"currency":"EUR"},"ship_to":{"street":${ADDRESSES[below(ADDRESSES.length)]},"town":"${TOWNS[below(TOWNS.length)]}"},` +
    `"lines":[${lines}],"remark":${REMARK_TEXTS[below(REMARK_TEXTS.length)]}}`
  );
}
