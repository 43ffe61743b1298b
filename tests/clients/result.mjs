// Opens the page of a complete result in headless Chromium, uses it as a person would, and prints what it saw as one JSON
// object, which tests/it/results.rs judges. Speaks the DevTools protocol through a pipe, so that it needs no package.
//
//     result.mjs LINK FOLDER SEARCH COLUMN
//
// FOLDER is for the browser's profile, its downloads and pictures of the page.

import { spawn } from "node:child_process";
import { readFileSync, readdirSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const [link, folder, search, column] = process.argv.slice(2);
const downloads = join(folder, "downloads");
mkdirSync(downloads, { recursive: true });

const browser = spawn(
  "chromium",
  [
    "--headless=new", "--remote-debugging-pipe", "--no-first-run", "--disable-gpu", "--disable-dev-shm-usage",
    // A browser that root starts has no sandbox of its own; what it opens here is this host alone.
    "--no-sandbox", `--user-data-dir=${join(folder, "profile")}`, "about:blank",
  ],
  { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] },
);
const [, , , input, output] = browser.stdio;

let last = 0;
const waiting = new Map();
const listeners = new Map();
let buffer = Buffer.alloc(0);
output.on("data", (data) => {
  buffer = Buffer.concat([buffer, data]);
  for (let end = buffer.indexOf(0); end >= 0; end = buffer.indexOf(0)) {
    const message = JSON.parse(buffer.subarray(0, end).toString("utf8"));
    buffer = buffer.subarray(end + 1);
    if (message.id !== undefined) {
      const { resolve, reject } = waiting.get(message.id);
      waiting.delete(message.id);
      if (message.error) reject(new Error(JSON.stringify(message.error)));
      else resolve(message.result);
    } else {
      for (const listener of listeners.get(message.method) ?? []) listener(message.params);
    }
  }
});

function send(method, params = {}, sessionId) {
  last += 1;
  const id = last;
  input.write(`${JSON.stringify({ id, method, params, sessionId })}\0`);
  return new Promise((resolve, reject) => waiting.set(id, { resolve, reject }));
}

function on(method, listener) {
  listeners.set(method, [...(listeners.get(method) ?? []), listener]);
}

const { targetId } = await send("Target.createTarget", { url: "about:blank" });
const { sessionId } = await send("Target.attachToTarget", { targetId, flatten: true });
const page = (method, params) => send(method, params, sessionId);

/** The value of an expression in the page; a promise is waited for. */
async function evaluate(expression) {
  const { result, exceptionDetails } = await page("Runtime.evaluate", { expression, awaitPromise: true, returnByValue: true });
  if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
  return result.value;
}

/** Resolves with the page's next frames, when it has drawn what it was told to. */
const drawn = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))";

async function picture(name) {
  const { data } = await page("Page.captureScreenshot", { format: "png" });
  writeFileSync(join(folder, `${name}.png`), Buffer.from(data, "base64"));
}

