// The live page: follows a run by server-sent events, and shows its newest status.

import { Charts, sparkline } from "/charts.js";
import { bytes, clock, duration, element, pairs, rate, rough, short, sized, whole } from "/format.js";
import { FlowGraph, losses, shown } from "/graph.js";
import { StepInside } from "/inside.js";

const MOST_EPOCHS = 300;
const MOST_POINTS = 180;
const MOST_INPUTS = 3;
const SILENT_SECONDS = 8;  // The server sends an event every three seconds.
const STILL_SECONDS = 10;
const LOST = "the run does not answer: it may have been killed, or the network is down; the page shows its last numbers and waits for it";
const byId = (id) => document.getElementById(id);

let status = null;
let graph = null;
let epochs = [];
let points = [];
let values = null;
let isAsked = false;
let heardAt = Date.now() / 1000;
let lostAt = null;

const chosenStep = () => (location.hash ? decodeURIComponent(location.hash.slice(1)) : null);
let chosen = chosenStep();

// Open the details of a step, or close them with null; the browser's way back does so, too.
function choose(stepId) {
  if (stepId === chosen) return;
  chosen = stepId;
  history.pushState(null, "", stepId === null ? location.pathname : `#${encodeURIComponent(stepId)}`);
  ask();
}

const picture = new FlowGraph(byId("graph"), (stepId) => choose(chosen === stepId ? null : stepId));
const charts = new Charts();
const inside = new StepInside(byId("inside"));

// The page of a checkpoint has no counters.
const isCounted = () => status.engine !== "checkpoint";
const isOver = () => ["ended", "stopped", "failed"].includes(status.state);
const isLive = () => !isOver() && lostAt === null;

function works(step) {
  if (!isLive() || step.active_at === null) return false;
  return status.last_commit_at - step.active_at <= STILL_SECONDS;
}

const sum = (values) => values.reduce((total, one) => total + one, 0);

// A card: a figure with its name, notes below it, and its course over the last 15 minutes.
function fact(name, value, notes, { course, alarm } = {}) {
  const made = element("div", undefined, alarm || "");
  const figure = element("dd", value);
  if (lostAt !== null) notes = [...notes, `as of ${clock(status.last_commit_at ?? status.started_at)} UTC`];
  for (const note of notes.filter(Boolean)) figure.append(element("div", note, "note"));
  if (course) figure.append(course);
  made.append(element("dt", name), figure);
  return made;
}

const course = (name, text) => ({ course: sparkline(points, name, text) });

function inputs() {
  return graph.steps.filter((step) => step.role === "input").map((step) => status.steps[step.step_id]);
}

const isBehind = (one) => one.seconds > 0 || one.items > 0;

// The trend of a backlog in words.
function trend(one) {
  if (!isBehind(one)) return "has read all that has arrived";
  if (!isLive()) return "";
  if (one.caught_up_in !== null) return `caught up in about ${rough(one.caught_up_in)}`;
  if (!one.growth) return one.growth === null ? "" : "does not shrink";
  return one.items === null ? "falls further behind" : `grows by ${rate(one.growth)}`;
}

function behindFact() {
  const all = Object.entries(status.backlogs);
  const name = "behind by";
  const behind = all.filter(([, one]) => isBehind(one)).sort(([, one], [, other]) => other.seconds - one.seconds || other.items - one.items);
  if (!behind.length) return fact(name, "0 s", [isLive() ? "all that has arrived is read" : ""], course("seconds", duration));
  const amount = ({ seconds, items }) => [seconds ? duration(seconds) : "", items === null ? "" : `${short(items)} values`].filter(Boolean).join(", ");
  const words = behind.map(([input, one]) => `${input}: ${[amount(one), trend(one)].filter(Boolean).join(", ")}`);
  const [[, most]] = behind;
  const notes = [...words.slice(0, MOST_INPUTS), words.length > MOST_INPUTS ? `and ${words.length - MOST_INPUTS} more inputs` : ""];
  const isShrinking = behind.every(([, one]) => one.growth === null || one.growth < 0);
  const drawn = most.seconds ? course("seconds", duration) : course("items", (count) => `${short(count)} values`);
  return fact(name, most.seconds ? duration(most.seconds) : `${short(most.items)} values`, notes, { ...drawn, alarm: `behind ${isShrinking ? "warned" : "alarm"}` });
}

function readFact() {
  const read = inputs();
  const speed = isLive() ? `${rate(sum(read.map((step) => step.rates.out || 0)))} now` : "";
  return fact("items read", whole(sum(read.map((step) => step.counts.out || 0))), [speed], course("rate", rate));
}

