/**
 * Output as rows that can be drawn one by one. Bytes come in any pieces; a row knows the style that holds at its start, so
 * that none before it need be read to draw it. Whatever comes, a row has an end and the number of rows one, too.
 */
import { PLAIN, stripped, styleAfter, type Style } from "./ansi";

/** A longer line goes on in the next row: browsers lay out no line of megabytes. */
export const LONGEST_ROW = 2_000;
/** Rows that are kept to look at. The file has all of them. */
export const MOST_ROWS = 400_000;

export interface Row {
  /** As it came, without its line break. */
  text: string;
  /** What holds at its start. */
  style: Style;
  stream: string;
  /** Whether it goes on the row before. */
  continued: boolean;
}

/** What one stream has begun and not ended. */
interface Tail {
  decoder: TextDecoder;
  text: string;
  style: Style;
  continued: boolean;
}

export class OutputBuffer {
  rows: Row[] = [];
  /** Rows that were let go at the beginning. */
  dropped = 0;
  readonly #tails = new Map<string, Tail>();

  /** Adds bytes that one stream printed. */
  append(stream: string, bytes: Uint8Array): void {
    const tail = this.#tail(stream);
    const lines = (tail.text + tail.decoder.decode(bytes, { stream: true })).split("\n");
    tail.text = lines.pop() ?? "";
    for (const line of lines) {
      this.#push(stream, tail, line);
      tail.continued = false;
    }
    while (tail.text.length > LONGEST_ROW) {
      const cut = cutAt(tail.text);
      if (!this.#skipped(tail, tail.text.slice(0, cut))) {
        this.#push(stream, tail, tail.text.slice(0, cut));
        tail.continued = true;
      }
      tail.text = tail.text.slice(cut);
    }
    if (this.rows.length > MOST_ROWS * 1.1) {
      const over = this.rows.length - MOST_ROWS;
      this.rows = this.rows.slice(over);
      this.dropped += over;
    }
  }

  /** All rows, with what has no end yet as the last ones. */
  all(): Row[] {
    const open: Row[] = [];
    for (const [stream, tail] of this.#tails) {
      if (tail.text !== "") open.push({ text: overwritten(tail.text), style: tail.style, stream, continued: tail.continued });
    }
    return open.length === 0 ? this.rows : [...this.rows, ...open];
  }

  #tail(stream: string): Tail {
    let tail = this.#tails.get(stream);
    if (!tail) {
      tail = { decoder: new TextDecoder("utf-8"), text: "", style: PLAIN, continued: false };
      this.#tails.set(stream, tail);
    }
    return tail;
  }

  #push(stream: string, tail: Tail, line: string): void {
    let rest = overwritten(line.endsWith("\r") ? line.slice(0, -1) : line);
    let { continued } = tail;
    do {
      const cut = rest.length > LONGEST_ROW ? cutAt(rest) : rest.length;
      const text = rest.slice(0, cut);
      rest = rest.slice(cut);
      if (rest !== "" && this.#skipped(tail, text)) continue;
      this.rows.push({ text, style: tail.style, stream, continued });
      tail.style = styleAfter(text, tail.style);
      continued = true;
    } while (rest !== "");
  }

  /** A part of a long line that shows nothing, such as thousands of colours in a row: it is no row, only its style counts. */
  #skipped(tail: Tail, text: string): boolean {
    if (stripped(text) !== "") return false;
    tail.style = styleAfter(text, tail.style);
    return true;
  }
}

/** Where to cut a text that is too long: not within a character and, if there is one near, before an escape. */
function cutAt(text: string): number {
  const escape = text.lastIndexOf("\u001b", LONGEST_ROW);
  if (escape > LONGEST_ROW - 64) return escape;
  const unit = text.charCodeAt(LONGEST_ROW - 1);
  return unit >= 0xd800 && unit <= 0xdbff ? LONGEST_ROW - 1 : LONGEST_ROW;
}

/** A line whose cursor went back to its start: what was written last is what a terminal shows. */
function overwritten(line: string): string {
  const back = line.lastIndexOf("\r");
  return back === -1 ? line : line.slice(back + 1);
}

/** The numbers of the rows that hold a text, in any case of letters. */
export function search(rows: Row[], wanted: string, most = 10_000): number[] {
  const found: number[] = [];
  const needle = wanted.toLowerCase();
  if (needle === "") return found;
  for (let at = 0; at < rows.length && found.length < most; at += 1) {
    if (stripped(rows[at]?.text ?? "").toLowerCase().includes(needle)) found.push(at);
  }
  return found;
}
