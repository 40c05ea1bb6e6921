/** What a page edits and what the console keeps are the same job. */
import { describe, expect, test } from "vitest";
import { EMPTY, toDraft, toSpec, variables, type Draft } from "./spec";

const FULL: Draft = {
  ...EMPTY,
  name: "nightly",
  description: "Everything",
  command: "set -e\necho '<b>'",
  image: "debian:12",
  isolation: "gvisor",
  mode: "domains",
  allowPrivate: true,
  domains: ["example.com", "*.example.com"],
  root: true,
  timeout: "60",
  memory: "512",
  cpu: "0.5",
  pids: "64",
  env: "A=1\nB=two=2",
  workdir: "/work",
  secrets: ["TOKEN"],
  input: true,
  scheduled: true,
  cron: "30 4 * * MON-FRI",
  timezone: "Europe/Berlin",
  catchUp: "never",
  rule: "parallel",
  most: "3",
  group: "g",
  retries: "2",
  retryOn: ["lost"],
  retryWait: "10",
};

describe("a job's draft", () => {
  test("comes back from the console as it was sent", () => {
    expect(toDraft("nightly", toSpec(FULL))).toEqual(FULL);
    expect(toDraft("", toSpec(EMPTY))).toEqual(EMPTY);
    const own: Draft = { ...EMPTY, mode: "domains", ownPolicy: true, policy: "network: domains\n" };
    expect(toDraft("", toSpec(own))).toEqual(own);
  });

  test("says nothing where nothing was written", () => {
    const spec = toSpec(EMPTY);
    expect(spec).not.toHaveProperty("image");
    expect(spec.limits).toEqual({});
    expect(spec.command).toEqual([]);
    expect(spec.schedule).toBeUndefined();
  });

  test("without a network nothing private is allowed, and domains are none of a policy's business", () => {
    expect(toSpec({ ...FULL, mode: "none" }).network).toEqual({ mode: "none", allow_private: false, domains: [] });
    expect(toSpec({ ...FULL, ownPolicy: true, policy: "network: domains" }).network?.domains).toEqual([]);
  });

  test("variables keep what stands behind the first equals sign", () => {
    expect(variables("A=1\n\n B = x=y \nC")).toEqual({ A: "1", B: " x=y ", C: "" });
  });
});
