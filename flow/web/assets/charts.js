// The charts of the epochs.

const PHASES = [
  ["planning", "--four"], ["starting", "--two"], ["reading", "--reading"], ["levels", "--one"],
  ["sinks", "--sinks"], ["spark", "--spark"], ["commit", "--three"],
];

const clock = (seconds) => new Date(seconds * 1000).toTimeString().slice(0, 8);
const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function options(place, series, bands, isSeconds) {
  const axis = { stroke: color("--quiet"), grid: { stroke: color("--line"), width: 1 }, ticks: { stroke: color("--line") } };
  const values = (_, ticks) => ticks.map((value) => (isSeconds ? `${value}` : Intl.NumberFormat("en-US", { notation: "compact" }).format(value)));
  return {
    width: Math.max(240, place.clientWidth),
    height: 210,
    padding: [null, 32, null, null],  // Half of a time, which may stand at the right edge.
    series: [{ label: "committed", value: (_, seconds) => (seconds == null ? "–" : clock(seconds)) }, ...series],
    bands,
    axes: [{ ...axis, space: 80, values: (_, ticks) => ticks.map(clock) }, { ...axis, size: 56, values }],
    scales: { y: { range: (_, low, high) => [0, high > 0 ? high * 1.08 : 1] } },
    cursor: { drag: { x: false, y: false } },
  };
}

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
    this.items.show([times, rates], [{ ...line("items a second", "--one"), value: (_, one) => (one == null ? "–" : Math.round(one).toLocaleString("en-US")) }]);
    const isKnown = epochs.some((epoch) => epoch.behind !== null);
    const figure = document.getElementById("figure-behind");
    if (figure.hidden === isKnown) {
      figure.hidden = !isKnown;
      this.resize();  // The figures share the width.
    }
    if (isKnown) this.behind.show([times, epochs.map((epoch) => epoch.behind)], [line("items not read yet", "--three")]);
  }

  showPhases(times, epochs, trigger) {
    // The legend names the duration of a phase, the line is the sum up to it.
    const own = (phase) => (_, value, __, at) => (at == null || !this.shown[at] ? "–" : `${(this.shown[at].phases[phase] || 0).toFixed(3)} s`);
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