function commitFact() {
  const at = status.last_commit_at;
  const age = Math.max(0, Date.now() / 1000 - at);
  return isLive() ? fact("last commit", `${duration(age)} ago`, [], { alarm: age > 60 ? "alarm" : "" }) : fact("last commit", `${clock(at)} UTC`, []);
}

function showFacts() {
  const last = epochs[epochs.length - 1];
  const busy = last ? sum(Object.values(last.phases)) - (last.phases.waiting || 0) : 0;
  const trigger = status.trigger_seconds;
  const of = (name) => Object.values(status.steps).map((step) => step.gauges[name] || 0);
  const lags = Object.values(status.steps).filter((step) => step.lag).map((step) => step.lag.greatest);
  const made = [];
  if (isCounted() && status.engine !== "batch") made.push(behindFact());
  if (isCounted()) made.push(readFact());
  if (lags.length) made.push(fact("watermark lag", duration(Math.max(...lags)), ["greatest over keys and steps"], course("lag", duration)));
  const tooLong = trigger && busy > trigger;
  if (last) made.push(fact("length of an epoch", duration(busy), [status.epochs === 1 ? "the first epoch" : `${whole(status.epochs)} epochs`, trigger ? `trigger every ${duration(trigger)}` : ""], { ...course("epoch", duration), alarm: tooLong ? "alarm" : "" }));
  else made.push(fact("epochs", whole(status.epochs), []));
  const keys = sum(of("keys"));
  if (keys) made.push(fact("state", bytes(sum(of("state_bytes"))), [`${short(keys)} keys`], course("state", bytes)));
  if (status.last_commit_at !== null) made.push(commitFact());
  const memory = Object.values(status.workers);
  if (memory.length) made.push(fact("memory of workers", bytes(sum(memory)), [memory.length === 1 ? "1 worker" : `${memory.length} workers`]));
  byId("facts").replaceChildren(...made);
  const limits = isLive() ? status.limits : [];
  byId("limits").replaceChildren(...limits.map(({ kind, text, since }) => element("li", since === null ? text : `${text}, since ${clock(since)} UTC (${duration(Math.max(0, Date.now() / 1000 - since))})`, kind)));
  byId("limits").hidden = !limits.length;
}

function showHead() {
  const state = lostAt === null ? status.state : "no answer";
  document.title = `${status.flow_id}: ${state}`;
  byId("flow-id").textContent = status.flow_id;
  byId("state").textContent = state;
  byId("state").className = `badge ${lostAt === null ? status.state : "lost"}`;
  const until = status.ended_at ?? lostAt ?? Date.now() / 1000;
  const last = status.last_commit_at === null ? "no epoch yet" : `last epoch at ${new Date(status.last_commit_at * 1000).toISOString()}`;
  byId("about").textContent = status.engine === "checkpoint" ? `checkpoint, ${last}` : `${status.engine}, ${duration(Math.max(0, until - status.started_at))}`;
  byId("trigger").textContent = status.trigger_seconds ? `(trigger: ${duration(status.trigger_seconds)})` : "";
  document.body.classList.toggle("stale", lostAt !== null);
}

function showError() {
  const error = status.error;
  byId("error").hidden = error === null;
  if (error === null) return;
  const what = error.step_id !== null ? `Step ${error.step_id} failed` : isCounted() ? "The run failed" : "The run was killed";
  const run = isCounted() ? `, after ${duration(Math.max(0, error.at - status.started_at))} and ${whole(status.epochs)} epochs` : "";
  byId("error-title").textContent = `${what} at ${clock(error.at)} UTC${run}`;
  byId("error-message").textContent = error.message;
  pairs(byId("error-call"), [["key", error.key], ["item", error.item]].filter((row) => row[1] !== null));
  byId("error-remedy").textContent = error.remedy;
}

function lagText(lag) {
  if (!lag) return "";
  const [median, greatest] = [duration(lag.median), duration(lag.greatest)];
  return median === greatest ? median : `${median}, at most ${greatest}`;
}

const heldText = (gauges, name) => (gauges[name] === undefined ? "" : whole(gauges[name]));
const moving = (speed) => (isLive() ? rate(speed) : "");

