/** Whom a workspace tells, and what starts a job from elsewhere: addresses and keys that are shown once. */
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Page } from "playwright-core";
import { look, useBrowser } from "./lab/browser";
import { Client, startConsole, until, type Console } from "./lab/console";

const OWNER = { email: "ada@example.com", name: "Ada", password: "correct horse battery" };
const MEMBER = { email: "mel@example.com", name: "Mel", password: "another long password" };
const HOSTILE = "<img src=x onerror=alert(1)>";

describe("notifications and webhooks", () => {
  const browser = useBrowser();
  let console: Console;
  let owner: Client;
  let workspace: string;
  let receiver: Server;
  let target: string;
  const heard: { signature: unknown; body: string }[] = [];

  beforeAll(async () => {
    console = await startConsole("workspaces: { enabled: false }\nnetwork: { allowed_targets: [127.0.0.0/8] }\n");
    owner = await Client.claim(console, OWNER.email, OWNER.name, OWNER.password);
    workspace = await owner.workspace();
    receiver = createServer((request, response) => {
      let body = "";
      request.on("data", (part: Buffer) => (body += part.toString()));
      request.on("end", () => {
        heard.push({ signature: request.headers["webhook-signature"], body });
        response.writeHead(204).end();
      });
    });
    await new Promise<void>((go) => receiver.listen(0, "127.0.0.1", go));
    target = `http://127.0.0.1:${(receiver.address() as AddressInfo).port}/hook`;
  });
  afterAll(async () => {
    await console.stop();
    receiver.closeAllConnections();
    await new Promise((go) => receiver.close(go));
  });

  async function signedIn(path: string, as = owner): Promise<Page> {
    const { page } = await browser.open(`${console.url}/w/${workspace}/${path}`, { as });
    await page.getByRole("navigation", { name: "Pages" }).waitFor();
    return page;
  }

  test("a webhook is set up, its key is shown once, a test arrives and is logged, and it is told nothing any more", async () => {
    const page = await signedIn("notifications");
    await page.getByText("Nobody is told").waitFor();
    await page.getByRole("button", { name: "Tell somebody" }).click();
    const form = page.getByRole("dialog");
    await form.getByLabel("Name", { exact: true }).fill(HOSTILE);
    await form.getByLabel("URL").fill("http://169.254.169.254/latest/");
    await form.getByLabel("a run succeeded").check();
    await form.getByRole("button", { name: "Add" }).click();
    // whatever else is allowed, cloud metadata is not
    await form.locator(".mantine-InputWrapper-error").waitFor();
    await look(page, "notification-form");
    await form.getByLabel("URL").fill(target);
    await form.getByRole("button", { name: "Add" }).click();
    const key = await page.getByLabel("signing key", { exact: true }).innerText();
    expect(key).toMatch(/^whsec_/);
    await page.getByRole("button", { name: "Done" }).click();
    await page.getByRole("row", { name: /onerror.*webhook.*a run failed, a run succeeded/ }).waitFor();
    expect(await page.content()).not.toContain(key);
    expect(await page.locator("main img").count()).toBe(0);
    await look(page, "notifications");

    await page.getByRole("button", { name: `Deliveries to ${HOSTILE}` }).click();
    await page.getByText("Nothing was sent yet").waitFor();
    await page.getByRole("button", { name: "Send a test" }).click();
    await page.getByRole("row", { name: /a test.*done/ }).waitFor();
    const one = await until("the test to arrive", () => heard[0]);
    expect(one.signature).toMatch(/^v1,/);
    expect((JSON.parse(one.body) as { type: string }).type).toBe("test");
    await look(page, "deliveries");
    await page.keyboard.press("Escape");

    await page.getByRole("button", { name: `Delete ${HOSTILE}` }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
    await page.getByText("Nobody is told").waitFor();
  });

  test("mail without a mail server says so beside the address; members have no such page", async () => {
    const page = await signedIn("notifications");
    await page.getByRole("button", { name: "Tell somebody" }).click();
    const form = page.getByRole("dialog");
    await form.getByLabel("Name", { exact: true }).fill("ops");
    await form.getByRole("combobox", { name: "By" }).click();
    await page.getByRole("option", { name: "mail" }).click();
    await form.getByLabel("Address").fill("ops@example.com");
    await form.getByRole("button", { name: "Add" }).click();
    await form.getByText("no mail server is set here").waitFor();

    const user = await owner.ask<{ id: string }>("POST", "/api/v1/users", MEMBER);
    expect(user.id).not.toBe("");
    const theirs = await signedIn("notifications", await Client.signIn(console.url, MEMBER.email, MEMBER.password));
    await theirs.getByRole("alert").getByText("This needs").waitFor();
    expect(await theirs.getByRole("link", { name: "Notifications" }).count()).toBe(0);
  });

  test("the address of a job's webhook is shown once, starts it, and does not once there is another", async () => {
    const job = await owner.ask<{ id: string }>("POST", `/api/v1/workspaces/${workspace}/jobs`, { name: "hooked", spec: { command: ["true"] } });
    const page = await signedIn(`jobs/${job.id}`);
    await page.getByLabel("Description").fill("half-written");
    await page.getByRole("button", { name: "Make a webhook" }).click();
    const address = await page.getByLabel("address", { exact: true }).innerText();
    await look(page, "webhook-address");
    await page.getByRole("button", { name: "Done" }).click();
    await page.getByText("This job has a webhook.").waitFor();
    expect(await page.content()).not.toContain(address);
    // what was typed beside it is still there
    expect(await page.getByLabel("Description").inputValue()).toBe("half-written");
    const call = async (url: string) => (await fetch(url, { method: "POST", body: "x" })).status;
    expect(await call(address)).toBe(202);
    await page.getByRole("button", { name: "Make another address" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Make it" }).click();
    const next = await page.getByLabel("address", { exact: true }).innerText();
    expect(next).not.toBe(address);
    expect(await call(address)).toBe(404);
    expect(await call(next)).toBe(202);
    await page.getByRole("button", { name: "Done" }).click();
    await page.getByRole("button", { name: "Take it away" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Take it away" }).click();
    await page.getByText("This job has none.").waitFor();
    expect(await call(next)).toBe(404);
  });
});
