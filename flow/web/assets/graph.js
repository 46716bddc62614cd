// The graph of the flow: laid out once for a run, its texts renewed with each status.

import { Graph, layout } from "/vendor/dagre.esm.js";
import { bytes, cut, duration, rate, short } from "/format.js";

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 212;
const LETTERS = 28;
const LINE = 17;
const LEAST_SCALE = 0.85;

function svg(name, attributes, className, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (className) made.setAttribute("class", className);
  if (text !== undefined) made.textContent = text;
  return made;
}

// The counters of lost values and the headings of sizes, by the names of the run's statistics.
export const shown = { losses: [], sizes: {} };

export function losses(counts) {
  return shown.losses.filter((name) => counts[name]).map((name) => `${name.replaceAll("_", " ")} ${short(counts[name])}`);
}

// The open windows and buffered values of a step, if it has any.
function held(gauges) {
  const parts = Object.entries(shown.sizes).filter(([name]) => gauges[name]);
  return parts.map(([name, word]) => `${short(gauges[name])} ${word}`).join(" · ");
}

function height(step) {
  return 3 * LINE + 24 + (step.role === "keyed" ? 3 * LINE : 0);
}

function positions(graph, direction) {
  const made = new Graph({ multigraph: true });
  made.setGraph({ rankdir: direction, nodesep: 22, ranksep: 40, edgesep: 16, marginx: 8, marginy: 8 });
  made.setDefaultEdgeLabel(() => ({}));
  graph.steps.forEach((step, number) => {
    made.setNode(`${number}`, { width: WIDTH, height: height(step) });
  });
  const numbers = new Map(graph.steps.map((step, number) => [step.step_id, number]));
  graph.edges.forEach((edge, number) => {
    const label = { width: 90, height: 16, labelpos: "c" };
    made.setEdge(`${numbers.get(edge.up)}`, `${numbers.get(edge.down)}`, label, `${number}`);
  });
  layout(made);
  return made;
}

function fit(made, width, tall) {
  return Math.min(1, width / made.graph().width, tall / made.graph().height);
}

function path(points) {
  const [first, ...rest] = points;
  let text = `M${first.x},${first.y}`;
  for (let at = 0; at < rest.length - 1; at += 1) {
    const mid = { x: (rest[at].x + rest[at + 1].x) / 2, y: (rest[at].y + rest[at + 1].y) / 2 };
    const end = at === rest.length - 2 ? rest[at + 1] : mid;
    text += ` Q${rest[at].x},${rest[at].y} ${end.x},${end.y}`;
  }
  return rest.length === 1 ? `${text} L${rest[0].x},${rest[0].y}` : text;
}

// A narrow page scrolls down; a wide one shows a graph across if that makes it larger.
function chosen(across, down, width, tall) {
  const isLarger = fit(across, width, tall) >= 1 || fit(across, width, tall) > fit(down, width, tall) * 1.1;
  return width > 700 && isLarger ? across : down;
}

export class FlowGraph {
  constructor(place, choose) {
    this.place = place;
    this.choose = choose;
    this.isWhole = false;
  }

