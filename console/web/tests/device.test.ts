/** Letting a program in by a code: who types it sees what asks, says yes or no, and a code is good for one answer. */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Page } from "playwright-core";
import { look, useBrowser } from "./lab/browser";
import { Client, startConsole, type Console } from "./lab/console";

const OWNER = { email: "ada@example.com", name: "Ada", password: "correct horse battery" };
const MEMBER = { email: "mel@example.com", name: "Mel", password: "another long password" };
const HOSTILE = "<img src=x onerror=alert(1)>";

describe("letting a program in", () => {
  const browser = useBrowser();
  let console: Console;
  let owner: Client;
  let workspace: string;

  beforeAll(async () => {
    console = await startConsole("workspaces: { enabled: false }\n");
    owner = await Client.claim(console, OWNER.email, OWNER.name, OWNER.password);
    workspace = await owner.workspace();
  });
  afterAll(() => console.stop());

  /** A program that asks to be let in: what it shows, what it may with its token, and what became of its code. */
  async function program(name: string, scope: string, agent = "sallyport/1.2") {
    const answer = await fetch(`${console.url}/api/v1/codes`, { method: "POST", headers: { "content-type": "application/json", "user-agent": agent }, body: JSON.stringify({ name, scope }) });
    expect(answer.status).toBe(201);
    const { id, code, token } = (await answer.json()) as { id: string; code: string; token: string };
    const ask = async (method: string, path: string, body?: unknown) => (await fetch(`${console.url}/api/v1/workspaces/${workspace}${path}`, {
      method, headers: { authorization: `Bearer ${token}`, "content-type": "application/json" }, ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    })).status;
    const state = async () => ((await (await fetch(`${console.url}/api/v1/codes/${id}`)).json()) as { state: string }).state;
    return { code, reads: () => ask("GET", "/jobs"), writes: () => ask("POST", "/jobs", { name, spec: { command: ["true"] } }), state };
  }

  async function type(page: Page, code: string): Promise<void> {
    await page.getByLabel("Code").fill(code);
    await page.getByRole("button", { name: "See what asks" }).click();
  }

  const UNKNOWN = "no program waits with this code";

  test("who is signed out is led through sign-in and back, sees what asks, and lets it in", async () => {
    const asks = await program("laptop", "write");
    const { page } = await browser.open(`${console.url}/device`);
    await page.getByRole("heading", { name: "Sign in" }).waitFor();
    await page.getByLabel("Email").fill(OWNER.email);
    await page.getByLabel("Password", { exact: true }).fill(OWNER.password);
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.getByRole("heading", { name: "Let a program in" }).waitFor();
    expect(page.url()).toBe(`${console.url}/device`);
    await look(page, "device-code");
    // as people type
    await type(page, ` ${asks.code.toLowerCase().replace("-", " ")}`);
    await page.getByText("calls itself laptop (sallyport/1.2) asks from the address 127.0.0.1").waitFor();
    expect(await asks.reads()).toBe(401);
    await look(page, "device-asks");
    await page.getByRole("button", { name: "Let it in" }).click();
    await page.getByRole("status").getByText("It is let in").waitFor();
    expect([await asks.state(), await asks.reads(), await asks.writes()]).toEqual(["approved", 200, 201]);
    await look(page, "device-done");
    await page.getByRole("link", { name: "Tokens" }).click();
    await page.getByRole("cell", { name: "laptop" }).waitFor();
    expect(await page.content()).not.toContain(asks.code);
  });

  test("a wrong code, no code at all and one that was used up find nothing, and the right one is found after them", async () => {
    const used = await program("used", "read");
    await owner.ask("POST", `/api/v1/workspaces/${workspace}/codes`, { code: used.code, scope: "read", expires_in_days: 1 });
    const refused = await program("refused", "read");
    await owner.ask("POST", "/api/v1/codes/refuse", { code: refused.code });
    const asks = await program("right", "read");
    const { page } = await browser.open(`${console.url}/device`, { as: owner });
    for (const wrong of ["BBBB-BBBB", "hello", HOSTILE, used.code, refused.code]) {
      await type(page, wrong);
      await page.getByText(UNKNOWN, { exact: false }).waitFor();
      expect(await page.getByRole("button", { name: "Let it in" }).count(), wrong).toBe(0);
      // the next answer is the next code's
      await page.reload();
      await page.getByLabel("Code").waitFor();
    }
    await type(page, asks.code);
    await page.getByText("calls itself right").waitFor();
    expect(await refused.reads()).toBe(401);
  });

  test("a program of somebody else is seen for what it is, gets no more than it is given, and nothing where it is refused", async () => {
    const theirs = await program(HOSTILE, "write", `agent ${HOSTILE}`);
    const { page } = await browser.open(`${console.url}/device`, { as: owner });
    await type(page, theirs.code);
    await page.getByText(`calls itself ${HOSTILE} (agent ${HOSTILE}) asks`).waitFor();
    await page.getByRole("button", { name: "Refuse" }).click();
    await page.getByRole("status").getByText("It was refused").waitFor();
    expect([await theirs.state(), await theirs.reads(), await theirs.writes()]).toEqual(["refused", 401, 401]);

    const less = await program("less", "write");
    await page.reload();
    await type(page, less.code);
    await page.getByRole("combobox", { name: "It may" }).click();
    await page.getByRole("option", { name: "read", exact: true }).click();
    await page.getByRole("button", { name: "Let it in" }).click();
    await page.getByRole("status").getByText("It is let in").waitFor();
    expect([await less.reads(), await less.writes()]).toEqual([200, 403]);
  });

  test("what two people look at is settled by one of them", async () => {
    await owner.ask("POST", "/api/v1/users", MEMBER);
    const member = await Client.signIn(console.url, MEMBER.email, MEMBER.password);
    const asks = await program("shared", "read");
    const ours = (await browser.open(`${console.url}/device`, { as: owner })).page;
    const theirs = (await browser.open(`${console.url}/device`, { as: member })).page;
    for (const page of [ours, theirs]) {
      await type(page, asks.code);
      await page.getByText("calls itself shared").waitFor();
    }
    await theirs.getByRole("button", { name: "Refuse" }).click();
    await theirs.getByRole("status").getByText("It was refused").waitFor();
    await ours.getByRole("button", { name: "Let it in" }).click();
    await ours.getByText(UNKNOWN, { exact: false }).waitFor();
    expect([await asks.state(), await asks.reads()]).toEqual(["refused", 401]);
  });
});
