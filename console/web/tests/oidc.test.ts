/** Signing in by a provider that others have written: there, in, still in when asked again, out when the group is lost. */
import { execFileSync } from "node:child_process";
import { join } from "node:path";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { useBrowser } from "./lab/browser";
import { Client, startConsole, until, type Console } from "./lab/console";
import { SCOPES_LINE, startRealProvider, type RealProvider } from "./lab/oidc";

const of = (name: string, ...groups: string[]) => ({ name, email: `${name.toLowerCase()}@example.com`, email_verified: true, groups });
/** After so many seconds somebody is asked about again: longer than a page takes, and looked for sixteen times meanwhile. */
const RECHECK = 60;

describe("sign-in by a certified provider", () => {
  const browser = useBrowser();
  let provider: RealProvider;
  let console: Console;

  beforeAll(async () => {
    provider = await startRealProvider();
    provider.people.set("eve", of("Eve", "crew", "others"));
    provider.people.set("mallory", of("Mallory", "others"));
    console = await startConsole((port) => {
      provider.knows(`http://127.0.0.1:${port}/api/v1/providers/oidc/callback`);
      return `app: { url: "http://127.0.0.1:${port}" }
workspaces: { enabled: false }
auth:
  providers:
    recheck_seconds: ${RECHECK}
    oidc: { name: Company, issuer: "${provider.url}", client_id: us, client_secret: s3cret, allowed_groups: [crew], scopes: ${SCOPES_LINE} }
`;
    });
    await Client.claim(console, "ada@example.com", "Ada", "correct horse battery");
  });
  afterAll(async () => {
    await console.stop();
    await provider.stop();
  });

  async function come(as: string): Promise<Page> {
    const { page } = await browser.open(console.url);
    await page.getByRole("button", { name: "Sign in with Company" }).click();
    await page.getByLabel("Who are you?").fill(as);
    await page.getByRole("button", { name: "Go on" }).click();
    return page;
  }

  async function isIn(page: Page): Promise<void> {
    await page.getByRole("heading", { name: "Now" }).waitFor();
    await page.getByRole("button", { name: /Eve/ }).waitFor();
  }

  /** What a program finds in the store `s`. */
  function inStore(program: string): string {
    const open = "import sqlite3, sys, time\ns = sqlite3.connect(sys.argv[1], timeout=20)\n";
    return execFileSync("python3", ["-c", open + program, join(console.folder, "state", "console.db")]).toString().trim();
  }

  /** As if the provider had last been asked ten minutes ago. */
  function longAgo(): void {
    inStore("at = int(time.time() * 1000) - 600000\ns.execute('UPDATE identities SET checked_at = ?, asked_at = ?', (at, at))\ns.commit()\n");
  }

  /** The same, and then it was asked once more and has confirmed everybody. */
  async function later(): Promise<void> {
    const before = provider.asked.length;
    longAgo();
    await until("the provider to be asked again", () => (provider.asked.length > before ? true : undefined));
    await until("its answer to be kept", () => (inStore("print(*s.execute('SELECT count(*) FROM identities WHERE checked_at < asked_at').fetchone())") === "0" ? true : undefined));
  }

  async function over(page: Page): Promise<void> {
    await until("the session to be over", async () => {
      await page.reload();
      await page.getByRole("button", { name: /Eve|Sign in with Company/ }).waitFor();
      return (await page.getByRole("button", { name: "Sign in with Company" }).isVisible()) ? true : undefined;
    });
  }

  test("who is in the group comes in, and who is not does not", async () => {
    await isIn(await come("eve"));
    const page = await come("mallory");
    await page.getByRole("alert").getByText("Your account is not allowed to use Sallyport").waitFor();
    expect(provider.asked).toContain("authorization_code");
  });

  test("signing out ends the session wherever its cookie was copied to", async () => {
    const page = await come("eve");
    await isIn(page);
    const cookies = await page.context().cookies();
    const cookie = cookies.map(({ name, value }) => `${name}=${value}`).join("; ");
    const me = () => fetch(`${console.url}/api/v1/session`, { headers: { cookie } });
    expect((await me()).status).toBe(200);
    await page.getByRole("button", { name: /Eve/ }).click();
    await page.getByRole("menuitem", { name: "Sign out" }).click();
    await page.getByRole("button", { name: "Sign in with Company" }).waitFor();
    expect((await me()).status).toBe(401);
  });

  test("whoever leaves the group is out at the next question, and not before", async () => {
    const page = await come("eve");
    await isIn(page);
    // a refresh token that is good for one time is replaced each time
    await later();
    await later();
    await page.reload();
    await isIn(page);
    provider.people.set("eve", of("Eve", "others"));
    await page.reload();
    await isIn(page);
    longAgo();
    await over(page);
  });

  test("whoever is no account there any more is out", async () => {
    provider.people.set("eve", of("Eve", "crew"));
    const page = await come("eve");
    await isIn(page);
    provider.people.delete("eve");
    longAgo();
    await over(page);
  });
});
