import { describe, expect, test } from "vitest";
import { Stream, type Happening, type Source } from "./stream";

class Double implements Source {
  readyState = 0;
  readonly #calls = new Map<string, (event: MessageEvent<string>) => void>();

  constructor(readonly url: string) {}

  addEventListener(kind: string, call: (event: MessageEvent<string>) => void): void {
    this.#calls.set(kind, call);
  }

  close(): void {
    this.readyState = 2;
  }

  say(type: string, lastEventId: string, topic = ""): void {
    this.#calls.get(type)?.({ type, lastEventId, data: JSON.stringify({ topic, at: 1, data: null }) } as MessageEvent<string>);
  }
}

/** A stream, the sources that it has opened, and those that are still open. */
function made() {
  const opened: Double[] = [];
  const stream = new Stream((url) => {
    const source = new Double(url);
    opened.push(source);
    return source;
  });
  return { stream, opened, open: () => opened.filter((one) => one.readyState !== 2) };
}

/** A part of a page, and what it was told. */
function part(stream: Stream, ...topics: string[]) {
  const heard: Happening[] = [];
  const ends: number[] = [];
  const leave = stream.listen({ topics, call: (one) => heard.push(one), ended: () => ends.push(1) });
  return { heard, ends, leave, kinds: () => heard.map(({ kind, topic }) => `${kind} ${topic}`) };
}

const turn = () => new Promise((go) => setTimeout(go));

describe("one stream for a page", () => {
  test("names what all parts want, once, and tells each its own", async () => {
    const { stream, opened } = made();
    const one = part(stream, "workspace/a");
    const two = part(stream, "workspace/a/run/1", "workspace/a");
    await turn();
    expect(opened.map(({ url }) => url)).toEqual(["/api/v1/events?topics=workspace%2Fa%2Cworkspace%2Fa%2Frun%2F1"]);
    opened[0]?.say("run", "7", "workspace/a");
    opened[0]?.say("flows", "8", "workspace/a/run/1");
    opened[0]?.say("reset", "9");
    expect(one.kinds()).toEqual(["run workspace/a", "reset "]);
    expect(two.kinds()).toEqual(["run workspace/a", "flows workspace/a/run/1", "reset "]);
  });

  test("goes on where it was when parts come and go, and ends with the last one", async () => {
    const { stream, opened, open } = made();
    const one = part(stream, "a");
    await turn();
    opened[0]?.say("run", "41", "a");
    const two = part(stream, "b");
    await turn();
    expect(opened[1]?.url).toBe("/api/v1/events?topics=a%2Cb&after=41");
    expect(open()).toHaveLength(1);
    // a page that makes way for one which wants the same
    one.leave();
    two.leave();
    const next = part(stream, "a", "b");
    await turn();
    expect(opened).toHaveLength(2);
    next.leave();
    await turn();
    expect(open()).toHaveLength(0);
    part(stream, "a");
    await turn();
    expect(opened[2]?.url).toBe("/api/v1/events?topics=a");
  });

  test("tells everybody of its end, and begins again for who comes later", async () => {
    const { stream, opened, open } = made();
    const parts = [part(stream, "a"), part(stream, "b")];
    await turn();
    opened[0]?.say("end", "5");
    expect(parts.map(({ ends }) => ends.length)).toEqual([1, 1]);
    expect(open()).toHaveLength(0);
    for (const { leave } of parts) leave();
    await turn();
    part(stream, "a", "b");
    await turn();
    expect(open().map(({ url }) => url)).toEqual(["/api/v1/events?topics=a%2Cb"]);
    // one that the server refused does not come back by itself
    opened[1]?.close();
    part(stream, "a");
    await turn();
    expect(open()).toHaveLength(1);
  });
});
