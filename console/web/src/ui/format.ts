/** Numbers for people: times, durations, bytes, counts. One wording for the whole app. */

const UNITS: [Intl.RelativeTimeFormatUnit, number][] = [
  ["year", 31_536_000_000],
  ["month", 2_592_000_000],
  ["day", 86_400_000],
  ["hour", 3_600_000],
  ["minute", 60_000],
];
const RELATIVE = new Intl.RelativeTimeFormat("en", { numeric: "auto" });
const ABSOLUTE = new Intl.DateTimeFormat("en", { dateStyle: "medium", timeStyle: "long" });

/** How long ago, or in how long. */
export function relative(at: number, now: number): string {
  const distance = at - now;
  for (const [unit, length] of UNITS) {
    if (Math.abs(distance) >= length) return RELATIVE.format(Math.round(distance / length), unit);
  }
  const seconds = Math.round(distance / 1000);
  return Math.abs(seconds) < 10 ? (seconds > 0 ? "in a moment" : "just now") : RELATIVE.format(seconds, "second");
}

/** The moment itself, with its zone. */
export function absolute(at: number): string {
  return ABSOLUTE.format(at);
}

/** A stretch of time: `420 ms`, `3.2 s`, `4 min 10 s`, `2 h 5 min`. */
export function duration(ms: number): string {
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(ms < 10_000 ? 1 : 0)} s`;
  const minutes = Math.floor(ms / 60_000);
  if (minutes < 60) return join(minutes, "min", Math.floor((ms % 60_000) / 1000), "s");
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return join(hours, "h", minutes % 60, "min");
  return join(Math.floor(hours / 24), "d", hours % 24, "h");
}

function join(large: number, largeUnit: string, small: number, smallUnit: string): string {
  return small === 0 ? `${large} ${largeUnit}` : `${large} ${largeUnit} ${small} ${smallUnit}`;
}

/** Bytes in steps of 1024. */
export function bytes(count: number): string {
  if (count < 1024) return `${count} B`;
  const units = ["KiB", "MiB", "GiB", "TiB", "PiB"];
  let value = count / 1024;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${value.toFixed(value < 10 ? 1 : 0)} ${units[unit] ?? ""}`;
}

const COUNT = new Intl.NumberFormat("en");

/** A number with its thousands apart. */
export function count(value: number): string {
  return COUNT.format(value);
}

/** What a browser calls itself, in two words: `Firefox on Linux`. */
export function device(agent: string): string {
  const browser = /Edg\//.test(agent) ? "Edge"
    : /Firefox\//.test(agent) ? "Firefox"
    : /Chrom(e|ium)\//.test(agent) ? "Chrome"
    : /Safari\//.test(agent) ? "Safari"
    : null;
  const system = /Android/.test(agent) ? "Android"
    : /iPhone|iPad/.test(agent) ? "iOS"
    : /Mac OS X/.test(agent) ? "macOS"
    : /Windows/.test(agent) ? "Windows"
    : /Linux/.test(agent) ? "Linux"
    : null;
  if (browser && system) return `${browser} on ${system}`;
  return browser ?? (agent === "" ? "unnamed program" : agent.slice(0, 40));
}
