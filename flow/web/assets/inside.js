// The inside of a keyed step: its newest late values, and its keys' windows on a time axis.

import { cut, duration, element, pairs, whole } from "/format.js";

const SVG = "http://www.w3.org/2000/svg";
const LANE = 16;
const MOST_WINDOWS = 40;
const MOST_LETTERS = 120;
const MOST_LISTED = 3;
const FIRST_LATE = 5;
const REASONS = {
  late: "its windows had closed, or the watermark had passed it",
  gap: "the windower has no window at its timestamp",
  too_far_ahead: "it is further ahead of system time than max_ahead allows",
};

function svg(name, attributes, className, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (className) made.setAttribute("class", className);
  if (text !== undefined) made.textContent = text;
  return made;
}

function shown(seconds) {
  const date = new Date(seconds * 1000);
  if (Number.isNaN(date.getTime())) return `${seconds} s`;
  return date.toISOString().replace("T", " ").replace(/(\.000)?Z$/, "");
}

// An instant in RFC 3339 as the page shows it; other text, such as that of a hold, as it is.
const instant = (text) => (text && /^[-0-9]+T/.test(text) ? shown(Date.parse(text) / 1000) : text || "");
const seconds = (text) => (text ? Date.parse(text) / 1000 : NaN);
const inWords = (value) => cut(typeof value === "string" ? value : JSON.stringify(value), MOST_LETTERS);

function table(names, rows) {
  const made = element("table");
  const head = element("tr");
  head.append(...names.map((name) => element("th", name)));
  made.append(head);
  for (const cells of rows) {
    const row = element("tr");
    row.append(...cells.map((cell) => (cell instanceof Node ? cell : element("td", cell))));
    made.append(row);
  }
  const wide = element("div", undefined, "wide");
  wide.append(made);
  return wide;
}

function plainButton(text, onClick) {
  const made = element("button", text, "plain");
  made.type = "button";
  made.addEventListener("click", onClick);
  return made;
}

function missed({ windows, missed: count }) {
  const spans = windows.map((one) => `${shown(one.open)} to ${shown(one.close)}`);
  if (count > windows.length) spans.push(`${count - windows.length} more`);
  return spans.length ? `; missed ${spans.join("; ")}` : "";
}

// Why a value was late: the rule that held, with the numbers of the value.
function why(late) {
  const reason = `${REASONS[late.reason] || late.reason.replaceAll("_", " ")}${missed(late)}`;
  if (late.watermark === null) return reason;
  const side = late.watermark >= late.timestamp ? "behind" : "ahead of";
  return `${duration(Math.abs(late.watermark - late.timestamp))} ${side} the watermark, ${shown(late.watermark)}: ${reason}`;
}

// The time axis that the keys share: all windows, and watermarks near them.
function axisOf(keys) {
  const ends = keys.flatMap((one) => one.windows.flatMap((window) => [window.from, window.to]));
  const points = ends.length ? ends : keys.flatMap((one) => one.buffered);
  if (!points.length) return null;
  let [first, last] = [Math.min(...points), Math.max(...points)];
  const span = Math.max(last - first, 1e-3);
  for (const { watermark } of keys) {
    if (watermark >= first - span && watermark <= last + span) {
      first = Math.min(first, watermark);
      last = Math.max(last, watermark);
    }
  }
  const edge = Math.max(last - first, 1e-3) * 0.03;
  return { first: first - edge, last: last + edge };
}

function lanes(windows) {
  const ends = [];
  return windows.map((window) => {
    let lane = ends.findIndex((end) => end <= window.from);
    if (lane < 0) lane = ends.length;
    ends[lane] = window.to;
    return lane;
  });
}

