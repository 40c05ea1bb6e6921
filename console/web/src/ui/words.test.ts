/** What others wrote shows what it is. */
import { describe, expect, test } from "vitest";
import { shortened, visible, visibleLines } from "./words";

describe("text that others wrote", () => {
  test("what is invisible, reorders or ends a line is shown by its code", () => {
    expect(visible("a\u0000b")).toBe("a\\u{0}b");
    expect(visible("safe\u202egnp.exe")).toBe("safe\\u{202e}gnp.exe");
    expect(visible("one\ntwo\u2028three")).toBe("one\\u{a}two\\u{2028}three");
    expect(visible("zero\u200bwidth\ufeff")).toBe("zero\\u{200b}width\\u{feff}");
    expect(visible("tag\u{e0041}")).toBe("tag\\u{e0041}");
    expect(visible("half\ud800")).toBe("half\\u{d800}");
  });

  test("what is visible stays: other scripts, emoji, markup", () => {
    for (const text of ["Ada", "日本語", "עברית", "naïve", "🙂", "<img src=x onerror=alert(1)>"]) expect(visible(text)).toBe(text);
    expect(visibleLines("one\n\ttwo\u0007")).toBe("one\n\ttwo\\u{7}");
  });

  test("what is long is cut between characters", () => {
    expect(shortened("abc", 3)).toBe("abc");
    expect(shortened("abcd", 3)).toBe("abc…");
    expect(shortened("a🙂b", 2)).toBe("a…");
  });
});
