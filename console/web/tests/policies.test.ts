/** Policies in git, as a gateway has them; proposals; a policy tried on its tests and on what was recorded. */
import { mkdirSync } from "node:fs";
import { createServer, type Server } from "node:http";
import { dirname, join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Page } from "playwright-core";
import { look, useBrowser } from "./lab/browser";
import { Client, startConsole, until, type Console } from "./lab/console";
import { leave } from "./lab/seed";

const OWNER = { email: "ada@example.com", name: "Ada", password: "correct horse battery" };
const COMMIT = "3f2a9c1d4b5e6f708192a3b4c5d6e7f8091a2b3c";
const HOSTILE = "<img src=x onerror=alert(1)>";
const BUILD = `policy: build
network: domains
allow:
  - host: example.com
tests:
  - { to: "example.com:443", expect: permit }
  - { to: "evil.example.net:443", expect: deny }
`;

describe("policies in git", () => {
  const browser = useBrowser();
  const proposed: { name: string; title: string; files: { file: string; text: string }[] }[] = [];
  let console: Console;
  let owner: Client;
  let workspace: string;
  let gateway: Server;

  beforeAll(async () => {
    console = await startConsole("workspaces: { enabled: false }\n");
    owner = await Client.claim(console, OWNER.email, OWNER.name, OWNER.password);
    workspace = await owner.workspace();
    // what a gateway says at its control socket
    gateway = createServer((request, response) => {
      let body = "";
      request.on("data", (part: Buffer) => (body += part.toString()));
      request.on("end", () => {
        const asked = body === "" ? null : (JSON.parse(body) as unknown);
        const [status, answer] = said(request.url ?? "", asked);
        response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(answer));
      });
    });
    const socket = join(console.folder, "run", "control.sock");
    mkdirSync(dirname(socket), { recursive: true });
    await new Promise<void>((go) => gateway.listen(socket, go));
  });
  afterAll(async () => {
    gateway.closeAllConnections();
    await new Promise((go) => gateway.close(go));
    await console.stop();
  });

  function said(url: string, asked: unknown): [number, unknown] {
    const source = (name: string, more: object) => ({
      name, remote: "https://git.example/p", branch: "main", commit: COMMIT, loaded_ms: Date.now() - 60_000, signer: null, signatures_required: false,
      policies: [{ policy: "build", file: "policies/build.yml" }], checked_ms: Date.now(), stale: false, problem: null, moves: [], workspaces: [], proposals: true, ...more,
    });
    if (url === "/v1/sources") {
      const broken = { proposals: false, policies: [], problem: { since_ms: 1, commit: COMMIT, message: `the newest commit has mistakes ${HOSTILE}`, hint: null, mistakes: [`3f2a9c1:policies/x.yml:3:1: ${HOSTILE}`] } };
      return [200, [source("main", {}), source("broken", broken)]];
    }
    if (url === "/v1/resolve") return [200, { source: "main", commit: COMMIT, file: "policies/build.yml", text: BUILD, hash: "0".repeat(64) }];
    if (url === "/v1/sources/main/proposals") {
      const proposal = asked as (typeof proposed)[number];
      proposed.push(proposal);
      return [200, { branch: `sallyport/proposals/${proposal.name}`, commit: "b".repeat(40), base: COMMIT }];
    }
    return [404, { status: 404, code: "not_found", message: "nothing is here" }];
  }

  async function signedIn(path: string): Promise<Page> {
    const { page } = await browser.open(`${console.url}/w/${workspace}/${path}`, { as: owner });
    await page.getByRole("heading", { level: 1 }).waitFor();
    return page;
  }

  test("what is in force stands there with its commit; a file is opened, tried, and its change proposed as a branch", async () => {
    const page = await signedIn("policies");
    await page.getByText(COMMIT.slice(0, 12)).first().waitFor();
    await page.getByText("What the remote has is not in force").waitFor();
    await page.getByText(HOSTILE, { exact: false }).first().waitFor();
    await look(page, "policies-git");
    await page.getByRole("button", { name: "Open build" }).click();
    const editor = page.getByRole("textbox", { name: "Policy" });
    await until("the file in the editor", async () => ((await editor.innerText()).includes("evil.example.net") ? true : undefined));
    await page.getByText("2 passed, 0 failed").waitFor();
    expect(await page.getByRole("button", { name: "Propose as a branch" }).count(), "there is nothing to propose yet").toBe(0);
    await editor.click();
    await page.keyboard.press("Control+Home");
    for (let line = 0; line < 3; line += 1) await page.keyboard.press("ArrowDown");
    await page.keyboard.insertText("  - host: evil.example.net\n");
    await page.getByText("1 passed, 1 failed").waitFor();
    await page.getByRole("cell", { name: /permit: / }).waitFor();
    await page.getByLabel("What the change is for").fill("Let builds reach evil.example.net");
    await look(page, "policies-propose");
    await page.getByRole("button", { name: "Propose as a branch" }).click();
    await page.getByText("sallyport/proposals/let-builds-reach-evil-").waitFor();
    const text = BUILD.replace("  - host: example.com", "  - host: evil.example.net\n  - host: example.com");
    expect(proposed.at(-1)?.files).toEqual([{ file: "policies/build.yml", text }]);
    // what is written after that was proposed by nobody yet
    await page.getByText("Proposed", { exact: true }).waitFor();
    await editor.click();
    await page.keyboard.press("Control+Home");
    await page.keyboard.insertText("# reviewed\n");
    await page.getByText("An earlier text was proposed", { exact: true }).waitFor();
    expect(await page.getByText("Proposed", { exact: true }).count()).toBe(0);
    await page.getByRole("button", { name: "Propose as a branch" }).click();
    await page.getByText("Proposed", { exact: true }).waitFor();
    expect(proposed.map(({ files }) => files[0]?.text)).toEqual([text, `# reviewed\n${text}`]);
  });

  test("recorded flows are replayed under the policy, and a denial becomes a proposal in git", async () => {
    const job = await owner.ask<{ id: string }>("POST", `/api/v1/workspaces/${workspace}/jobs`, { name: "builds", spec: { command: ["true"], network: { mode: "domains", domains: ["other.example.net"] } } });
    const run = await owner.ask<{ id: string }>("POST", `/api/v1/workspaces/${workspace}/jobs/${job.id}/runs`, {});
    leave(console, {
      run: run.id,
      state: "succeeded",
      exit: 0,
      flows: [
        { outcome: "denied", name: "example.com", reason: "name_not_allowed" },
        { outcome: "permitted", name: "other.example.net", upstream: "192.0.2.1:443" },
        { outcome: "denied", name: "wheels.example.net", reason: "name_not_allowed" },
      ],
    });
    const page = await signedIn("policies");
    await page.getByRole("button", { name: "Replay" }).click();
    await page.getByRole("table", { name: "Would be permitted now" }).getByRole("row", { name: /^example\.com:443/ }).waitFor();
    await page.getByRole("table", { name: "Would be denied now" }).getByRole("row", { name: /other\.example\.net:443/ }).waitFor();
    await look(page, "policies-replay");
    await page.getByRole("link", { name: "Now" }).click();
    await page.getByRole("table", { name: "Denied", exact: true }).getByRole("row", { name: /wheels\.example\.net/ }).getByRole("button", { name: "Propose rule" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByRole("button", { name: "Propose as a branch" }).waitFor();
    expect(await dialog.getByLabel("What the change is for").inputValue()).toBe("Allow wheels.example.net");
    await look(page, "now-propose-git");
    await dialog.getByRole("button", { name: "Propose as a branch" }).click();
    await dialog.getByText("sallyport/proposals/allow-wheels-example").waitFor();
    expect(proposed.at(-1)?.files[0]?.text).toContain("allow:\n  - host: wheels.example.net\n  - host: example.com\n");
  });
});
