/** Phases follow each other and none is negative. */
import { expect, test } from "vitest";
import { phasesOf } from "./Phases";

const lengths = (run: Parameters<typeof phasesOf>[0], now: number) => phasesOf(run, now).map((phase) => [phase.name, phase.ends - phase.begins]);

test("a run has the phases that it came to", () => {
  expect(lengths({ queued_at: 100, claimed_at: null, started_at: null, ended_at: null }, 150)).toEqual([["Waiting", 50]]);
  expect(lengths({ queued_at: 100, claimed_at: 110, started_at: null, ended_at: 140 }, 999)).toEqual([["Waiting", 10], ["Preparing", 30]]);
  expect(lengths({ queued_at: 100, claimed_at: 110, started_at: 120, ended_at: null }, 200)).toEqual([["Waiting", 10], ["Preparing", 10], ["Running", 80]]);
});

test("clocks that differ make no phase shorter than nothing", () => {
  expect(lengths({ queued_at: 100, claimed_at: 90, started_at: 85, ended_at: 80 }, 0)).toEqual([["Waiting", 0], ["Preparing", 0], ["Running", 0]]);
});