async function look(width, height, scheme) {
  await page("Emulation.setDeviceMetricsOverride", { width, height, deviceScaleFactor: 1, mobile: width < 500 });
  await page("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: scheme }] });
  await evaluate(drawn);
}

const requests = [];
const complaints = [];
on("Network.requestWillBeSent", ({ request }) => requests.push(request.url));
on("Log.entryAdded", ({ entry }) => complaints.push(entry.text));
on("Runtime.exceptionThrown", ({ exceptionDetails }) => complaints.push(exceptionDetails.text));
for (const domain of ["Page", "Runtime", "Network", "Log"]) await page(`${domain}.enable`);
await look(1280, 800, "light");

const loaded = new Promise((resolve) => on("Page.loadEventFired", resolve));
await page("Page.navigate", { url: link });
await loaded;
await evaluate(`new Promise((done) => {
  const state = document.documentElement.dataset;
  const look = () => state.state && done(true);
  new MutationObserver(look).observe(document.documentElement, { attributes: true });
  look();
})`);

const seen = `({
  state: document.documentElement.dataset.state,
  status: document.getElementById("status").textContent,
  heading: document.querySelector("h1").textContent,
  account: document.querySelector(".account").textContent,
  rows: Number(document.getElementById("table").getAttribute("aria-rowcount")) - 1,
  drawn: document.querySelectorAll("tbody tr.row").length,
  columns: [...document.querySelectorAll("thead th[data-column]")].map((cell) => cell.dataset.column),
  sorted: [...document.querySelectorAll("thead th[aria-sort]")].map((cell) => [cell.dataset.column, cell.getAttribute("aria-sort")]),
  first: [...document.querySelectorAll("tbody tr.row:nth-child(2) > *")].map((cell) => cell.textContent),
  last: [...document.querySelectorAll("tbody tr.row")].at(-1)?.firstElementChild.textContent,
})`;

const report = { opened: await evaluate(seen) };
await picture("light");

await evaluate(`document.getElementById("view").scrollTop = 1e9; ${drawn}`);
report.end = await evaluate(seen);
await evaluate(`document.getElementById("view").scrollTop = 0; ${drawn}`);

const press = `[...document.querySelectorAll("thead th[data-column]")].find((cell) => cell.dataset.column === ${JSON.stringify(column)}).querySelector("button").click(); ${drawn}`;
await evaluate(press);
report.ascending = await evaluate(seen);
await evaluate(press);
report.descending = await evaluate(seen);
await look(1280, 800, "dark");
await picture("dark");
await evaluate(press);
report.unsorted = await evaluate(seen);

// As a person types it: the slash goes to the search.
await page("Input.dispatchKeyEvent", { type: "keyDown", key: "/", text: "/" });
await page("Input.dispatchKeyEvent", { type: "keyUp", key: "/" });
await page("Input.insertText", { text: search });
await evaluate(drawn);
report.found = await evaluate(seen);

// The row's own window opens from the keyboard and closes with Escape.
await evaluate(`document.querySelector("tbody th button").focus()`);
await page("Input.dispatchKeyEvent", { type: "keyDown", key: "Enter", code: "Enter", windowsVirtualKeyCode: 13, text: "\r" });
await page("Input.dispatchKeyEvent", { type: "keyUp", key: "Enter", code: "Enter", windowsVirtualKeyCode: 13 });
await evaluate(drawn);
report.row = await evaluate(`({
  isOpen: document.getElementById("row").open,
  fields: [...document.querySelectorAll("#row dt")].map((name) => name.textContent),
})`);
await look(1280, 800, "light");
await picture("row");
await page("Input.dispatchKeyEvent", { type: "keyDown", key: "Escape", code: "Escape", windowsVirtualKeyCode: 27 });
await page("Input.dispatchKeyEvent", { type: "keyUp", key: "Escape", code: "Escape", windowsVirtualKeyCode: 27 });
await evaluate(drawn);
report.row.isClosed = await evaluate(`!document.getElementById("row").open`);

// One column less, and a download of what is left.
await evaluate(`document.getElementById("columns").open = true; ${drawn}`);
await picture("columns");
await evaluate(`[...document.querySelectorAll("#column-list label")].find((label) => label.textContent === ${JSON.stringify(column)}).click(); document.getElementById("columns").open = false; ${drawn}`);
report.chosen = await evaluate(seen);
await evaluate(`document.getElementById("downloads").open = true; ${drawn}`);
await picture("downloads");
await send("Browser.setDownloadBehavior", { behavior: "allow", downloadPath: downloads, eventsEnabled: true });
const saved = new Promise((resolve) => on("Browser.downloadProgress", ({ state }) => state !== "inProgress" && resolve(state)));
await evaluate(`[...document.querySelectorAll("#downloads a")].find((link) => link.textContent.startsWith("CSV")).click()`);
report.download = { state: await saved };
const [name] = readdirSync(downloads);
const lines = readFileSync(join(downloads, name), "utf8").trimEnd().split("\r\n");
Object.assign(report.download, { name, header: lines[0], rows: lines.length - 1, last: lines.at(-1) });
await evaluate(`document.getElementById("downloads").open = false`);

await evaluate(`(() => { const search = document.getElementById("search"); search.value = ""; search.dispatchEvent(new Event("input")); })()`);
await look(390, 780, "light");
await picture("phone");
report.phone = await evaluate(`({ isWider: document.documentElement.scrollWidth > innerWidth, rows: document.querySelectorAll("tbody tr.row").length })`);

report.elsewhere = requests.filter((url) => !url.startsWith(new URL(link).origin) && !url.startsWith("data:") && url !== "about:blank");
report.complaints = complaints;
console.log(JSON.stringify(report));
await send("Browser.close");
