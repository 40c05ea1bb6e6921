/**
 * A console of one's own for a test: the built binary on a temporary folder and a free port, ready when its readiness
 * route says so, gone afterwards. Also the API as a program uses it, to arrange what a test looks at.
 */
import { spawn, type ChildProcess } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";

const BINARY = process.env.SALLYPORT_BIN ?? resolve(import.meta.dirname, "../../../../target/debug/sallyport");
/** A start migrates the store and hashes a password; a busy machine is slow. */
const PATIENCE = 30_000;

export interface Console {
  url: string;
  /** The first owner's one-time link. */
  link: string;
  /** Its configuration file, for further commands. */
  config: string;
  folder: string;
  /** What it has logged so far. */
  log: () => string;
  stop: () => Promise<void>;
}

/** Waits until something holds. */
export async function until<T>(what: string, ask: () => T | undefined | Promise<T | undefined>, patience = PATIENCE): Promise<T> {
  const end = Date.now() + patience;
  for (;;) {
    const found = await ask();
    if (found !== undefined) return found;
    if (Date.now() > end) throw new Error(`waited ${patience / 1000} s for ${what}`);
    await new Promise((go) => setTimeout(go, 50));
  }
}

/** A port that was free a moment ago. */
export async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((go) => server.listen(0, "127.0.0.1", go));
  const { port } = server.address() as AddressInfo;
  await new Promise((go) => server.close(go));
  return port;
}

/** Further lines of a configuration, if need be for the port that it gets. */
type Settings = string | ((port: number) => string);

/** Starts one. */
export async function startConsole(settings: Settings = ""): Promise<Console> {
  for (let tries = 1; ; tries += 1) {
    try {
      return await begin(settings);
    } catch (error) {
      // a port that was free a moment ago is somebody else's
      if (tries === 3 || !/address already in use/i.test(String(error))) throw error;
    }
  }
}

async function begin(settings: Settings): Promise<Console> {
  const folder = mkdtempSync(join(tmpdir(), "sallyport-browser-"));
  const [port, management] = [await freePort(), await freePort()];
  const config = join(folder, "config.yml");
  const text = `gateway: { state_dir: ${folder}/gateway, run_dir: ${folder}/run }
console: { listen: "127.0.0.1:${port}", management: { listen: "127.0.0.1:${management}" }, state_dir: ${folder}/state }
${typeof settings === "string" ? settings : settings(port)}`;
  writeFileSync(config, text, { mode: 0o600 });
  const child = spawn(BINARY, ["console", "--config", config], { stdio: ["ignore", "pipe", "pipe"] });
  let log = "";
  child.stdout.on("data", (part: Buffer) => (log += part.toString()));
  child.stderr.on("data", (part: Buffer) => (log += part.toString()));
  const fallen = () => {
    if (child.exitCode !== null) throw new Error(`the console ended with ${child.exitCode}:\n${log}`);
  };
  await until("the console to be ready", async () => {
    fallen();
    const answer = await fetch(`http://127.0.0.1:${management}/readyz`).catch(() => undefined);
    return answer?.ok ? true : undefined;
  });
  const link = await until("the owner's link", () => /http:\S+#owner=\S+/.exec(log)?.[0]);
  return { url: `http://127.0.0.1:${port}`, link, config, folder, log: () => log, stop: () => stop(child, folder) };
}

async function stop(child: ChildProcess, folder: string): Promise<void> {
  if (child.exitCode === null) {
    const ended = new Promise((go) => child.once("exit", go));
    child.kill("SIGTERM");
    await ended;
  }
  rmSync(folder, { recursive: true, force: true });
}

/** Somebody signed in by the API alone. */
export class Client {
  readonly #url: string;
  readonly #headers: Record<string, string>;

  constructor(url: string, headers: Record<string, string>) {
    this.#url = url;
    this.#headers = headers;
  }

  static async signIn(url: string, email: string, password: string): Promise<Client> {
    return Client.#begin(url, "/api/v1/session", { email, password });
  }

  static async claim(console: Console, email: string, name: string, password: string): Promise<Client> {
    const link = console.link.split("#owner=")[1] ?? "";
    return Client.#begin(console.url, "/api/v1/owner", { link, email, name, password });
  }

  static async #begin(url: string, path: string, body: unknown): Promise<Client> {
    const answer = await fetch(url + path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
    if (!answer.ok) throw new Error(`${path}: ${answer.status} ${await answer.text()}`);
    const cookie = answer.headers.get("set-cookie")?.split(";")[0] ?? "";
    return new Client(url, { cookie });
  }

  /** Its session, as a browser keeps it. */
  cookie(): { name: string; value: string } {
    const [name = "", value = ""] = (this.#headers.cookie ?? "").split("=");
    return { name, value };
  }

  /** What was answered; anything but success is a failure of the test's own arrangement. */
  async ask<T>(method: string, path: string, body?: unknown): Promise<T> {
    const answer = await fetch(this.#url + path, {
      method,
      headers: { ...this.#headers, ...(body === undefined ? {} : { "content-type": "application/json" }) },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    const text = await answer.text();
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${text}`);
    return (text === "" ? undefined : JSON.parse(text)) as T;
  }

  /** The first workspace. */
  async workspace(): Promise<string> {
    const { items } = await this.ask<{ items: { id: string }[] }>("GET", "/api/v1/workspaces");
    const id = items[0]?.id;
    if (id === undefined) throw new Error("no workspace");
    return id;
  }
}
