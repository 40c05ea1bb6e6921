/**
 * The description that the app's types are made from (`src/api/openapi.json`) is still true of the console that is tested:
 * whatever it promises, the console's own one promises, too. What is new there is no matter.
 */
import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { startConsole, type Console } from "./lab/console";

type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

/** What people read; it may change. */
const WORDS = ["description", "summary", "title", "version", "operationId"];

let console: Console;
beforeAll(async () => {
  console = await startConsole();
});
afterAll(() => console.stop());

/** Where a description no longer says what another one said. */
function broken(said: Json, says: Json | undefined, at: string): string[] {
  if (says === undefined) return [`${at} is gone`];
  if (Array.isArray(said)) {
    if (!Array.isArray(says)) return [`${at} is no list any more`];
    const texts = new Set(says.map((one) => JSON.stringify(named(one))));
    return said.filter((one) => !texts.has(JSON.stringify(named(one)))).map((one) => `${at} has no ${JSON.stringify(one).slice(0, 120)} any more`);
  }
  if (said !== null && typeof said === "object") {
    if (says === null || typeof says !== "object" || Array.isArray(says)) return [`${at} is something else`];
    const there = says;
    return Object.entries(said).filter(([key]) => !WORDS.includes(key)).flatMap(([key, value]) => broken(value, there[key], `${at}/${key}`));
  }
  return said === says ? [] : [`${at} is ${JSON.stringify(says)}, was ${JSON.stringify(said)}`];
}

/** A member of a list without what people read. */
function named(one: Json): Json {
  if (Array.isArray(one)) return one.map(named);
  if (one === null || typeof one !== "object") return one;
  return Object.fromEntries(Object.entries(one).filter(([key]) => !WORDS.includes(key)).sort(([a], [b]) => a.localeCompare(b)).map(([key, value]) => [key, named(value)]));
}

test("what the app's types say of the API is what the console says of itself", async () => {
  const said = JSON.parse(readFileSync(resolve(import.meta.dirname, "../src/api/openapi.json"), "utf8")) as Json;
  const says = (await (await fetch(`${console.url}/api/v1/openapi.json`)).json()) as Json;
  expect(broken(said, says, ""), "npm run describe makes src/api/openapi.json anew").toEqual([]);
  expect(broken({ a: { type: "string" } }, { a: { type: "integer" }, b: 1 }, ""), "the check itself").toEqual(['/a/type is "integer", was "string"']);
});
