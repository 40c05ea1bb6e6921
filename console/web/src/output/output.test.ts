/** What runs print is hostile: it is drawn, never obeyed, and never too much. */
import { describe, expect, test } from "vitest";
import { pieces, PLAIN, stripped, styleAfter } from "./ansi";
import { LONGEST_ROW, MOST_ROWS, OutputBuffer, search } from "./buffer";

const bytes = (text: string) => new TextEncoder().encode(text);
const texts = (buffer: OutputBuffer) => buffer.all().map((row) => row.text);

describe("escape sequences", () => {
  test("colours and weights become styles", () => {
    expect(pieces("\u001b[1;31mred\u001b[0m plain", PLAIN)).toEqual([
      { text: "red", style: { bold: true, foreground: 1 } },
      { text: " plain", style: {} },
    ]);
    expect(styleAfter("\u001b[38;5;196mx\u001b[48;2;1;2;3m", PLAIN)).toEqual({ foreground: "#ff0000", background: "#010203" });
    expect(styleAfter("\u001b[38;2;999;300;7m", PLAIN).foreground).toBe("#ffff07");
  });

  test("what would move, name or ask a terminal is taken out", () => {
    for (const evil of ["\u001b[2J", "\u001b[10;10H", "\u001b]0;title\u0007", "\u001b]8;;http://evil\u001b\\", "\u001bP$q\u001b\\", "\u001bc", "\u001b[6n", "\u001b]52;c;Zm9v\u0007"]) {
      expect(stripped(`a${evil}b`), JSON.stringify(evil)).toBe("ab");
    }
    expect(stripped("a\u001b]0;never ended")).toBe("a");
    expect(pieces("a\u0000\u202eb", PLAIN)).toEqual([{ text: "a\\u{0}\\u{202e}b", style: {} }]);
  });

  test("a million unfinished sequences take no time to speak of", () => {
    const begun = performance.now();
    stripped("\u001b[".repeat(200_000));
    stripped("\u001b]".repeat(200_000));
    stripped(`\u001bP${"\u001b".repeat(200_000)}`);
    expect(performance.now() - begun).toBeLessThan(2_000);
  });
});

describe("rows", () => {
  test("bytes in any pieces are the same rows; half a character waits for its other half", () => {
    const whole = new OutputBuffer();
    whole.append("stdout", bytes("één\ntwee 🙂\nrest"));
    const apart = new OutputBuffer();
    for (const byte of bytes("één\ntwee 🙂\nrest")) apart.append("stdout", Uint8Array.of(byte));
    expect(texts(apart)).toEqual(texts(whole));
    expect(texts(whole)).toEqual(["één", "twee 🙂", "rest"]);
  });

  test("streams do not mix within a line, and a style goes on in the next one", () => {
    const buffer = new OutputBuffer();
    buffer.append("stdout", bytes("\u001b[32mgre"));
    buffer.append("stderr", bytes("oops\n"));
    buffer.append("stdout", bytes("en\nstill\n"));
    expect(buffer.all().map((row) => [row.stream, row.text])).toEqual([["stderr", "oops"], ["stdout", "\u001b[32mgreen"], ["stdout", "still"]]);
    expect(buffer.all()[2]?.style).toEqual({ foreground: 2 });
  });

  test("progress that overwrites its line is one row, with its last words", () => {
    const buffer = new OutputBuffer();
    buffer.append("stdout", bytes("1%\r50%\r100%\r\nnext\r\n"));
    expect(texts(buffer)).toEqual(["100%", "next"]);
  });

  test("bytes that are no text are shown as such, and lines of megabytes as rows", () => {
    const buffer = new OutputBuffer();
    buffer.append("stdout", Uint8Array.of(0xff, 0xfe, 0x00, 0x0a));
    buffer.append("stdout", bytes("x".repeat(5 * 1024 * 1024)));
    const rows = buffer.all();
    expect(pieces(rows[0]?.text ?? "", PLAIN)[0]?.text).toBe("\ufffd\ufffd\\u{0}");
    expect(Math.max(...rows.map((row) => row.text.length))).toBeLessThanOrEqual(LONGEST_ROW);
    expect(rows.filter((row) => row.continued).length).toBeGreaterThan(2_000);
  });

  test("more rows than can be looked at let go of the first ones and say so", () => {
    const buffer = new OutputBuffer();
    const lines = bytes("line\n".repeat(100_000));
    for (let time = 0; time < 6; time += 1) buffer.append("stdout", lines);
    expect(buffer.rows.length).toBeLessThanOrEqual(MOST_ROWS * 1.1);
    expect(buffer.dropped + buffer.rows.length).toBe(600_000);
  });

  test("a text is found in any case and within colours", () => {
    const buffer = new OutputBuffer();
    buffer.append("stdout", bytes("one\nERR\u001b[31mOR here\nnone\n"));
    expect(search(buffer.all(), "error")).toEqual([1]);
    expect(search(buffer.all(), "")).toEqual([]);
  });
});

test("a line of nothing but colours is no wall of empty rows, and its last colour holds", () => {
  const buffer = new OutputBuffer();
  buffer.append("stdout", bytes(`${"\u001b[31m".repeat(50_000)}\u001b[32mseen\n`));
  expect(buffer.all().length).toBe(1);
  expect(pieces(buffer.all()[0]?.text ?? "", buffer.all()[0]?.style ?? PLAIN).map((piece) => [piece.text, piece.style.foreground])).toEqual([["seen", 2]]);
  // the same without an end
  buffer.append("stderr", bytes("\u001b[33m".repeat(50_000)));
  buffer.append("stderr", bytes("later\n"));
  expect(buffer.all().length).toBe(2);
  expect(buffer.all()[1]?.style.foreground).toBe(3);
});
