// The graph of the flow: laid out once for a run, its texts renewed with each status.

import { Graph, layout } from "/vendor/dagre.esm.js";
import { bytes, cut, duration, rate, short } from "/format.js";

// A layout with less than this scale has small boxes, with a name and a figure.
const READABLE = 0.75;
// On a narrow page, which a hand enlarges, the whole graph comes first from this scale on.
const LEGIBLE = 0.55;
const NARROW = 700;

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 212;
const SMALL_WIDTH = 150;
const LINE = 17;

function svg(name, attributes, className, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (className) made.setAttribute("class", className);
  if (text !== undefined) made.textContent = text;
  return made;
}

// The counters of lost values and the headings of sizes, by the names of the run's statistics.
export const shown = { losses: [], sizes: {}, units: {} };

export function losses(counts) {
  return shown.losses.filter((name) => counts[name]).map((name) => `${name.replaceAll("_", "\u00a0")}\u00a0${short(counts[name])}`);
}

// The open windows and buffered values of a step, if it has any.
function held(gauges) {
  const parts = Object.entries(shown.sizes).filter(([name]) => gauges[name]);
  return parts.map(([name, word]) => `${short(gauges[name])} ${word}`).join(" · ");
}

function size(step, isSmall) {
  if (isSmall) return { width: SMALL_WIDTH, height: 2 * LINE + 12 };
  return { width: WIDTH, height: 3 * LINE + 24 + (step.role === "keyed" ? 3 * LINE : 0) };
}

function positions(graph, isAcross, isSmall) {
  const made = new Graph({ multigraph: true });
  const gaps = isSmall ? { nodesep: 12, ranksep: 36, edgesep: 8 } : { nodesep: 22, ranksep: 40, edgesep: 16 };
  made.setGraph({ rankdir: isAcross ? "LR" : "TB", marginx: 8, marginy: 8, ...gaps });
  made.setDefaultEdgeLabel(() => ({}));
  graph.steps.forEach((step, number) => {
    made.setNode(`${number}`, size(step, isSmall));
  });
  const numbers = new Map(graph.steps.map((step, number) => [step.step_id, number]));
  graph.edges.forEach((edge, number) => {
    const label = isSmall ? {} : { width: 90, height: 16, labelpos: "c" };
    made.setEdge(`${numbers.get(edge.up)}`, `${numbers.get(edge.down)}`, label, `${number}`);
  });
  layout(made);
  widen(made);
  return { made, isAcross, isSmall };
}

// Make room for edges that pass the outermost box: the layout counts boxes and names of edges alone.
function widen(made) {
  const whole = made.graph();
  const points = made.edges().flatMap((edge) => made.edge(edge).points);
  for (const [axis, start, length] of [["x", "left", "width"], ["y", "top", "height"]]) {
    const found = points.map((point) => point[axis]);
    whole[start] = Math.min(0, ...found.map((at) => at - 8));
    whole[length] = Math.max(whole[length], ...found.map((at) => at + 8)) - whole[start];
  }
}

function fit({ made }, width, tall) {
  return Math.min(1, width / made.graph().width, tall / made.graph().height);
}

// The layout with the largest letters; a narrow page scrolls down. Small boxes only where others
// are not readable.
function best(graph, width, tall) {
  const directions = width > NARROW ? [false, true] : [false];
  const of = (isSmall) => directions.map((isAcross) => positions(graph, isAcross, isSmall)).reduce((one, other) => (fit(other, width, tall) > fit(one, width, tall) * 1.1 ? other : one));
  const full = of(false);
  return fit(full, width, tall) >= READABLE ? full : of(true);
}

// The half depth of each rank of boxes along the layout's direction, by the rank's middle.
function ranks(made, along, depth) {
  const found = new Map();
  for (const name of made.nodes()) {
    const node = made.node(name);
    const at = Math.round(node[along]);
    found.set(at, Math.max(found.get(at) || 0, node[depth] / 2));
  }
  return found;
}