function picture(key, axis, width) {
  const at = (time) => Math.max(0, Math.min(width, ((time - axis.first) / (axis.last - axis.first)) * width));
  const windows = key.windows.slice(0, MOST_WINDOWS).sort((a, b) => a.from - b.from);
  const lane = lanes(windows);
  const tall = LANE * Math.max(1, ...lane.map((number) => number + 1)) + 6;
  const root = svg("svg", { width, height: tall, viewBox: `0 0 ${width} ${tall}`, role: "img" }, "windows");
  root.append(svg("rect", { width, height: tall }, "axis"));
  windows.forEach((window, number) => {
    const x = at(window.from);
    const bar = svg("rect", { x, y: 4 + LANE * lane[number], width: Math.max(3, at(window.to) - x), height: LANE - 4, rx: 3 }, "window");
    bar.append(svg("title", {}, "", `window ${window.id}: ${shown(window.from)} to ${shown(window.to)}\n${window.text}`));
    root.append(bar);
  });
  for (const time of key.buffered) root.append(svg("circle", { cx: at(time), cy: tall - 5, r: 3 }, "buffered"));
  if (!Number.isNaN(key.watermark)) {
    const x = at(key.watermark);
    const line = svg("line", { x1: x, x2: x, y1: 0, y2: tall }, "watermark");
    line.append(svg("title", {}, "", `watermark ${shown(key.watermark)}`));
    root.append(line);
  }
  return root;
}

// The state of a key as the page draws it; a step without windows has only its text.
function readKey({ key, due, state }) {
  const isTimed = state !== null && typeof state === "object" && !Array.isArray(state);
  const windows = isTimed && Array.isArray(state.windows) ? state.windows : [];
  const held = isTimed ? ["waiting", "kept", "left", "right"].flatMap((name) => (Array.isArray(state[name]) ? state[name] : [])) : [];
  return {
    key, due, state,
    watermark: isTimed ? seconds(state.watermark) : NaN,
    windows: windows.filter((one) => one.open && one.close).map((one) => ({ id: one.id, from: seconds(one.open), to: seconds(one.close), value: one.value, text: inWords(one.value) })),
    held,
    buffered: held.map((one) => seconds(one && one.timestamp)).filter((time) => !Number.isNaN(time)).slice(0, 200),
  };
}

// The open windows of a key as a table of their bounds and values, the newest last.
function windowTable(windows) {
  const isNamed = windows.every(({ value }) => value !== null && typeof value === "object" && !Array.isArray(value));
  const names = isNamed ? [...new Set(windows.flatMap(({ value }) => Object.keys(value)))] : ["value"];
  const cells = ({ value }) => (isNamed ? names.map((name) => (name in value ? inWords(value[name]) : "")) : [inWords(value)]);
  return table(["open", "close", ...names], windows.map((one) => [shown(one.from), shown(one.to), ...cells(one)]));
}

// The state of a key that has no windows: its fields by name, or the value.
function plainState(state) {
  if (state === null || typeof state !== "object" || Array.isArray(state)) return element("div", inWords(state));
  const list = element("dl");
  pairs(list, Object.entries(state).filter(([name]) => name !== "clock").map(([name, value]) => [name, inWords(value)]));
  return list;
}

function keyBlock(one, axis, width, isWhole) {
  const block = element("div", undefined, "of-key");
  const notes = [];
  if (!Number.isNaN(one.watermark)) notes.push(`watermark ${shown(one.watermark)}`);
  if (one.windows.length) notes.push(one.windows.length === 1 ? "1 open window" : `${whole(one.windows.length)} open windows`);
  if (one.buffered.length) notes.push(one.buffered.length === 1 ? "1 value held" : `${whole(one.buffered.length)} values held`);
  if (one.due) notes.push(`due ${instant(one.due)}`);
  const head = element("div");
  head.append(element("strong", one.key), element("span", ` ${notes.join(" · ")}`, "quiet"));
  block.append(head);
  if (axis && (one.windows.length || one.buffered.length)) block.append(picture(one, axis, width));
  const listed = isWhole ? one.windows : one.windows.slice(-MOST_LISTED);
  if (listed.length) block.append(windowTable(listed));
  if (listed.length < one.windows.length) block.append(element("div", `the newest ${listed.length} of ${whole(one.windows.length)}; all of them: enter the key`, "quiet"));
  if (!one.windows.length) block.append(plainState(one.state));
  if (isWhole && one.held.length) block.append(element("h3", "Values held"), table(["timestamp", "value"], one.held.map((held) => [instant(held.timestamp), inWords(held.value)])));
  return block;
}

