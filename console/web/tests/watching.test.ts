/** Watching: flows of all runs as they come, however many; what is hostile among them; many runs; the checklist. */
import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Page } from "playwright-core";
import { look, useBrowser, worked } from "./lab/browser";
import { Client, startConsole, until, type Console } from "./lab/console";
import { Runner, type Record } from "./lab/runner";
import { leave } from "./lab/seed";

const OWNER = { email: "ada@example.com", name: "Ada", password: "correct horse battery" };
const HOSTILE = `<img src=x onerror="document.title='owned'"><script>document.title='owned'</script>`;
const BIDI = "safe\u202egpj.exe";

describe("watching", () => {
  const browser = useBrowser();
  let console: Console;
  let owner: Client;
  let workspace: string;
  let runner: Runner;

  beforeAll(async () => {
    console = await startConsole("workspaces: { enabled: false }\n");
    owner = await Client.claim(console, OWNER.email, OWNER.name, OWNER.password);
    workspace = await owner.workspace();
    runner = await Runner.of(console, owner);
  });
  afterAll(() => console.stop());

  async function signedIn(path: string): Promise<Page> {
    const { page } = await browser.open(`${console.url}${path}`, { as: owner });
    await page.getByRole("heading", { level: 1 }).waitFor();
    return page;
  }

  /** A run that the runner has. */
  async function running(name: string): Promise<void> {
    const job = await owner.ask<{ id: string }>("POST", `/api/v1/workspaces/${workspace}/jobs`, { name, spec: { command: ["true"] } });
    await owner.ask("POST", `/api/v1/workspaces/${workspace}/jobs/${job.id}/runs`, {});
    await runner.begin();
  }

  test("flows of all runs stand there as they come, with names shown safely, a pause, older ones and a rule to propose", async () => {
    await running(`watched ${HOSTILE.slice(0, 60)}`);
    const { page } = await browser.open(`${console.url}/account`, { as: owner });
    // streams are requests that go on until the page ends them
    const streams = new Set<unknown>();
    page.on("request", (request) => request.url().includes("/api/v1/events") && streams.add(request));
    page.on("requestfinished", (request) => streams.delete(request));
    page.on("requestfailed", (request) => streams.delete(request));
    await page.goto(`${console.url}/w/${workspace}/now`);
    await page.getByText("What sandboxes reach for stands here").waitFor();
    await runner.tell([{ seq: 1, name: "first.example" }, { seq: 2, name: "evil.example", denied: true }, { seq: 3, name: HOSTILE, denied: true }, { seq: 4, name: `${BIDI}${"x".repeat(5_000)}`, denied: true }]);
    const table = page.getByRole("table", { name: "Flows as they come" });
    await table.getByRole("row", { name: /first\.example:443.*open/ }).waitFor();
    await until("one stream for the page", () => (streams.size === 1 ? true : undefined));
    await table.getByText("<img src=x", { exact: false }).first().waitFor();
    await table.getByText("safe\\u{202e}gpj.exe", { exact: false }).first().waitFor();
    expect(await page.title()).not.toContain("owned");
    await look(page, "now-flows");
    await table.getByRole("row", { name: /evil\.example/ }).getByRole("button", { name: "Propose rule" }).click();
    await page.getByRole("button", { name: "Close" }).last().click();
    await page.getByRole("button", { name: "Pause" }).click();
    await runner.tell(Array.from({ length: 120 }, (_, index) => ({ seq: 10 + index, name: `later${index}.example` })));
    await page.getByText("Paused", { exact: false }).waitFor();
    await until("the flows to be kept", async () => ((await owner.ask<{ items: unknown[] }>("GET", `/api/v1/workspaces/${workspace}/flows?q=later119`)).items.length === 1 ? true : undefined));
    expect(await table.getByText("later119.example", { exact: false }).count()).toBe(0);
    await page.getByRole("button", { name: "Go on" }).click();
    await table.getByText("later119.example:443").waitFor();
    await page.getByRole("button", { name: "Older flows" }).click();
    await table.getByText("later70.example:443").waitFor();
    await page.getByRole("button", { name: "Newest" }).click();
    await page.getByLabel("Search flows").fill("EVIL.example");
    await until("only what was looked for", async () => ((await table.getByRole("row").count()) === 2 ? true : undefined));
    await table.getByRole("row", { name: /evil\.example/ }).waitFor();
  });

  test("a thousand flows a second leave the page smooth, its table bounded and what is typed whole", async () => {
    await running("busy");
    const page = await signedIn(`/w/${workspace}/now`);
    const rows = page.getByRole("table", { name: "Flows as they come" }).getByRole("row");
    await rows.first().waitFor();
    const search = page.getByLabel("Search flows");
    const letters = ["b", "u", "s", "y", "1"];
    let asked = 0;
    page.on("request", (request) => (asked += request.url().includes(`/workspaces/${workspace}/flows?`) ? 1 : 0));
    const begun = Date.now();
    let told = 0;
    let most = 0;
    // ten batches of a hundred in each second, as a runner sends them, and a letter each second
    const ms = await worked(page, async () => {
      for (let batch = 0; batch < 10 * letters.length; batch += 1) {
        const records: Record[] = Array.from({ length: 100 }, (_, index) => {
          const seq = 1_000 + told + index;
          return { seq, name: `busy${seq % 500}.example`, denied: seq % 7 === 0 };
        });
        const letter = batch % 10 === 5 ? letters[(batch - 5) / 10] : undefined;
        await Promise.all([runner.tell(records), letter === undefined ? undefined : search.press(letter)]);
        told += records.length;
        most = Math.max(most, await rows.count());
        const ahead = (batch + 1) * 100 - (Date.now() - begun);
        if (ahead > 0) await new Promise((go) => setTimeout(go, ahead));
      }
    });
    const seconds = (Date.now() - begun) / 1000;
    process.stdout.write(`${told} flows at ${(told / seconds).toFixed(0)} a second: the page worked ${ms.toFixed(0)} ms of ${seconds.toFixed(1)} s, and asked ${asked} times\n`);
    expect(await search.inputValue()).toBe("busy1");
    // drawn or asked for by each flow, it would work all the time
    expect(ms / told).toBeLessThan(0.5);
    // once a second, at each look without being told, and for what was typed
    expect(asked).toBeLessThanOrEqual(2 + 1.4 * seconds + letters.length);
    expect(most).toBeGreaterThan(1);
    expect(most).toBeLessThanOrEqual(41);
    await page.getByRole("table", { name: "Flows as they come" }).getByText(/busy1\d*\.example/).first().waitFor();
  });

  test("a hundred thousand runs are paged: each page brings a hundred more", async () => {
    execFileSync("python3", ["-c", `
import sqlite3, sys
store = sqlite3.connect(sys.argv[1], timeout=30)
with store:
    store.executemany("INSERT INTO runs (id, workspace_id, job_name, state, cause, attempt, spec, fence, queued_at, ended_at, output_bytes, output_kept, flows_kept, flows_dropped, denied, up, down) "
        "VALUES (?, ?, ?, 'succeeded', 'person', 1, '{}', 1, ?, ?, 0, 0, 0, 0, 0, 0, 0)",
        ((f"000{n:07d}", sys.argv[2], f"old {n}", 1700000000000 + n, 1700000001000 + n) for n in range(100000)))
`, join(console.folder, "state", "console.db"), workspace]);
    const page = await signedIn(`/w/${workspace}/runs`);
    await page.getByRole("cell", { name: "old 99999", exact: true }).waitFor();
    const loaded = page.getByRole("cell", { name: /^old \d+$/ });
    const own = (await page.getByRole("row").count()) - 1 - (await loaded.count());
    for (const pages of [2, 3]) {
      await page.getByRole("button", { name: "Show more" }).click();
      await page.getByRole("cell", { name: `old ${100_000 - (100 * pages - own)}`, exact: true }).waitFor();
      expect(await page.getByRole("row").count()).toBe(1 + 100 * pages);
    }
  });

  test("output that is meant to harm is only text: bombs of colour, a line of megabytes, cursor tricks, control bytes", async () => {
    const job = await owner.ask<{ id: string }>("POST", `/api/v1/workspaces/${workspace}/jobs`, { name: `${"<b>".repeat(20)}job`, spec: { command: ["true"] } });
    const run = await owner.ask<{ id: string }>("POST", `/api/v1/workspaces/${workspace}/jobs/${job.id}/runs`, {});
    const bomb = Buffer.from("\u001b[1;3;4;9;7;38;2;1;2;3;48;5;200m".repeat(20_000));
    const tricks = Buffer.from("shown first\r\u001b[2K\u001b[1A\u001b[2J\u001b]8;;javascript:document.title='owned'\u0007link\u001b]8;;\u0007\u001b[?1049h\u001bP+q\u001b\\\u0090\u009d\u0007after tricks\n");
    leave(console, {
      run: run.id,
      state: "failed",
      exit: 1,
      message: `${BIDI} ${"m".repeat(2_000)}`,
      output: [
        { stream: "stdout", data: Buffer.concat([bomb, Buffer.from("after the bomb\n")]) },
        { stream: "stdout", data: tricks },
        { stream: "stderr", data: Buffer.concat([Buffer.alloc(2_000_000, "A"), Buffer.from("\n")]) },
        { stream: "stdout", data: Buffer.concat([Buffer.alloc(100_000, 0), Buffer.from("\n"), Buffer.from(`${HOSTILE}\nthe end\n`)]) },
      ],
    });
    const page = await signedIn(`/w/${workspace}/runs/${run.id}`);
    const view = page.locator(".output");
    await view.waitFor();
    await page.getByText("after the bomb", { exact: false }).first().waitFor();
    await page.getByText("after tricks", { exact: false }).first().waitFor();
    expect(await page.locator(".output a").count(), "nothing of it is a link").toBe(0);
    await view.evaluate((element) => (element.scrollTop = element.scrollHeight));
    await page.getByText("the end", { exact: true }).waitFor();
    expect(await page.title()).not.toContain("owned");
    expect(await page.evaluate(() => document.querySelectorAll(".output img, .output script").length)).toBe(0);
    await look(page, "run-hostile");
  });

  test("the checklist says what is to be done, first what is not good, and the page of now how much of it is", async () => {
    const page = await signedIn(`/w/${workspace}/now`);
    const score = page.getByRole("link", { name: /Checklist \d+ of \d+/ });
    await score.waitFor();
    await score.click();
    const list = page.getByRole("list", { name: "Checklist" });
    await list.getByText("People reach the console by HTTPS").waitFor();
    await list.getByRole("listitem").filter({ hasText: "Losing one sign-in locks nobody out" }).getByText("make somebody else an administrator", { exact: false }).waitFor();
    expect(await list.getByRole("listitem").first().innerText()).toContain("to do");
    await look(page, "checklist");
  });
});
