/** Mail by a server that others have written, with STARTTLS and sign-in; and servers that refuse, crawl and hang. */
import { execFileSync, spawn, type ChildProcess } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer as createWebServer } from "node:http";
import { createServer, type AddressInfo, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Client, freePort, startConsole, until, type Console } from "./lab/console";

interface Mail { from: string; to: string[]; tls: boolean; user: string; text: string }
/** What is under way to one mail server at most. */
const AT_ONE_TARGET = 4;
interface Delivery { state: string; outcome: string; attempts: number }

describe("mail", () => {
  const folder = mkdtempSync(join(tmpdir(), "sallyport-mail-"));
  const certificate = join(folder, "mail.pem");
  const taken: Mail[] = [];
  const servers: Server[] = [];
  let program: ChildProcess;
  let port: number;

  beforeAll(async () => {
    execFileSync("openssl", ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=mail",
      "-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE", "-keyout", join(folder, "mail.key"), "-out", certificate], { stdio: "ignore" });
    port = await freePort();
    program = spawn("/usr/bin/python3", [resolve(import.meta.dirname, "lab/smtp.py"), String(port), certificate, join(folder, "mail.key"), "sallyport", "mail s3cret"], { stdio: ["pipe", "pipe", "ignore"] });
    let ready = false;
    if (!program.stdout) throw new Error("no output");
    createInterface({ input: program.stdout }).on("line", (line) => {
      const said = JSON.parse(line) as Mail | { ready: true };
      if ("ready" in said) ready = true;
      else taken.push(said);
    });
    await until("the mail server to be ready", () => {
      if (program.exitCode !== null) throw new Error("the mail server ended; is python3-aiosmtpd there?");
      return ready || undefined;
    });
  });
  afterAll(async () => {
    program.stdin?.end();
    for (const server of servers) await new Promise((go) => server.close(go));
    rmSync(folder, { recursive: true, force: true });
  });

  /** A console that sends by a server, and tells somebody by mail; `send` has it send a test. */
  async function consoleWith(mail: string): Promise<{ console: Console; add: (kind: string, address: string) => Promise<{ send: () => Promise<unknown>; last: () => Promise<Delivery | undefined> }> }> {
    const console = await startConsole(`network: { allowed_targets: [127.0.0.0/8], ca_file: ${certificate} }\nmail: { from: "sallyport@example.com", ${mail} }\n`);
    const owner = await Client.claim(console, "ada@example.com", "Ada", "correct horse battery");
    const workspace = (await owner.ask<{ id: string }>("POST", "/api/v1/workspaces", { name: "W" })).id;
    const add = async (kind: string, address: string) => {
      const path = `/api/v1/workspaces/${workspace}/notifications`;
      const { id } = await owner.ask<{ id: string }>("POST", path, { name: "n", kind, address, topics: ["run.failed"] });
      return {
        send: () => owner.ask("POST", `${path}/${id}/test`),
        last: async () => (await owner.ask<{ items: Delivery[] }>("GET", `${path}/${id}/deliveries`)).items[0],
      };
    };
    return { console, add };
  }

  /** A server that does this with each connection, and how many it has. */
  async function mute(meets: (socket: Socket) => void): Promise<{ port: number; held: () => number }> {
    const sockets = new Set<Socket>();
    const server = createServer((socket) => {
      sockets.add(socket);
      socket.on("error", () => undefined);
      socket.on("close", () => sockets.delete(socket));
      meets(socket);
    });
    await new Promise<void>((go) => server.listen(0, "127.0.0.1", go));
    servers.push(server);
    return { port: (server.address() as AddressInfo).port, held: () => sockets.size };
  }

  test("a message arrives, encrypted and by whom it was to be sent", async () => {
    const { console, add } = await consoleWith(`server: "127.0.0.1:${port}", user: sallyport, password: "mail s3cret"`);
    try {
      const ops = await add("email", "ops@example.com");
      await ops.send();
      const mail = await until("the message", () => taken[0]);
      expect(mail).toMatchObject({ from: "sallyport@example.com", to: ["ops@example.com"], tls: true, user: "sallyport" });
      expect(mail.text).toContain("Subject: Sallyport: a test");
      expect(await until("the log to say so", async () => ((await ops.last())?.state === "done" ? (await ops.last())?.outcome : undefined))).toContain("250");
    } finally {
      await console.stop();
    }
  });

  test("a server that refuses the password, or whose certificate is another's, gets no message, and the log says why", async () => {
    const before = taken.length;
    for (const [server, password, why] of [[`127.0.0.1:${port}`, "wrong", /535|authenticat/i], [`localhost:${port}`, "mail s3cret", /certificate/i]] as const) {
      const { console, add } = await consoleWith(`server: "${server}", user: sallyport, password: "${password}"`);
      try {
        const ops = await add("email", "ops@example.com");
        await ops.send();
        const last = await until("an outcome", async () => {
          const now = await ops.last();
          return now && now.outcome !== "" ? now : undefined;
        });
        expect(last.state).toBe("waiting");
        expect(last.outcome).toMatch(why);
      } finally {
        await console.stop();
      }
    }
    expect(taken.length).toBe(before);
  });

  test("a server that hangs or crawls holds up nobody but its own mail", async () => {
    const heard: string[] = [];
    const receiver = createWebServer((request, response) => {
      heard.push(request.url ?? "");
      request.resume();
      response.writeHead(204).end();
    });
    await new Promise<void>((go) => receiver.listen(0, "127.0.0.1", go));
    servers.push(receiver);
    const hanging = await mute(() => undefined);
    const crawling = await mute((socket) => {
      const drip = setInterval(() => socket.write("2"), 1000);
      socket.on("close", () => clearInterval(drip));
    });
    for (const { port: at, held } of [hanging, crawling]) {
      const { console, add } = await consoleWith(`server: "127.0.0.1:${at}", tls: none`);
      try {
        const mails = await Promise.all(Array.from({ length: 6 }, (_, n) => add("email", `ops${n}@example.com`)));
        for (const mail of mails) await mail.send();
        await until("the mail server to hold all that it is given at once", () => (held() === AT_ONE_TARGET ? true : undefined));
        const hook = await add("webhook", `http://127.0.0.1:${(receiver.address() as AddressInfo).port}/${at}`);
        await hook.send();
        await until("the webhook", () => (heard.includes(`/${at}`) ? true : undefined));
        // no mail's end has let it go
        expect(held()).toBe(AT_ONE_TARGET);
        for (const mail of mails) expect((await mail.last())?.outcome).toBe("");
      } finally {
        await console.stop();
      }
    }
  });
});
