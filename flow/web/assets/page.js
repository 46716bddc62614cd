// The live page: follows a run by server-sent events, and shows its newest status.

import { Charts } from "/charts.js";
import { bytes, duration, element, pairs, rate, short, whole } from "/format.js";
import { FlowGraph, losses, shown } from "/graph.js";
import { StepInside } from "/inside.js";

const MOST_EPOCHS = 300;
const STILL_SECONDS = 10;
const LOST = "the run does not answer: it may have been killed, or the network is down; the page shows its last numbers and waits for it";
const byId = (id) => document.getElementById(id);

let status = null;
let graph = null;
let epochs = [];
let chosen = null;
let values = null;
let isAsked = false;
let lostAt = null;

const picture = new FlowGraph(byId("graph"), (stepId) => {
  chosen = chosen === stepId ? null : stepId;
  ask();
});
const charts = new Charts();
const inside = new StepInside(byId("inside"));

// The page of a checkpoint has no counters.
const isCounted = () => status.engine !== "checkpoint";
const isOver = () => ["ended", "stopped", "failed"].includes(status.state);

function works(step) {
  if (isOver() || lostAt !== null || step.active_at === null) return false;
  return status.last_commit_at - step.active_at <= STILL_SECONDS;
}

const sum = (values) => values.reduce((total, one) => total + one, 0);

function fact(name, value, note, isAlarm) {
  const made = element("div", undefined, isAlarm ? "alarm" : "");
  const shown = element("dd", value);
  if (note) shown.append(element("div", note, "note"));
  made.append(element("dt", name), shown);
  return made;
}

function inputs() {
  return graph.steps.filter((step) => step.role === "input").map((step) => status.steps[step.step_id]);
}

function showFacts() {
  const read = inputs();
  const last = epochs[epochs.length - 1];
  const busy = last ? sum(Object.values(last.phases)) - (last.phases.waiting || 0) : 0;
  const age = status.last_commit_at === null ? null : Math.max(0, Date.now() / 1000 - status.last_commit_at);
  const trigger = status.trigger_seconds;
  const behind = sum(Object.values(status.behind).flatMap((counts) => Object.values(counts)));
  const lags = Object.values(status.steps).filter((step) => step.lag).map((step) => step.lag.greatest);
  const made = [fact("epochs", whole(status.epochs), last ? `the last took ${duration(busy)}` : "", trigger && busy > trigger)];
  if (isCounted()) made.unshift(fact("items read", whole(sum(read.map((step) => step.counts.out || 0))), rate(sum(read.map((step) => step.rates.out || 0)))));
  if (!isOver() && age !== null) made.push(fact("last commit", `${duration(age)} ago`, "", age > 60));
  if (Object.keys(status.behind).length) made.push(fact("not read yet", short(behind), Object.values(status.lag).join(", ")));
  if (lags.length) made.push(fact("watermark lag", duration(Math.max(...lags)), "greatest over keys and steps"));
  const memory = Object.values(status.workers);
  if (memory.length) made.push(fact("memory of workers", bytes(sum(memory)), memory.length === 1 ? "1 worker" : `${memory.length} workers`));
  byId("facts").replaceChildren(...made);
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
}

function showError() {
  const error = status.error;
  byId("error").hidden = error === null;
  if (error === null) return;
  byId("error-title").textContent = error.step_id === null ? (status.engine === "checkpoint" ? "The run was killed" : "The run has failed") : `Step ${error.step_id} has failed`;
  byId("error-message").textContent = error.message;
  const rows = [["step", error.step_id], ["key", error.key], ["item", error.item]];
  pairs(byId("error-call"), rows.filter((row) => row[1] !== null));
}

function lagText(lag) {
  return lag ? `${duration(lag.least)} / ${duration(lag.median)} / ${duration(lag.greatest)}` : "";
}

function heldText(gauges, name) {
  return gauges[name] === undefined ? "" : whole(gauges[name]);
}

const counted = (count) => (isCounted() ? whole(count || 0) : "");

const columns = () => [
  ["step", (name) => name],
  ["kind", (_, __, step) => (step.runs ? `${step.operator} · ${step.runs}` : step.operator), "text"],
  ["in", (_, one) => counted(one.counts.in)],
  ["in/s", (_, one) => rate(one.rates.in)],
  ["out", (_, one) => counted(one.counts.out)],
  ["out/s", (_, one) => rate(one.rates.out)],
  ["late and lost", (_, one) => losses(one.counts).join(", "), "loss"],
  ["keys", (_, one, step) => (step.role === "keyed" ? whole(one.gauges.keys || 0) : "")],
  ["state", (_, one, step) => (step.role === "keyed" ? bytes(one.gauges.state_bytes || 0) : "")],
  ...Object.entries(shown.sizes).map(([name, heading]) => [heading, (_, one) => heldText(one.gauges, name)]),
  ["watermark lag", (_, one) => lagText(one.lag)],
  ["work", (_, one) => duration(one.busy_seconds)],
  ["busy", (_, one) => `${(100 * one.busy_share).toFixed(0)} %`],
];