// A table's columns: heading, text of a cell, and class. An input reads no stream, and an output
// emits none.
const columns = () => [
  ["step", (name) => name],
  ["kind", (_, __, step) => (step.runs ? `${step.operator} · ${step.runs}` : step.operator), "text"],
  ["in", (_, one, step) => (step.role === "input" || !isCounted() ? "" : whole(one.counts.in || 0))],
  ["in/s", (_, one, step) => (step.role === "input" ? "" : moving(one.rates.in))],
  ["out", (_, one, step) => (step.role === "output" || !isCounted() ? "" : whole(one.counts.out || 0))],
  ["out/s", (_, one, step) => (step.role === "output" ? "" : moving(one.rates.out))],
  ["late and lost", (_, one) => losses(one.counts).join(", "), "loss"],
  ["keys", (_, one, step) => (step.role === "keyed" ? whole(one.gauges.keys || 0) : "")],
  ["state", (_, one, step) => (step.role === "keyed" ? bytes(one.gauges.state_bytes || 0) : "")],
  ...Object.entries(shown.sizes).map(([name, heading]) => [heading, (_, one) => heldText(one.gauges, name)]),
  ["watermark lag", (_, one) => lagText(one.lag)],
  ["work", (_, one) => (one.busy_seconds ? duration(one.busy_seconds) : "")],
  ["busy", (_, one) => (isLive() && one.busy_seconds ? `${(100 * one.busy_share).toFixed(0)} %` : "")],
];

// The columns in which a step has something.
const filled = () => columns().filter(([, text]) => graph.steps.some((step) => text(step.step_id, status.steps[step.step_id], step) !== ""));

function tableRow(step, shownColumns) {
  const found = status.steps[step.step_id];
  const row = element("tr", undefined, works(found) ? "" : "still");
  if (chosen === step.step_id) row.classList.add("chosen");
  row.dataset.step = step.step_id;
  for (const [name, value, className] of shownColumns) {
    const cell = element("td", value(step.step_id, found, step), className);
    cell.dataset.name = name;
    row.append(cell);
  }
  row.firstChild.title = step.step_id;
  row.addEventListener("click", () => {
    choose(step.step_id);
    byId("split").scrollIntoView({ block: "nearest" });
  });
  return row;
}

function head(table, names) {
  const row = element("tr");
  row.append(...names.map(([name, className]) => element("th", name, className)));
  table.querySelector("thead").replaceChildren(row);
}

function showSteps() {
  const table = byId("steps");
  const shownColumns = filled();
  head(table, shownColumns.map(([name, , className]) => [name, className === "text" ? "text" : ""]));
  const wanted = byId("filter").value.toLowerCase();
  const steps = graph.steps.filter((step) => step.step_id.toLowerCase().includes(wanted));
  table.querySelector("tbody").replaceChildren(...steps.map((step) => tableRow(step, shownColumns)));
}

// Show the columns of a table in which a row has something.
function showTable(id, names, rows) {
  byId(`${id}-card`).hidden = !rows.length;
  const has = (_, at) => rows.some((cells) => cells[at] !== "");
  head(byId(id), names.filter(has).map((name) => [name, ""]));
  byId(id).querySelector("tbody").replaceChildren(
    ...rows.map((cells) => {
      const row = element("tr");
      row.append(...cells.filter(has).map((cell) => element("td", cell)));
      return row;
    }),
  );
}

function showSources() {
  const names = new Set([...Object.keys(status.backlogs), ...Object.keys(status.lag)]);
  const rows = [...names].flatMap((input) => {
    const one = status.backlogs[input];
    const total = one ? [isBehind(one) ? duration(one.seconds) : "0 s", one.items === null ? "" : whole(one.items), trend(one)] : ["", "", ""];
    const partitions = Object.entries(status.behind[input] || {}).map(([partition, count]) => [partition, input, "", whole(count), "", ""]);
    return [["all", input, ...total, status.lag[input] || ""], ...partitions];
  });
  showTable("sources", ["partition", "input", "behind by", "values not read yet", "trend", "position"], rows);
  showTable("workers", ["worker", "memory"], Object.entries(status.workers).map(([name, size]) => [name, bytes(size)]));
}

