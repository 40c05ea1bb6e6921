/** Jobs and runs: made, run, looked at; what a sandbox printed and reached is shown, whatever it is. */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Page } from "playwright-core";
import { look, useBrowser, worked } from "./lab/browser";
import { Client, startConsole, until, type Console } from "./lab/console";
import { leave } from "./lab/seed";

const OWNER = { email: "ada@example.com", name: "Ada", password: "correct horse battery" };

/** What somebody would like a page to do with it. */
const HOSTILE = `<img src=x onerror="document.title='owned'"><script>document.title='owned'</script>"'&amp;`;
const BIDI = "safe\u202egpj.exe\u0000end";

describe("jobs and runs", () => {
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

  async function signedIn(path: string): Promise<Page> {
    const { page } = await browser.open(`${console.url}/w/${workspace}/${path}`, { as: owner });
    await page.getByRole("heading", { level: 1 }).waitFor();
    return page;
  }

  async function makeJob(name: string, spec: Record<string, unknown> = {}): Promise<string> {
    const job = await owner.ask<{ id: string }>("POST", `/api/v1/workspaces/${workspace}/jobs`, { name, spec: { command: ["true"], ...spec } });
    return job.id;
  }

  async function submit(job: string): Promise<string> {
    return (await owner.ask<{ id: string }>("POST", `/api/v1/workspaces/${workspace}/jobs/${job}/runs`, {})).id;
  }

  test("a job is made, its mistakes stand beside their fields, and what it reaches is told as it is written", async () => {
    const page = await signedIn("jobs");
    await page.getByText("No jobs yet").waitFor();
    await look(page, "jobs-empty");
    await page.getByRole("link", { name: "Make a job" }).click();
    await page.getByRole("heading", { name: "Make a job" }).waitFor();
    await page.getByLabel("Name", { exact: true }).fill("fetch");
    await page.getByLabel("Command", { exact: true }).fill("curl -s https://example.com/");
    await page.getByRole("radio", { name: "Allowed domains only" }).check();
    await page.getByRole("combobox", { name: "Allowed domains" }).fill("example.com");
    await page.keyboard.press("Enter");
    const listed = page.getByRole("row", { name: /Listed.*example\.com:443/ });
    await listed.getByText("yes").waitFor();
    await page.getByRole("row", { name: /Cloud metadata/ }).getByText("no", { exact: true }).waitFor();
    await page.getByRole("switch", { name: "On a schedule" }).check();
    await page.getByLabel("Cron").fill("61 * * * *");
    await page.getByRole("button", { name: "Make it" }).click();
    await until("the mistake beside the field", async () => ((await page.getByLabel("Cron").getAttribute("aria-invalid")) === "true" ? true : undefined));
    await page.getByLabel("Cron").fill("30 4 * * MON-FRI");
    await look(page, "job-form");
    await page.getByRole("button", { name: "Make it" }).click();
    await page.getByRole("button", { name: "Run now" }).waitFor();
    await page.getByRole("heading", { name: "fetch" }).waitFor();
    await page.reload();
    await until("the domain to be kept", async () => ((await page.getByText("example.com", { exact: true }).count()) > 0 ? true : undefined));
    expect(await page.getByLabel("Cron").inputValue()).toBe("30 4 * * MON-FRI");
  });

  test("a policy is checked where it is written", async () => {
    const page = await signedIn("policies");
    await page.getByText("No mistakes.").waitFor();
    await page.getByRole("textbox", { name: "Policy" }).click();
    await page.keyboard.press("Control+End");
    await page.keyboard.type("nonsense: true\n");
    await page.getByText("It is not a policy yet").waitFor();
    await page.locator(".cm-lintRange-error, .cm-lintPoint-error").first().waitFor();
    await look(page, "policy-mistake");
    await page.keyboard.press("Control+a");
    // typing over a selection makes Chromium itself put a styled element in, which the policy stops and complains about
    await page.keyboard.press("Delete");
    await page.keyboard.type("policy: p\nnetwork: ");
    await page.keyboard.press("Control+Space");
    await page.getByRole("option", { name: "internet" }).waitFor();
    await page.keyboard.press("Escape");
    await page.keyboard.type("internet\n");
    await page.getByText("wider").first().waitFor();
    await page.getByLabel("Would this be reached?").fill("10.0.0.1:22");
    await page.getByRole("button", { name: "Explain" }).click();
    await page.getByRole("status", { name: "Explanation" }).getByText("address_private").waitFor();
    await look(page, "policies");
  });

  test("a run shows what it printed: colours, streams, bytes that are no text, and nothing of it is obeyed", async () => {
    const run = await submit(await makeJob("prints"));
    leave(console, {
      run,
      state: "failed",
      exit: 3,
      reason: "exit_code",
      message: `the command exited with 3 ${HOSTILE}`,
      output: [
        { stream: "stdout", data: Buffer.from(`\u001b[1;32mgreen\u001b[0m ${HOSTILE}\n\u001b]0;owned\u0007after the title\n${BIDI}\n`) },
        { stream: "stderr", data: Buffer.concat([Buffer.from("bytes: "), Buffer.from([0xff, 0xfe, 0x00]), Buffer.from("\n")]) },
        { stream: "stdout", data: Buffer.from(`${"wide ".repeat(200_000)}\nneedle in the end\n`) },
      ],
      steps: [{ kind: "preparing", data: null }, { kind: "ended", data: { code: 3, what: HOSTILE } }],
    });
    const page = await signedIn(`runs/${run}`);
    await page.locator(".ansi-2.ansi-bold", { hasText: "green" }).waitFor();
    await page.locator(".output").getByText("<img src=x", { exact: false }).first().waitFor();
    await page.getByText("safe\\u{202e}gpj.exe\\u{0}end").waitFor();
    await page.getByText("exit code 3").waitFor();
    expect(await page.title()).toContain("Sallyport");
    expect(await page.title()).not.toContain("owned");
    await look(page, "run-output");
    await page.getByLabel("Search the output").fill("NEEDLE");
    await page.getByText("1 of 1").waitFor();
    await page.locator(".output-row[data-current]", { hasText: "needle" }).waitFor();
    await page.getByRole("tab", { name: "Timeline" }).click();
    await page.getByRole("cell", { name: "ended" }).waitFor();
    await page.getByRole("tab", { name: "What ran" }).click();
    await page.getByRole("rowheader", { name: "Command" }).waitFor();
    await look(page, "run-facts");
    const [file] = await Promise.all([page.waitForEvent("download"), (async () => {
      await page.getByRole("tab", { name: "Output" }).click();
      await page.getByRole("link", { name: "Save as a file" }).click();
    })()]);
    expect(file.suggestedFilename()).toMatch(/^run-.*\.log$/);
  });

  test("output of twenty megabytes stays smooth", async () => {
    const run = await submit(await makeJob("much"));
    const line = "some line of output that is neither short nor very long, with a number at its end: ";
    const text = Array.from({ length: 200_000 }, (_, index) => `${line}${index}`).join("\n");
    leave(console, { run, state: "succeeded", exit: 0, output: Array.from({ length: 20 }, (_, part) => ({ stream: "stdout" as const, data: Buffer.from(text.slice((part * text.length) / 20, ((part + 1) * text.length) / 20)) })) });
    const page = await signedIn(`runs/${run}`);
    await page.getByText("200,000 lines").waitFor();
    const frames = 60;
    const ms = await worked(page, () => page.evaluate(async (steps) => {
      const view = document.querySelector(".output");
      for (let step = 0; step < steps; step += 1) {
        if (view) view.scrollTop = (view.scrollHeight / steps) * step;
        await new Promise(requestAnimationFrame);
      }
    }, frames));
    process.stdout.write(`scrolling through 200,000 lines: a frame took ${(ms / frames).toFixed(1)} ms of the page\n`);
    expect(ms / frames).toBeLessThan(50);
    expect(await page.locator(".output-row").count()).toBeLessThan(200);
  });

  test("the network of a run: what was reached, what was denied and by which line; a rule is proposed and taken into the job", async () => {
    const job = await makeJob("reaches", { network: { mode: "domains", domains: ["example.com"] } });
    const first = await submit(job);
    leave(console, { run: first, state: "succeeded", exit: 0, flows: [{ outcome: "permitted", name: "example.com", upstream: "192.0.2.1:443", up: 300, down: 4096, file: "policy.yml", line: 4 }] });
    const second = await submit(job);
    leave(console, {
      run: second,
      state: "failed",
      exit: 1,
      flows: [
        { outcome: "permitted", name: "example.com", upstream: "192.0.2.1:443", up: 300, down: 4096, file: "policy.yml", line: 4 },
        { outcome: "denied", name: "index.example", reason: "name_not_allowed", file: "policy.yml", line: 3 },
        { outcome: "denied", address: "169.254.169.254", port: 80, reason: "address_metadata" },
        { outcome: "denied", name: HOSTILE, reason: "name_invalid" },
        { outcome: "failed", name: "slow.example", reason: "upstream_timeout" },
      ],
    });
    const page = await signedIn(`runs/${second}`);
    await page.getByRole("tab", { name: "Network (5, 3 denied)" }).click();
    await page.getByRole("cell", { name: /policy\.yml:4/ }).waitFor();
    expect(await page.getByRole("button", { name: "Propose rule" }).count(), "only what a rule can change").toBe(1);
    await look(page, "run-network");
    await page.getByRole("tab", { name: "Since the run before" }).click();
    await page.getByRole("row", { name: /new.*index\.example/ }).waitFor();
    expect(await page.getByRole("row", { name: /example\.com:443/ }).count()).toBe(0);
    await look(page, "run-diff");
    await page.getByRole("tab", { name: /Network/ }).click();
    await page.getByRole("button", { name: "Propose rule" }).click();
    expect(await page.getByLabel("rule", { exact: true }).innerText()).toBe("allow:\n  - host: index.example\n");
    await page.getByRole("button", { name: "Allow in this job" }).click();
    await page.getByText("index.example is allowed from the next run on.").waitFor();
    const kept = await owner.ask<{ spec: { network: { domains: string[] } } }>("GET", `/api/v1/workspaces/${workspace}/jobs/${job}`);
    expect(kept.spec.network.domains).toEqual(["example.com", "index.example"]);
  });

  test("now shows runs in progress, flows over time, destinations and denials; a waiting run is cancelled", async () => {
    const live = await submit(await makeJob("lasting"));
    leave(console, { run: live, state: "running", flows: [{ outcome: "denied", name: "evil.example", reason: "name_not_allowed" }, { outcome: "permitted", name: "example.net", down: 2048 }] });
    const waiting = await submit(await makeJob("waiting"));
    const page = await signedIn("now");
    // no gateway runs beside this console, and the page says so
    await page.getByText("Runs of this machine do not start").waitFor();
    await page.getByRole("row", { name: /running.*lasting/ }).waitFor();
    await page.getByRole("table", { name: "Denied", exact: true }).getByRole("cell", { name: "evil.example:443" }).waitFor();
    await page.locator(".chart canvas").waitFor();
    await look(page, "now");
    await page.getByRole("link", { name: "Runs" }).click();
    await page.getByRole("row", { name: /queued.*waiting/ }).getByRole("link").click();
    await page.getByRole("button", { name: "Cancel" }).click();
    await page.getByRole("button", { name: "Run again" }).waitFor();
    expect(page.url()).toContain(waiting);
    await page.getByRole("link", { name: "Runs" }).click();
    await page.getByRole("row", { name: /cancelled.*waiting/ }).waitFor();
    await look(page, "runs");
  });

  test("a list of runs follows what happens without being asked", async () => {
    const job = await makeJob("later");
    const page = await signedIn("runs");
    await page.getByRole("row").first().waitFor();
    expect(await page.getByRole("cell", { name: "later" }).count()).toBe(0);
    await submit(job);
    await page.getByRole("cell", { name: "later" }).waitFor();
  });

  test("a secret is kept, never comes back, and goes", async () => {
    const page = await signedIn("secrets");
    await page.getByRole("button", { name: "Add a secret" }).click();
    await page.getByLabel("Name").fill("API_TOKEN");
    await page.getByLabel("Value").fill("hunter2-hunter2");
    await page.getByRole("combobox", { name: "Hosts" }).fill("api.example.com");
    await page.keyboard.press("Enter");
    await page.getByRole("button", { name: "Keep it" }).click();
    await page.getByRole("cell", { name: "API_TOKEN", exact: true }).waitFor();
    expect(await page.content()).not.toContain("hunter2");
    await look(page, "secrets");
    await page.getByRole("button", { name: "Change API_TOKEN" }).click();
    await page.getByRole("combobox", { name: "Hosts" }).fill("other.example.com");
    await page.keyboard.press("Enter");
    await page.getByRole("button", { name: "Save" }).click();
    await page.getByText("set the value again", { exact: false }).waitFor();
    await page.getByRole("button", { name: "Cancel" }).click();
    await page.getByRole("button", { name: "Delete API_TOKEN" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
    await page.getByText("No secrets").waitFor();
  });
});
