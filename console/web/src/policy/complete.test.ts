/** Completion knows where it is in a document. */
import { describe, expect, test } from "vitest";
import { optionsAt, placeAt, type Schema } from "./complete";

const SCHEMA: Schema = {
  properties: {
    network: { enum: ["internet", "domains", "none"], description: "What may be reached." },
    private: { type: "boolean" },
    allow: {
      items: {
        oneOf: [{ properties: { host: { type: "string" } } }],
        properties: { ports: { items: { type: "integer" } }, protocol: { enum: ["tcp", "udp"] }, http: { items: { properties: { methods: { items: { enum: ["GET", "POST"] } } } } } },
      },
    },
  },
};
const labels = (text: string) => {
  const place = placeAt(text);
  return place ? optionsAt(SCHEMA, place).map((option) => option.label) : undefined;
};

describe("completion", () => {
  test("offers keys where keys are and values where values are", () => {
    expect(labels("")).toEqual(["network", "private", "allow"]);
    expect(labels("network: ")).toEqual(["internet", "domains", "none"]);
    expect(labels("network: none\nprivate: ")).toEqual(["true", "false"]);
  });

  test("knows the item of a list by its indentation, however far the list is indented", () => {
    for (const text of ["allow:\n  - ", "allow:\n- ", "network: domains\nallow:\n  - host: a.example\n    ports: [443]\n  - "]) {
      expect(labels(text), text).toEqual(["ports", "protocol", "http", "host"]);
    }
    expect(labels("allow:\n  - host: a.example\n    ")).toEqual(["ports", "protocol", "http", "host"]);
    expect(labels("allow:\n  - host: a.example\n    protocol: ")).toEqual(["tcp", "udp"]);
    expect(labels("allow:\n  - host: a.example\n    http:\n      - methods: [")).toEqual(["GET", "POST"]);
    expect(labels("allow:\n  - host: a.example\nnet")).toEqual(["network", "private", "allow"]);
  });

  test("offers nothing within what it does not know", () => {
    expect(labels("nothing:\n  ")).toEqual([]);
    expect(labels('description: "some')).toBeUndefined();
  });
});