// The line of an edge: straight through a rank of boxes, where its place is free, and bent only in
// the gaps between ranks, so never behind a box.
function route({ made, isAcross }, edge, up, down) {
  const [along, beside, depth, breadth] = isAcross ? ["x", "y", "width", "height"] : ["y", "x", "height", "width"];
  const bands = ranks(made, along, depth);
  const points = edge.points;
  const within = (node, point) => Math.max(node[beside] - node[breadth] / 2 + 14, Math.min(node[beside] + node[breadth] / 2 - 14, point[beside]));
  const from = within(up, points[0]);
  const to = within(down, points[points.length - 1]);
  const band = (node) => bands.get(Math.round(node[along]));
  const way = [[up[along] + up[depth] / 2, from], [up[along] + band(up), from]];
  for (const point of points.slice(1, -1)) {
    const half = bands.get(Math.round(point[along])) || 0;
    way.push([point[along] - half, point[beside]], [point[along] + half, point[beside]]);
  }
  way.push([down[along] - band(down), to], [down[along] - down[depth] / 2, to]);
  const text = ([a, b]) => (isAcross ? `${a},${b}` : `${b},${a}`);
  return way.slice(1).reduce((line, [a, b], at) => {
    const [before, side] = way[at];
    if (before === a && side === b) return line;
    const middle = (before + a) / 2;
    return side === b ? `${line} L${text([a, b])}` : `${line} C${text([middle, side])} ${text([middle, b])} ${text([a, b])}`;
  }, `M${text(way[0])}`);
}

export class FlowGraph {
  constructor(place, choose) {
    this.place = place;
    this.choose = choose;
    this.isWhole = true;
  }

