/** Numbers as people read them. */
import { describe, expect, test } from "vitest";
import { bytes, count, device, duration, relative } from "./format";

const NOW = Date.UTC(2026, 0, 2, 3, 4, 5);

describe("numbers for people", () => {
  test("times say how long ago or in how long", () => {
    expect(relative(NOW - 3_000, NOW)).toBe("just now");
    expect(relative(NOW - 42_000, NOW)).toBe("42 seconds ago");
    expect(relative(NOW + 3_600_000, NOW)).toBe("in 1 hour");
    expect(relative(NOW - 86_400_000, NOW)).toBe("yesterday");
    expect(relative(NOW + 7 * 86_400_000, NOW)).toBe("in 7 days");
  });

  test("durations keep two units", () => {
    expect([0, 420, 3200, 42_000, 250_000, 7_500_000, 200_000_000].map(duration))
      .toEqual(["0 ms", "420 ms", "3.2 s", "42 s", "4 min 10 s", "2 h 5 min", "2 d 7 h"]);
  });

  test("bytes and counts are read at a glance", () => {
    expect([0, 1023, 1024, 1536, 10 * 1024 * 1024, 5 * 1024 ** 3].map(bytes)).toEqual(["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "10 MiB", "5.0 GiB"]);
    expect(count(1_234_567)).toBe("1,234,567");
  });

  test("browsers are named by what they call themselves", () => {
    expect(device("Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0")).toBe("Firefox on Linux");
    expect(device("curl/8.0")).toBe("curl/8.0");
    expect(device("")).toBe("unnamed program");
  });
});