function tableRow(step) {
  const found = status.steps[step.step_id];
  const row = element("tr", undefined, works(found) ? "" : "still");
  if (chosen === step.step_id) row.classList.add("chosen");
  row.dataset.step = step.step_id;
  for (const [name, value, className] of columns()) {
    const cell = element("td", value(step.step_id, found, step), className);
    cell.dataset.name = name;
    row.append(cell);
  }
  row.firstChild.title = step.step_id;
  row.addEventListener("click", () => {
    chosen = step.step_id;
    ask();
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
  head(table, columns().map(([name, , className]) => [name, className === "text" ? "text" : ""]));
  const wanted = byId("filter").value.toLowerCase();
  const steps = graph.steps.filter((step) => step.step_id.toLowerCase().includes(wanted));
  table.querySelector("tbody").replaceChildren(...steps.map(tableRow));
}

function showTable(id, names, rows) {
  byId(`${id}-card`).hidden = !rows.length;
  head(byId(id), names.map((name) => [name, ""]));
  byId(id).querySelector("tbody").replaceChildren(
    ...rows.map((cells) => {
      const row = element("tr");
      row.append(...cells.map((cell) => element("td", cell)));
      return row;
    }),
  );
}

function showSources() {
  const rows = Object.entries(status.behind).flatMap(([input, counts]) =>
    Object.entries(counts).map(([partition, count]) => [partition, input, whole(count)]),
  );
  const words = Object.entries(status.lag).filter(([input]) => !(input in status.behind));
  rows.push(...words.map(([input, text]) => ["", input, text]));
  showTable("sources", ["partition", "input", Object.keys(status.behind).length ? "not read yet" : "position"], rows);
  showTable("workers", ["worker", "memory"], Object.entries(status.workers).map(([name, size]) => [name, bytes(size)]));
}

function showStep() {
  const place = byId("step");
  const step = graph.steps.find((one) => one.step_id === chosen);
  place.hidden = !step;
  inside.show(step, status, values);
  if (!step) return;
  const { counts, gauges, busy_seconds: busy, lag, late_advice: advice } = status.steps[chosen];
  const rows = [["kind", step.operator], ["level", `${step.level}`]];
  if (step.runs) rows.push(["runs", step.reason ? `${step.runs}: ${step.reason}` : step.runs]);
  rows.push(...Object.entries(counts).map(([name, count]) => [name, whole(count)]));
  rows.push(...Object.entries(gauges).map(([name, size]) => [name.replaceAll("_", " "), whole(size)]));
  rows.push(["work of workers", duration(busy)]);
  if (lag) rows.push(["watermark lag", `least ${duration(lag.least)}, median ${duration(lag.median)}, greatest ${duration(lag.greatest)}, of ${whole(lag.keys)} keys`]);
  const { held_by: by, held_at: at, held_since: since } = status.steps[chosen];
  if (by) rows.push(["held by", `${by}, at ${at === null ? "the beginning" : new Date(at * 1000).toISOString()}, for ${duration(status.last_commit_at - since)}`]);
  if (advice) rows.push(["late values", advice]);
  const list = element("dl");
  pairs(list, rows);
  place.replaceChildren(element("strong", chosen), list);
}

function show() {
  isAsked = false;
  if (status === null || graph === null) return;
  showHead();
  showError();
  showFacts();
  picture.update(status, works, chosen);
  showStep();
  showSteps();
  showSources();
  charts.update(epochs, status.trigger_seconds);
}

function ask() {
  if (isAsked) return;
  isAsked = true;
  requestAnimationFrame(show);
}

function follow() {
  const events = new EventSource("/events");
  const connection = byId("connection");
  let arriving = [];
  events.addEventListener("open", () => {
    connection.textContent = "";
    connection.className = "quiet";
    arriving = [];
    lostAt = null;
    ask();
  });
  events.addEventListener("error", () => {
    const isEnd = status !== null && isOver();
    connection.textContent = isEnd ? "waits for the next run" : LOST;
    connection.className = isEnd ? "quiet" : "lost";
    if (!isEnd && lostAt === null) {
      lostAt = Date.now() / 1000;
      ask();
    }
    if (events.readyState === EventSource.CLOSED) setTimeout(follow, 3000);
  });
  events.addEventListener("epochs", (event) => {
    arriving.push(...JSON.parse(event.data));
  });
  events.addEventListener("flow", (event) => {
    const found = JSON.parse(event.data);
    const isSame = status !== null && status.run_id === found.run_id && graph !== null;
    epochs = [];
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
  byId("zoom").textContent = picture.isWhole ? "readable size" : "whole graph";
  picture.scale();
});
window.addEventListener("resize", () => {
  charts.resize();
  picture.scale();
});
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", ask);
setInterval(() => {
  if (status !== null && graph !== null && !isOver() && lostAt === null) {
    showHead();
    showFacts();
  }
}, 1000);
follow();