  draw(graph) {
    this.graph = graph;
    this.isNarrow = window.innerWidth <= NARROW;
    this.layout = best(graph, ...this.space(true));
    this.isWhole = !this.isNarrow || this.wholeScale() >= LEGIBLE;
    const { left, top, width: across, height: down } = this.layout.made.graph();
    this.root = svg("svg", { viewBox: `${left} ${top} ${across} ${down}`, role: "img" });
    const arrow = svg("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, markerUnits: "userSpaceOnUse", orient: "auto" });
    arrow.append(svg("path", { d: "M0,0 L8,4 L0,8 z" }, "arrow"));
    const defs = svg("defs", {});
    defs.append(arrow);
    this.root.append(defs);
    this.edges = graph.edges.map((edge, number) => this.drawEdge(edge, number));
    this.nodes = graph.steps.map((step, number) => this.drawNode(step, number));
    for (const edge of this.edges) this.root.append(edge.label);
    this.place.replaceChildren(this.root);
    this.scale();
  }

  // Fit the graph to a window of another size: a phone that is turned gets another layout.
  refit() {
    if (this.isNarrow === window.innerWidth <= NARROW) this.scale();
    else this.draw(this.graph);
  }

  // The room for the whole graph: that below the cards, or most of a window if that is larger. A
  // narrow page scrolls down.
  space(isLarge) {
    const below = window.innerHeight - this.place.getBoundingClientRect().top - window.scrollY - 30;
    const most = isLarge ? window.innerHeight * 0.82 : 0;
    const tall = this.isNarrow ? Infinity : Math.max(360, below, most);
    return [(this.place.clientWidth || 800) - 2, tall];
  }

  wholeScale() {
    const inView = fit(this.layout, ...this.space(false));
    return inView >= READABLE ? inView : fit(this.layout, ...this.space(true));
  }

  scale() {
    if (!this.layout) return;
    const { width, height } = this.layout.made.graph();
    const whole = this.wholeScale();
    const scale = this.isWhole ? whole : Math.max(READABLE, whole);
    this.root.setAttribute("width", width * scale);
    this.root.setAttribute("height", height * scale);
    this.isReadable = whole >= READABLE;
  }

  drawEdge(edge, number) {
    const numbers = new Map(this.graph.steps.map((step, at) => [step.step_id, at]));
    const { made, isAcross, isSmall } = this.layout;
    const [up, down] = [`${numbers.get(edge.up)}`, `${numbers.get(edge.down)}`];
    const found = made.edge(up, down, `${number}`);
    const isShuffle = this.graph.steps[numbers.get(edge.down)].role === "keyed";
    const line = svg("path", { d: route(this.layout, found, made.node(up), made.node(down)), "marker-end": "url(#arrow)" }, "edge");
    const label = svg("text", isSmall ? {} : { x: found.x, y: found.y + (isAcross ? -7 : 4) }, "edge-name");
    this.root.append(line);
    return { edge, line, label, isShuffle };
  }

  drawNode(step, number) {
    const { x, y, width, height: tall } = this.layout.made.node(`${number}`);
    const { isSmall } = this.layout;
    const group = svg("g", { transform: `translate(${x - width / 2},${y - tall / 2})`, tabindex: 0, role: "button" }, "node");
    const box = svg("rect", { width, height: tall, rx: step.role === "keyed" || step.role === "stateless" ? 6 : 16 }, "box");
    group.append(svg("title", {}, "", `${step.step_id}\n${step.operator}${step.reason ? `\n${step.runs}: ${step.reason}` : ""}`), box);
    const kind = step.runs ? `${step.operator} · ${step.runs}` : step.operator;
    const rows = isSmall ? ["name", "flow"] : ["name", "kind", "flow", "small", "small", "small"];
    const lines = rows.map((row, at) => svg("text", { x: isSmall ? 8 : 12, y: (isSmall ? 18 : 21) + at * LINE }, row));
    if (!isSmall) lines[1].textContent = cut(kind, step.level ? 20 : 28); // Beside the label of a shuffle.
    const loss = svg("text", { x: width - 10, y: isSmall ? 18 + LINE : 21, "text-anchor": "end" }, "loss");
    const level = svg("text", { x: width - 10, y: 21 + LINE, "text-anchor": "end" }, "kind", isSmall ? "" : step.level ? `shuffle ${step.level}` : "");
    const busy = svg("rect", { x: 8, y: tall - 8, height: 4, width: 0, rx: 2 }, "busy");
    group.append(...lines, level, loss, busy);
    group.addEventListener("click", () => this.choose(step.step_id));
    group.addEventListener("keydown", (event) => event.key === "Enter" && this.choose(step.step_id));
    this.root.append(group);
    return { step, group, lines, loss, busy, width };
  }

  // Without an answer of the run nothing moves: no line and no box works.
  update(status, works, chosen, isLive) {
    if (!this.nodes) return;
    const most = Math.max(1, ...Object.values(status.steps).map((step) => step.busy_share));
    for (const node of this.nodes) this.updateNode(node, status, works, chosen, most, isLive);
    this.edges.forEach((edge, number) => {
      const { items, rate: found } = status.edges[number];
      const speed = isLive ? found : 0;
      const port = edge.edge.port === "down" ? "" : `${cut(edge.edge.port, 10)} `;
      const text = items === null ? "" : speed ? rate(speed) : items ? `${short(items)} items` : "";
      edge.label.textContent = this.layout.isSmall ? "" : `${port}${text}`;
      const classes = ["edge", edge.isShuffle ? "shuffle" : "", speed ? "works" : ""];
      edge.line.setAttribute("class", classes.join(" "));
    });
  }

  updateNode({ step, group, lines, loss, busy, width }, status, works, chosen, most, isLive) {
    const found = status.steps[step.step_id];
    const { counts, gauges } = found;
    const rates = isLive ? found.rates : {};
    const isWrong = status.error && status.error.step_id === step.step_id;
    const classes = ["node", works(found) ? "works" : "still", isWrong ? "wrong" : ""];
    if (isLive) classes.push(...status.limits.filter((limit) => limit.steps.includes(step.step_id)).map((limit) => limit.kind));
    if (chosen === step.step_id) classes.push("chosen");
    group.setAttribute("class", classes.join(" "));
    const total = (name) => (rates[name] ? rate(rates[name]) : short(counts[name] || 0));
    const ends = { input: `out ${total("out")}`, output: `in ${total("in")}` };
    const flow = status.engine === "checkpoint" ? "" : ends[step.role] || `in ${total("in")} · out ${total("out")}`;
    const lost = losses(counts);
    const { isSmall } = this.layout;
    loss.textContent = lost.length ? cut(lost[0], isSmall ? 10 : 14) : "";
    lines[0].textContent = cut(step.step_id, isSmall ? 16 : Math.floor((WIDTH - 24 - 6.3 * loss.textContent.length) / 7.4));
    lines[isSmall ? 1 : 2].textContent = isSmall ? flow.split(" · ").pop() : flow;
    if (step.role === "keyed" && !isSmall) this.showState(lines, found, gauges);
    busy.setAttribute("width", isLive ? Math.max(0, Math.min(1, found.busy_share / most)) * (width - 16) : 0);
  }

  showState(lines, { lag }, gauges) {
    const behind = lag ? `watermark lag ${duration(lag.greatest)}` : "";
    const keys = `${short(gauges.keys || 0)} keys · ${bytes(gauges.state_bytes || 0)} state`;
    [keys, held(gauges), behind].filter(Boolean).concat("", "").slice(0, 3).forEach((text, at) => {
      lines[3 + at].textContent = cut(text, 32);
    });
  }
}
