/**
 * Escape sequences of terminals (ECMA-48): colours and weights become styles, everything else that would move a cursor,
 * set a title or ask the terminal something is taken out and never acted on.
 */
import { visible } from "../ui/words";

/** How a piece of a line looks. Colours are a number of the palette or `#rrggbb`. */
export interface Style {
  readonly foreground?: number | string;
  readonly background?: number | string;
  readonly bold?: true;
  readonly dim?: true;
  readonly italic?: true;
  readonly underline?: true;
  readonly inverse?: true;
}

export interface Piece {
  text: string;
  style: Style;
}

export const PLAIN: Style = {};

// CSI … final; OSC … BEL or ST; other strings … ST; two-character escapes. An unfinished one ends with its line.
const ESCAPE =
  // eslint-disable-next-line no-control-regex -- escape sequences begin with a control
  /\u001b(?:\[([0-?]*)[ -/]*([@-~]|$)|\][^\u0007\u001b]*(?:\u0007|\u001b\\|$)|[PX^_][^\u001b]*(?:\u001b\\|$)|[ -/]*[0-~]|$)/g;

/** Whether a line has anything to interpret. */
export function hasEscapes(line: string): boolean {
  return line.includes("\u001b");
}

/** A line without its sequences. */
export function stripped(line: string): string {
  return hasEscapes(line) ? line.replace(ESCAPE, "") : line;
}

/** The style that holds after a line. */
export function styleAfter(line: string, before: Style): Style {
  if (!hasEscapes(line)) return before;
  let style = before;
  for (const found of line.matchAll(ESCAPE)) {
    if (found[2] === "m") style = applied(style, found[1] ?? "");
  }
  return style;
}

/** A line in pieces of one style each, with hidden characters shown. */
export function pieces(line: string, before: Style): Piece[] {
  if (!hasEscapes(line)) return line === "" ? [] : [{ text: visible(line), style: before }];
  const all: Piece[] = [];
  let style = before;
  let from = 0;
  for (const found of line.matchAll(ESCAPE)) {
    if (found.index > from) all.push({ text: visible(line.slice(from, found.index)), style });
    from = found.index + found[0].length;
    if (found[2] === "m") style = applied(style, found[1] ?? "");
  }
  if (from < line.length) all.push({ text: visible(line.slice(from)), style });
  return all;
}

/** Select Graphic Rendition. */
function applied(style: Style, parameters: string): Style {
  const numbers = parameters.split(/[;:]/).map((part) => (part === "" ? 0 : Number(part)));
  let next: Style = style;
  for (let at = 0; at < numbers.length; at += 1) {
    const code = numbers[at] ?? 0;
    if (code === 38 || code === 48) {
      const [colour, used] = extended(numbers.slice(at + 1));
      at += used;
      if (colour !== undefined) next = code === 38 ? { ...next, foreground: colour } : { ...next, background: colour };
    } else {
      next = simple(next, code);
    }
  }
  return next;
}

function simple(style: Style, code: number): Style {
  if (code === 0) return PLAIN;
  if (code === 1) return { ...style, bold: true };
  if (code === 2) return { ...style, dim: true };
  if (code === 3) return { ...style, italic: true };
  if (code === 4) return { ...style, underline: true };
  if (code === 7) return { ...style, inverse: true };
  if (code === 22) return without(style, ["bold", "dim"]);
  if (code === 23) return without(style, ["italic"]);
  if (code === 24) return without(style, ["underline"]);
  if (code === 27) return without(style, ["inverse"]);
  if (code === 39) return without(style, ["foreground"]);
  if (code === 49) return without(style, ["background"]);
  if (code >= 30 && code <= 37) return { ...style, foreground: code - 30 };
  if (code >= 40 && code <= 47) return { ...style, background: code - 40 };
  if (code >= 90 && code <= 97) return { ...style, foreground: code - 82 };
  if (code >= 100 && code <= 107) return { ...style, background: code - 92 };
  return style;
}

function without(style: Style, keys: (keyof Style)[]): Style {
  return Object.fromEntries(Object.entries(style).filter(([key]) => !keys.includes(key as keyof Style)));
}

/** `5;N` of 256 colours or `2;R;G;B`, and how many numbers that were. */
function extended(rest: number[]): [number | string | undefined, number] {
  const byte = (value: number | undefined) => Math.min(255, Math.max(0, Math.trunc(value ?? 0) || 0));
  if (rest[0] === 5) return [indexed(byte(rest[1])), 2];
  if (rest[0] === 2) return [hex(byte(rest[1]), byte(rest[2]), byte(rest[3])), 4];
  return [undefined, 0];
}

function hex(...channels: number[]): string {
  return `#${channels.map((value) => value.toString(16).padStart(2, "0")).join("")}`;
}

/** xterm's 256: sixteen of the palette, a cube of 6×6×6, a ramp of greys. */
function indexed(index: number): number | string {
  if (index < 16) return index;
  if (index >= 232) {
    const grey = 8 + (index - 232) * 10;
    return hex(grey, grey, grey);
  }
  const level = (value: number) => (value === 0 ? 0 : 55 + value * 40);
  const cube = index - 16;
  return hex(level(Math.floor(cube / 36)), level(Math.floor(cube / 6) % 6), level(cube % 6));
}
