/** The tests in a real browser against a real console: slow beside the unit tests, so they are asked for by name. */
import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["tests/**/*.test.ts"],
    environment: "node",
    // each has a browser and a console of its own; the machine may have two cores
    maxWorkers: 2,
    testTimeout: 120_000,
    hookTimeout: 120_000,
  },
});
