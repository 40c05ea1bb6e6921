/** What is told of each state of a gateway. */
import { expect, test } from "vitest";
import { effect, isGood } from "./posture";

test("only an enforcing gateway that blocks private networks is good", () => {
  expect(isGood({ state: "enforcing", label: "Private networks blocked" })).toBe(true);
  expect(effect({ state: "enforcing", label: "Private networks blocked" })).toBeNull();
  for (const [state, label] of [["enforcing", "Turned off"], ["without_enforcement", "Turned off"], ["a state to come", "Private networks blocked"]] as const) {
    expect(isGood({ state, label }), state).toBe(false);
    expect(effect({ state, label }), state).toBe("Internet sandboxes can reach private networks");
  }
  expect(effect({ state: "sealed", label: "Not enforced" })).toMatch(/^Nothing passes/);
  expect(effect({ state: "without_enforcement", label: "Not enforced" })).toMatch(/through the proxy alone$/);
  expect(effect({ state: "unknown", label: null })).toMatch(/do not start$/);
});
