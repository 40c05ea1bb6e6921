/** Sums over time with nothing left out: where nothing happened there is a nought, so that lines do not lie. */
import type { Schemas } from "../api/client";
import type { Denied } from "../runs/propose";

type Rate = Schemas["FlowRate"];
type Span = Pick<Schemas["Now"], "since" | "at" | "rate_ms" | "rates">;

/** Points of a chart, at most. */
const MOST = 400;

/** Stretches from the first to the last, gathered where there are more than a chart can show. */
export function filled(now: Span): { times: number[]; rates: Rate[] } {
  const step = now.rate_ms * Math.max(1, Math.ceil((now.at - now.since) / now.rate_ms / MOST));
  const first = now.since - (now.since % step);
  const rates: Rate[] = [];
  for (let starts = first; starts <= now.at; starts += step) rates.push({ starts, permitted: 0, denied: 0, failed: 0, up: 0, down: 0 });
  for (const rate of now.rates) {
    const place = rates[Math.floor((rate.starts - first) / step)];
    if (!place) continue;
    for (const key of ["permitted", "denied", "failed", "up", "down"] as const) place[key] += rate[key];
  }
  return { times: rates.map((rate) => rate.starts), rates };
}

/** A destination of a sum as a denial of a flow: it is a name, or an address. */
export function toDenied(one: Schemas["Destination"]): Denied {
  const isAddress = /^[\d.]+$|:/.test(one.destination);
  return { name: isAddress ? null : one.destination, address: isAddress ? one.destination : null, port: one.port, protocol: one.protocol, reason: one.reason ?? null };
}