function stepRows(step) {
  const { counts, gauges, busy_seconds: busy, lag, late_advice: advice } = status.steps[chosen];
  const { held_by: by, held_at: at, held_since: since } = status.steps[chosen];
  const named = (name) => shown.units[name] || [name.replaceAll("_", " "), "items", 1];
  const rows = [["kind", step.operator], ["shuffles before it", `${step.level}`]];
  if (step.runs) rows.push(["runs", step.reason ? `${step.runs}: ${step.reason}` : step.runs]);
  rows.push(...Object.entries(counts).map(([name, count]) => [named(name)[0], `${whole(count)} items`]));
  rows.push(...Object.entries(gauges).map(([name, size]) => [named(name)[0], sized(size, named(name))]));
  if (isCounted()) rows.push(["work of workers", duration(busy)]);
  if (lag) rows.push(["watermark lag", `least ${duration(lag.least)}, median ${duration(lag.median)}, greatest ${duration(lag.greatest)}, of ${whole(lag.keys)} keys`]);
  if (by) rows.push(["held by", `${by}, at ${at === null ? "the beginning" : new Date(at * 1000).toISOString()}, for ${duration(status.last_commit_at - since)}`]);
  if (advice) rows.push(["late values", advice]);
  return rows;
}

function showStep() {
  const step = graph.steps.find((one) => one.step_id === chosen);
  if (byId("detail").hidden === Boolean(step)) {
    byId("detail").hidden = !step;
    byId("split").classList.toggle("open", Boolean(step));
    picture.scale();
  }
  inside.show(step, status, values);
  if (!step) return;
  const list = element("dl");
  pairs(list, stepRows(step));
  byId("step").replaceChildren(element("strong", chosen), list);
}

function show() {
  isAsked = false;
  if (status === null || graph === null) return;
  showHead();
  showError();
  showFacts();
  picture.update(status, works, chosen, isLive());
  showStep();
  showSteps();
  showSources();
  byId("zoom").hidden = picture.isReadable;
  byId("zoom").textContent = picture.isWhole ? "readable size" : "whole graph";
  charts.update(epochs, status.trigger_seconds);
}

function ask() {
  if (isAsked) return;
  isAsked = true;
  requestAnimationFrame(show);
}

function lose() {
  const isEnd = status !== null && isOver();
  const connection = byId("connection");
  connection.textContent = isEnd ? "waits for the next run" : LOST;
  connection.className = isEnd ? "quiet" : "lost";
  if (isEnd || lostAt !== null) return;
  lostAt = Date.now() / 1000;
  ask();
}

let events = null;

function follow() {
  events = new EventSource("/events");
  const connection = byId("connection");
  const own = events;
  let arriving = [];
  const hear = () => {
    heardAt = Date.now() / 1000;
  };
  hear();
  for (const name of ["open", "alive", "epochs", "flow", "status"]) events.addEventListener(name, hear);
  events.addEventListener("open", () => {
    connection.textContent = "";
    connection.className = "quiet";
    arriving = [];
    lostAt = null;
    ask();
  });
  events.addEventListener("error", () => {
    lose();
    if (own.readyState === EventSource.CLOSED) setTimeout(follow, 3000);
  });
  events.addEventListener("points", (event) => {
    const newer = JSON.parse(event.data);
    points = [...points.filter((point) => point.at < newer[0].at), ...newer].slice(-MOST_POINTS);
  });
  events.addEventListener("epochs", (event) => {
    arriving.push(...JSON.parse(event.data));
  });
  events.addEventListener("flow", (event) => {
    const found = JSON.parse(event.data);
    const isSame = status !== null && status.run_id === found.run_id && graph !== null;
    epochs = [];
    if (!isSame) points = points.filter((point) => point.at >= found.started_at - 5);
    status = found;
    graph = found.graph;
    values = found.values;
    Object.assign(shown, found.statistics);
    take();
    if (!isSame) picture.draw(graph);
  });
  events.addEventListener("status", (event) => {
    status = JSON.parse(event.data);
    take();
  });
  function take() {
    epochs = [...epochs, ...arriving].slice(-MOST_EPOCHS);
    arriving = [];
    document.body.dataset.epochs = status.epochs;
    document.body.dataset.state = status.state;
    ask();
  }
}

byId("filter").addEventListener("input", ask);
byId("zoom").addEventListener("click", () => {
  picture.isWhole = !picture.isWhole;
  picture.scale();
  ask();
});
byId("back").addEventListener("click", () => choose(null));
document.addEventListener("keydown", (event) => event.key === "Escape" && choose(null));
window.addEventListener("popstate", () => {
  chosen = chosenStep();
  ask();
});
window.addEventListener("resize", () => {
  charts.resize();
  if (graph !== null) picture.refit();
});
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", ask);
setInterval(() => {
  if (status === null || graph === null || isOver()) return;
  if (Date.now() / 1000 - heardAt > SILENT_SECONDS) {
    lose();
    events.close();
    follow();
  }
  if (lostAt === null) {
    showHead();
    showFacts();
  }
}, 1000);
follow();
