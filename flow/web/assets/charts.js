// The charts of the epochs, and the sparklines of the last 15 minutes.

import { clock } from "/format.js";

const PHASES = [
  ["planning", "--four"], ["starting", "--two"], ["reading", "--reading"], ["steps", "--one"],
  ["sinks", "--sinks"], ["spark", "--spark"], ["commit", "--three"],
];

const SVG = "http://www.w3.org/2000/svg";
const SPARK = { seconds: 900, width: 150, height: 26 };
const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// A line of values in their time, from 0 to the greatest; undefined with fewer than two.
export function sparkline(points, name, text) {
  const known = points.filter((point) => point[name] !== null);
  if (known.length < 2) return undefined;
  const most = Math.max(...known.map((point) => point[name]));
  const last = known[known.length - 1].at;
  const first = Math.max(known[0].at, last - SPARK.seconds);
  const x = (point) => ((point.at - first) / (last - first || 1)) * SPARK.width;
  const y = (point) => SPARK.height - 2 - (most ? point[name] / most : 0) * (SPARK.height - 4);
  const made = document.createElementNS(SVG, "svg");
  made.setAttribute("class", "spark");
  made.setAttribute("viewBox", `0 0 ${SPARK.width} ${SPARK.height}`);
  made.setAttribute("preserveAspectRatio", "none");
  const line = document.createElementNS(SVG, "polyline");
  line.setAttribute("points", known.map((point) => `${x(point).toFixed(1)},${y(point).toFixed(1)}`).join(" "));
  const title = document.createElementNS(SVG, "title");
  title.textContent = `at most ${text(most)} from ${clock(first)} to ${clock(last)} UTC`;
  made.append(title, line);
  return made;
}

function options(place, series, bands, isSeconds) {
  const axis = { stroke: color("--quiet"), grid: { stroke: color("--line"), width: 1 }, ticks: { stroke: color("--line") } };
  const values = (_, ticks) => ticks.map((value) => (isSeconds ? `${value}` : Intl.NumberFormat("en-US", { notation: "compact" }).format(value)));
  return {
    width: Math.max(240, place.clientWidth),
    height: 210,
    padding: [null, 32, null, null],  // Half of a time, which may stand at the right edge.
    series: [{ label: "committed", value: (plot, seconds) => clock(seconds ?? plot.data[0][plot.data[0].length - 1]) }, ...series],
    bands,
    axes: [{ ...axis, space: 80, values: (_, ticks) => ticks.map(clock) }, { ...axis, size: 56, values }],
    scales: { y: { range: (_, low, high) => [0, high > 0 ? high * 1.08 : 1] } },
    cursor: { drag: { x: false, y: false } },
  };
}

// The legend's value at the cursor; without a cursor, that of the newest epoch.
const newest = (text) => (plot, value, series) => {
  const data = plot.data[series];
  const shown = value ?? data[data.length - 1];
  return shown == null ? "unknown" : text(shown);
};

class Chart {
  constructor(place) {
    this.place = place;
  }

  show(data, series, bands = [], isSeconds = false) {
    const theme = `${color("--text")} ${series.map((one) => one.label)}`;
    if (!this.plot || this.theme !== theme) {
      if (this.plot) this.plot.destroy();
      this.plot = new uPlot(options(this.place, series, bands, isSeconds), data, this.place);
      this.theme = theme;
      return;
    }
    this.plot.setData(data);
  }

  resize() {
    if (this.plot) this.plot.setSize({ width: Math.max(240, this.place.clientWidth), height: 210 });
  }
}

function stacked(epochs) {
  const columns = PHASES.map(([phase]) => epochs.map((epoch) => epoch.phases[phase] || 0));
  for (let number = 1; number < columns.length; number += 1) {
    columns[number] = columns[number].map((value, at) => value + columns[number - 1][at]);
  }
  return columns.reverse();
}

export class Charts {
  constructor() {
    this.phases = new Chart(document.getElementById("chart-phases"));
    this.items = new Chart(document.getElementById("chart-items"));
    this.behind = new Chart(document.getElementById("chart-behind"));
  }

  resize() {
    for (const chart of [this.phases, this.items, this.behind]) chart.resize();
  }

  update(epochs, trigger) {
    if (!epochs.length) return;
    const times = epochs.map((epoch) => epoch.committed_at);
    this.showPhases(times, epochs, trigger);
    const rates = epochs.map((epoch) => {
      const seconds = Object.values(epoch.phases).reduce((sum, one) => sum + one, 0);
      return seconds > 0 ? epoch.items / seconds : 0;
    });
    const line = (label, name) => ({ label, stroke: color(name), width: 2, fill: `${color(name)}22`, points: { size: 5 } });
    this.items.show([times, rates], [{ ...line("items read", "--one"), value: newest((one) => `${Math.round(one).toLocaleString("en-US")}/s`) }]);
    const isKnown = epochs.some((epoch) => epoch.behind !== null);
    const figure = document.getElementById("figure-behind");
    if (figure.hidden === isKnown) {
      figure.hidden = !isKnown;
      this.resize();  // The figures share the width.
    }
    if (isKnown) this.behind.show([times, epochs.map((epoch) => epoch.behind)], [{ ...line("not read yet", "--three"), value: newest((one) => `${one.toLocaleString("en-US")} items`) }]);
  }

  showPhases(times, epochs, trigger) {
    // The legend names the duration of a phase, the line is the sum up to it.
    const own = (phase) => (_, value, __, at) => `${((this.shown[at] ?? this.shown[this.shown.length - 1]).phases[phase] || 0).toFixed(3)} s`;
    this.shown = epochs;
    const series = [...PHASES].reverse().map(([phase, name]) => ({
      label: phase, stroke: color(name), fill: color(name), width: 1, points: { show: epochs.length < 3, size: 6 }, value: own(phase),
    }));
    const data = [times, ...stacked(epochs)];
    if (trigger) {
      series.push({ label: "trigger", stroke: color("--bad"), width: 2, dash: [6, 4], points: { show: false }, value: () => `${trigger} s` });
      data.push(times.map(() => trigger));
    }
    this.phases.show(data, series, [], true);
  }
}
