/** What may be written at a place of a policy, by the JSON Schema that the console publishes. Pure: text in, options out. */

/** The parts of a schema that completion reads. */
export interface Schema {
  description?: string;
  type?: string | string[];
  properties?: Record<string, Schema>;
  items?: Schema;
  enum?: unknown[];
  const?: unknown;
  oneOf?: Schema[];
  anyOf?: Schema[];
  allOf?: Schema[];
}

export interface Option {
  label: string;
  detail?: string;
  /** What is inserted, where that is more than the label. */
  insert?: string;
}

/** Where a cursor stands. */
export interface Place {
  /** Keys from the top; `[]` is an item of a list. */
  path: string[];
  /** The key whose value is being written; absent where a key is. */
  value: string | undefined;
  /** How much of the word is there already. */
  typed: string;
}

const LINE = /^(\s*)((?:- +)*)([\w.-]+):(.*)$/;
const WRITING = /^(\s*)((?:- +)*)(?:([\w.-]+):\s+(?:\[[^\]]*?)?)?([\w.-]*)$/;

/** Where the end of a text stands; `undefined`: within something that is no plain key or word. */
export function placeAt(before: string): Place | undefined {
  const lines = before.split("\n");
  const now = WRITING.exec(lines.pop() ?? "");
  if (!now) return undefined;
  const [, indent = "", dashes = "", value, typed = ""] = now;
  const path: string[] = [];
  let need = indent.length + dashes.length;
  const enter = (column: number, marks: string) => {
    for (let mark = 0; mark < marks.split("-").length - 1; mark += 1) path.unshift("[]");
    // a list may stand as far left as its key
    if (marks !== "") need = column + 1;
  };
  enter(indent.length, dashes);
  for (const line of lines.reverse()) {
    const found = LINE.exec(line);
    if (!found) continue;
    const [, before = "", marks = "", key = ""] = found;
    const column = before.length + marks.length;
    if (column === need && marks !== "") enter(before.length, marks);
    else if (column < need) {
      path.unshift(key);
      need = column;
      enter(before.length, marks);
    }
    if (need === 0) break;
  }
  return { path, value, typed };
}

/** What may stand there. */
export function optionsAt(schema: Schema, place: Place): Option[] {
  let here = [schema];
  for (const key of place.path) {
    here = here.flatMap(alternatives).flatMap((one) => (key === "[]" ? (one.items ? [one.items] : []) : entry(one, key)));
  }
  if (place.value !== undefined) {
    const key = place.value;
    return distinct(here.flatMap(alternatives).flatMap((one) => entry(one, key)).flatMap(alternatives).flatMap(words));
  }
  return distinct(here.flatMap(alternatives).flatMap((one) => Object.entries(one.properties ?? {}).map(([label, of]) => ({
    label,
    ...(of.description === undefined ? {} : { detail: of.description }),
    insert: `${label}: `,
  }))));
}

/** A schema and those that it is made of. */
function alternatives(schema: Schema): Schema[] {
  const parts = [...(schema.oneOf ?? []), ...(schema.anyOf ?? []), ...(schema.allOf ?? [])];
  return [schema, ...parts.flatMap(alternatives)];
}

function entry(schema: Schema, key: string): Schema[] {
  const found = schema.properties?.[key];
  return found ? [found] : [];
}

/** The values that a schema names, of a list's items as well. */
function words(schema: Schema): Option[] {
  const named = schema.const !== undefined ? [schema.const] : schema.enum ?? (schema.type === "boolean" ? [true, false] : []);
  const items = schema.items ? alternatives(schema.items).flatMap(words) : [];
  return [...named.map((word) => ({ label: String(word) })), ...items];
}

function distinct(options: Option[]): Option[] {
  return [...new Map(options.map((option) => [option.label, option])).values()];
}
