/**
 * Text that others wrote, made safe to look at: what would be invisible, reorder its neighbours or end a line is shown by
 * its code. React escapes markup; this is about what stays text and still lies.
 */

// controls; soft hyphen; Arabic letter mark; zero widths and direction marks; line and paragraph separators, embeddings;
// word joiner to deprecated formats, isolates; byte order mark; interlinear marks; tags; variation selectors' supplement
const HIDDEN =
  // eslint-disable-next-line no-control-regex -- controls are what this is for
  /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e0fff}]|[\ud800-\udfff]/gu;

/** A text of one line. */
export function visible(text: string): string {
  return text.replace(HIDDEN, (hidden) => `\\u{${(hidden.codePointAt(0) ?? 0).toString(16)}}`);
}

/** A text of several lines: line breaks and tabs stay what they are. */
export function visibleLines(text: string): string {
  return text.replace(HIDDEN, (hidden) => (hidden === "\n" || hidden === "\t" ? hidden : visible(hidden)));
}

/** The beginning of a text that may be long, cut between characters. */
export function shortened(text: string, most: number): string {
  if (text.length <= most) return text;
  const cut = text.slice(0, most);
  return `${/[\ud800-\udbff]$/.test(cut) ? cut.slice(0, -1) : cut}…`;
}