  draw(graph) {
    this.graph = graph;
    const width = this.place.clientWidth || 800;
    const tall = Math.max(360, window.innerHeight * 0.72);
    const down = positions(graph, "TB");
    const across = positions(graph, "LR");
    this.made = chosen(across, down, width, tall);
    this.isAcross = this.made === across;
    const size = this.made.graph();
    this.root = svg("svg", { viewBox: `0 0 ${size.width} ${size.height}`, role: "img" });
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

  scale() {
    if (!this.made) return;
    const size = this.made.graph();
    const width = (this.place.clientWidth || 800) - 2;
    const whole = fit(this.made, width, window.innerHeight * 0.7);
    const scale = this.isWhole ? whole : Math.max(LEAST_SCALE, whole);
    this.root.setAttribute("width", size.width * scale);
    this.root.setAttribute("height", size.height * scale);
  }

  drawEdge(edge, number) {
    const numbers = new Map(this.graph.steps.map((step, at) => [step.step_id, at]));
    const found = this.made.edge(`${numbers.get(edge.up)}`, `${numbers.get(edge.down)}`, `${number}`);
    const isShuffle = this.graph.steps[numbers.get(edge.down)].role === "keyed";
    const line = svg("path", { d: path(found.points), "marker-end": "url(#arrow)" }, "edge");
    const label = svg("text", { x: found.x, y: found.y + (this.isAcross ? -7 : 4) }, "edge-name");
    this.root.append(line);
    return { edge, line, label, isShuffle };
  }

  drawNode(step, number) {
    const { x, y, width, height: tall } = this.made.node(`${number}`);
    const group = svg("g", { transform: `translate(${x - width / 2},${y - tall / 2})`, tabindex: 0, role: "button" }, "node");
    const box = svg("rect", { width, height: tall, rx: step.role === "keyed" || step.role === "stateless" ? 6 : 16 }, "box");
    group.append(svg("title", {}, "", `${step.step_id}\n${step.operator}${step.reason ? `\n${step.runs}: ${step.reason}` : ""}`), box);
    const kind = step.runs ? `${step.operator} · ${step.runs}` : step.operator;
    const lines = [
      svg("text", { x: 12, y: 21 }, "name", cut(step.step_id, LETTERS - 2)),
      svg("text", { x: 12, y: 21 + LINE }, "kind", cut(kind, LETTERS + 2)),
      svg("text", { x: 12, y: 21 + 2 * LINE }, "flow"),
      svg("text", { x: 12, y: 21 + 3 * LINE }, "small"),
      svg("text", { x: 12, y: 21 + 4 * LINE }, "small"),
      svg("text", { x: 12, y: 21 + 5 * LINE }, "small"),
    ];
    const loss = svg("text", { x: width - 10, y: 21, "text-anchor": "end" }, "loss");
    const level = svg("text", { x: width - 10, y: 21 + 2 * LINE, "text-anchor": "end" }, "kind", `L${step.level}`);
    const busy = svg("rect", { x: 8, y: tall - 8, height: 4, width: 0, rx: 2 }, "busy");
    group.append(...lines, level, loss, busy);
    group.addEventListener("click", () => this.choose(step.step_id));
    group.addEventListener("keydown", (event) => event.key === "Enter" && this.choose(step.step_id));
    this.root.append(group);
    return { step, group, lines, loss, busy, width };
  }

  update(status, works, chosen) {
    if (!this.nodes) return;
    const most = Math.max(1, ...Object.values(status.steps).map((step) => step.busy_share));
    for (const node of this.nodes) this.updateNode(node, status, works, chosen, most);
    this.edges.forEach((edge, number) => {
      const { items, rate: speed } = status.edges[number];
      const port = edge.edge.port === "down" ? "" : `${cut(edge.edge.port, 10)} `;
      const text = items === null ? "" : speed ? rate(speed) : items ? short(items) : "";
      edge.label.textContent = `${port}${text}`;
      const classes = ["edge", edge.isShuffle ? "shuffle" : "", speed ? "works" : ""];
      edge.line.setAttribute("class", classes.join(" "));
    });
  }

  updateNode({ step, group, lines, loss, busy, width }, status, works, chosen, most) {
    const found = status.steps[step.step_id];
    const { counts, gauges, rates } = found;
    const isWrong = status.error && status.error.step_id === step.step_id;
    const classes = ["node", works(found) ? "works" : "still", isWrong ? "wrong" : ""];
    if (chosen === step.step_id) classes.push("chosen");
    group.setAttribute("class", classes.join(" "));
    const total = (name) => (rates[name] ? rate(rates[name]) : short(counts[name] || 0));
    const texts = { input: `out ${total("out")}`, output: `in ${total("in")}` };
    lines[2].textContent = status.engine === "checkpoint" ? "" : texts[step.role] || `in ${total("in")} · out ${total("out")}`;
    if (step.role === "keyed") {
      const lag = found.lag ? `lag ${duration(found.lag.median)}, at most ${duration(found.lag.greatest)}` : "";
      const keys = `${short(gauges.keys || 0)} keys · ${bytes(gauges.state_bytes || 0)}`;
      [keys, held(gauges), lag].filter(Boolean).concat("", "").slice(0, 3).forEach((text, at) => {
        lines[3 + at].textContent = cut(text, LETTERS + 6);
      });
    }
    const lost = losses(counts);
    loss.textContent = lost.length ? cut(lost[0], 14) : "";
    lines[0].textContent = cut(step.step_id, LETTERS - (lost.length ? loss.textContent.length : 2));
    busy.setAttribute("width", Math.max(0, Math.min(1, found.busy_share / most)) * (width - 16));
  }
}