async function ask(path, parameters) {
  try {
    const answer = await fetch(`${path}?${new URLSearchParams(parameters)}`);
    return await answer.json();
  } catch {
    return { error: "no connection to the run" };
  }
}

export class StepInside {
  constructor(place) {
    this.place = place;
    this.stepId = null;
    this.runId = null;
    this.lateAt = -1;
  }

  // Show the inside of a step; later calls with the same step renew only its late values.
  show(step, status, values) {
    const isKeyed = step !== undefined && step.role === "keyed";
    this.place.hidden = !isKeyed;
    if (!isKeyed) {
      this.stepId = null;
      return;
    }
    if (this.stepId !== step.step_id || this.runId !== status.run_id || this.showsValues !== values.are_shown) {
      this.stepId = step.step_id;
      this.runId = status.run_id;
      this.showsValues = values.are_shown;
      this.lateAt = -1;
      this.hasAllLate = false;
      this.build(values.how_to_show);
    }
    const count = status.steps[this.stepId].counts.late || 0;
    if (this.showsValues && count !== this.lateAt) {
      this.lateAt = count;
      this.showLate(count);
    }
  }

  build(howToShow) {
    if (!this.showsValues) {
      this.place.replaceChildren(element("h3", "Inside"), element("p", howToShow, "quiet"));
      return;
    }
    this.late = element("div", undefined, "late");
    this.state = element("div");
    const form = element("form");
    const key = element("input");
    key.type = "search";
    key.placeholder = "a key, or empty for some keys";
    key.setAttribute("aria-label", "key");
    const button = element("button", "show state");
    form.append(key, button);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.showState(key.value);
    });
    this.key = key;
    this.place.replaceChildren(element("h3", "Newest late values"), this.late, element("h3", "Keys"), form, this.state);
    this.showState("");
  }

  async showLate(count) {
    const stepId = this.stepId;
    const found = await ask("/api/late", { step: stepId });
    if (stepId !== this.stepId) return;
    if (found.error) this.late.replaceChildren(element("p", found.error, "quiet"));
    else if (!found.late.length) this.late.replaceChildren(element("p", count ? "none since the page's run started to sample them" : "none", "quiet"));
    else this.listLate(found.late);
  }

  // The first of the late values, and a button for all, so that the keys below stay in sight.
  listLate(late) {
    const listed = this.hasAllLate ? late : late.slice(0, FIRST_LATE);
    this.late.replaceChildren(table(["key", "value", "timestamp", "why"], listed.map((one) => this.lateRow(one))));
    if (listed.length === late.length) return;
    this.late.append(
      plainButton(`show all ${late.length}`, () => {
        this.hasAllLate = true;
        this.listLate(late);
      }),
    );
  }

  lateRow(one) {
    const cell = element("td");
    cell.append(
      plainButton(cut(one.key, 40), () => {
        this.key.value = one.key;
        this.showState(one.key);
      }),
    );
    return [cell, cut(one.value, MOST_LETTERS), shown(one.timestamp), why(one)];
  }

  async showState(key) {
    const stepId = this.stepId;
    this.state.replaceChildren(element("p", "reading the checkpoint", "quiet"));
    const found = await ask("/api/state", key === "" ? { step: stepId } : { step: stepId, key });
    if (stepId !== this.stepId) return;
    if (found.error) {
      this.state.replaceChildren(element("p", found.error, "quiet"));
      return;
    }
    const keys = found.keys.map(readKey);
    const axis = axisOf(keys);
    const width = Math.max(240, (this.place.clientWidth || 600) - 16);
    const rest = keys.length < found.total ? `, of which ${whole(keys.length)} are shown` : "";
    const at = `after epoch ${found.epoch}, at ${instant(found.now)} UTC: ${whole(found.total)} keys${rest}`;
    const made = [element("p", at, "quiet")];
    if (axis) {
      const scale = element("div", undefined, "scale quiet");
      scale.append(element("span", shown(axis.first)), element("span", shown(axis.last)));
      made.push(element("div", "bars: open windows; line: watermark; dots: values held", "quiet"), scale);
    }
    made.push(...keys.map((one) => keyBlock(one, axis, width, keys.length === 1 && key !== "")));
    this.state.replaceChildren(...made);
  }
}
