/** What the binary carries of others may be passed on, and is what the lock file says byte for byte. */
import { readFileSync } from "node:fs";
import { expect, test } from "vitest";

const PERMITTED = ["MIT", "0BSD", "BSD-2-Clause", "BSD-3-Clause", "ISC", "Apache-2.0", "Unlicense", "(MIT OR CC0-1.0)"];

interface Package {
  license?: string;
  dev?: boolean;
  integrity?: string;
}

test("every package of the app has a licence that may be passed on, and a checksum", () => {
  const lock = JSON.parse(readFileSync("package-lock.json", "utf8")) as { packages: Record<string, Package> };
  const packages = Object.entries(lock.packages).filter(([path]) => path !== "");
  expect(packages.length).toBeGreaterThan(50);
  expect(packages.filter(([, one]) => one.dev !== true && !PERMITTED.includes(one.license ?? "")).map(([path, one]) => `${path}: ${one.license ?? "none"}`)).toEqual([]);
  expect(packages.filter(([, one]) => one.integrity === undefined).map(([path]) => path)).toEqual([]);
});
