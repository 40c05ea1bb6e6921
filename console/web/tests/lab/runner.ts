/** A runner of one's own, by the protocol that real ones speak: it takes a run and tells of it whatever a test likes. */
import { generateKeyPairSync, randomUUID } from "node:crypto";
import type { Client, Console } from "./console";

const ZEROS = "0".repeat(64);

/** What a network saw, as the gateway's journal has it. */
export interface Record {
  seq: number;
  at?: number;
  name: string;
  denied?: boolean;
  port?: number;
  up?: number;
}

function line(record: Record): unknown {
  const { seq, name, denied = false, port = 443 } = record;
  const subject = { network: "n", door: denied ? "dns" : "tcp", direction: "egress", protocol: "tcp", source: "198.18.0.2:40000", name, port };
  const by = { layer: "job", policy: "p", at: { file: "p.yaml", line: 3, column: 1 } };
  const base = { seq, t: record.at ?? Date.now(), prev: "", hash: "", policy: ZEROS, generation: 1, subject };
  return denied
    ? { ...base, kind: "denial", reason: "name_not_allowed", by }
    : { ...base, kind: "open", flow: seq, upstream: `192.0.2.${(seq % 250) + 1}:${port}`, class: "public", by: [by] };
}

export class Runner {
  readonly #url: string;
  readonly #headers: { [name: string]: string };
  run = "";
  #fence = 0;

  private constructor(url: string, headers: { [name: string]: string }) {
    this.#url = url;
    this.#headers = headers;
  }

  /** One that has said hello. */
  static async of(console: Console, owner: Client): Promise<Runner> {
    const { token } = await owner.ask<{ token: string }>("POST", "/api/v1/runners", { name: "double" });
    const session = randomUUID();
    const runner = new Runner(console.url, { authorization: `Bearer ${token}`, "sallyport-session": session, "content-type": "application/json" });
    const key = generateKeyPairSync("x25519").publicKey.export({ format: "jwk" }).x;
    await runner.#ask("hello", { version: "0", session, key, engine: "none", isolation: ["hardened"], most: 10 });
    return runner;
  }

  async #ask<T>(path: string, body: unknown): Promise<T> {
    const answer = await fetch(`${this.#url}/runner/v1/${path}`, { method: "POST", headers: this.#headers, body: JSON.stringify(body) });
    const text = await answer.text();
    if (!answer.ok || text === "") throw new Error(`${path}: ${answer.status} ${text}`);
    return JSON.parse(text) as T;
  }

  /** Takes the run that waits longest, and begins it. */
  async begin(): Promise<void> {
    const work = await this.#ask<{ run: string; fence: number }>("claim", { holding: [] });
    this.run = work.run;
    this.#fence = work.fence;
    await this.#ask(`runs/${this.run}/begin`, { fence: this.#fence });
    await this.#ask(`runs/${this.run}/tell`, { fence: this.#fence, starts: 0, steps: [{ seq: 1, at: Date.now(), kind: "started", data: {} }] });
  }

  /** Tells what the run's network saw. */
  async tell(records: Record[]): Promise<void> {
    await this.#ask(`runs/${this.run}/tell`, { fence: this.#fence, starts: 0, flows: records.map(line) });
  }
}
