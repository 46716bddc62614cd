// Numbers, durations and elements of the page. All text goes through textContent.

const WHOLE = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const SHORT = new Intl.NumberFormat("en-US", { notation: "compact", maximumSignificantDigits: 3 });

export const whole = (number) => WHOLE.format(number);
export const short = (number) => (Math.abs(number) < 10000 ? WHOLE.format(number) : SHORT.format(number));

export function rate(number) {
  if (!number) return "0/s";
  return number < 10 ? `${number.toFixed(1)}/s` : `${short(number)}/s`;
}

export function bytes(number) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (number >= 1000 && unit < units.length - 1) {
    number /= 1000;
    unit += 1;
  }
  return `${number < 10 && unit ? number.toFixed(1) : Math.round(number)} ${units[unit]}`;
}

export function duration(seconds) {
  if (seconds < 0.0995) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  const days = Math.floor(seconds / 86400);
  return days < 10 ? `${days} d ${Math.floor((seconds % 86400) / 3600)} h` : `${WHOLE.format(days)} d`;
}

// The time of day of an instant in UTC, from seconds since 1970.
export const clock = (seconds) => new Date(seconds * 1000).toISOString().slice(11, 19);

// A size of a step's state with its unit.
export function sized(number, [, unit, scale]) {
  if (unit === "bytes") return bytes(number);
  return unit === "seconds" ? duration(number * scale) : whole(number);
}

// An estimate of a duration, in one unit.
export function rough(seconds) {
  if (seconds < 90) return `${Math.max(1, Math.round(seconds))} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return seconds < 172800 ? `${Math.round(seconds / 3600)} h` : `${WHOLE.format(seconds / 86400)} d`;
}

export function cut(text, most) {
  const letters = [...text];
  return letters.length <= most ? text : `${letters.slice(0, most - 1).join("")}…`;
}

export function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

export function pairs(list, rows) {
  list.replaceChildren(
    ...rows.flatMap(([name, value]) => [element("dt", name), element("dd", value)]),
  );
}
