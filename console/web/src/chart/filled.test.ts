/** Charts show the time between events, too. */
import { expect, test } from "vitest";
import { filled } from "./filled";

const rate = (starts: number, permitted: number) => ({ starts, permitted, denied: 1, failed: 0, up: 2, down: 3 });

test("stretches without flows are noughts, and long spans are gathered without losing any", () => {
  const short = filled({ since: 1_000_000, at: 1_040_000, rate_ms: 10_000, rates: [rate(1_020_000, 5)] });
  expect(short.rates.map((one) => one.permitted)).toEqual([0, 0, 5, 0, 0]);
  const day = 86_400_000;
  const rates = Array.from({ length: 8_640 }, (_, index) => rate(day + index * 10_000, 1));
  const long = filled({ since: day, at: 2 * day, rate_ms: 10_000, rates });
  expect(long.rates.length).toBeLessThanOrEqual(402);
  expect(long.rates.reduce((sum, one) => sum + one.permitted, 0)).toBe(8_640);
});
