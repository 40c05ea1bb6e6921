/** Signing in by a provider, as a browser does it: there, back, and in; or back with the reason. */
import type { Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { look, useBrowser } from "./lab/browser";
import { Client, startConsole, until, type Console } from "./lab/console";
import { startProvider, type Provider } from "./lab/provider";

const EVE = { sub: "7", name: "Eve <img src=x onerror=alert(1)>", email: "eve@example.com", email_verified: true, groups: ["crew"] };
/** What somebody would like a page to do with the name of a provider. */
const NAME = "<b>Company</b>";

describe("sign-in by a provider", () => {
  const browser = useBrowser();
  let provider: Provider;
  let console: Console;
  let ada: Client;

  beforeAll(async () => {
    provider = await startProvider();
    console = await startConsole((port) => `app: { url: "http://127.0.0.1:${port}" }
workspaces: { enabled: false }
auth:
  providers:
    oidc: { name: "${NAME}", issuer: "${provider.url}", client_id: us, client_secret: s3cret, allowed_groups: [crew] }
    github: { client_id: us, client_secret: s3cret, users: [mona], url: "${provider.url}", api: "${provider.url}/api" }
`);
  });
  afterAll(async () => {
    await console.stop();
    await provider.stop();
  });

  /** Leaves by the button, and is back. */
  async function attempt(claims: Record<string, unknown>, sends: Provider["sends"] = "code") {
    Object.assign(provider, { claims, sends });
    const { page } = await browser.open(console.url);
    await page.getByRole("button", { name: `Sign in with ${NAME}` }).click();
    return page;
  }

  test("before there is an owner nobody comes in by a provider, and is told how one becomes it", async () => {
    const page = await attempt(EVE);
    await page.getByText("This instance has no owner yet").waitFor();
    expect(page.url()).toBe(`${console.url}/`);
    ada = await Client.claim(console, "ada@example.com", "Ada", "correct horse battery");
  });

  test("each refusal has its words, which leave the address", async () => {
    for (const [claims, sends, words] of [
      [{ ...EVE, groups: ["others"] }, "code", "Your account is not allowed to use Sallyport"],
      [{ ...EVE, sub: "8", email: "ada@example.com" }, "code", "An account here has your email address already"],
      [EVE, "no code", "The provider did not say who you are"],
      [EVE, "foreign state", "Signing in took too long, or began in another browser"],
    ] as const) {
      const page = await attempt(claims, sends);
      await page.getByRole("alert").getByText(words).waitFor();
      expect(page.url(), words).toBe(`${console.url}/`);
      if (words.startsWith("Your account")) await look(page, "sign-in-providers");
      // told once
      await page.reload();
      await page.getByRole("heading", { name: "Sign in" }).waitFor();
      await page.getByLabel("Email").waitFor();
      expect(await page.getByRole("alert").count(), words).toBe(0);
    }
  });

  test("whoever may comes in, and the page of GitHub is GitHub's", async () => {
    const page = await attempt(EVE);
    await page.getByRole("heading", { name: "Now" }).waitFor();
    await page.getByRole("button", { name: /Eve <img/ }).waitFor();
    const github = (await browser.open(console.url)).page;
    const [asked] = await Promise.all([
      github.waitForRequest((request) => request.url().startsWith(`${provider.url}/login/oauth/authorize?`)),
      github.getByRole("button", { name: "Sign in with GitHub" }).click(),
    ]);
    expect(new URL(asked.url()).searchParams.get("redirect_uri")).toBe(`${console.url}/api/v1/providers/github/callback`);
  });

  test("a link with a text of its own shows nothing of it", async () => {
    const { page } = await browser.open(`${console.url}/#sign-in=your_password_is_needed`);
    await page.getByLabel("Email").waitFor();
    expect(page.url()).toBe(`${console.url}/`);
    expect(await page.getByRole("alert").count()).toBe(0);
  });

  test("an address that looks like another's leads nowhere else", async () => {
    const here = (page: Page) => expect(new URL(page.url()).origin).toBe(console.url);
    for (const path of ["//evil.example/", "/\\evil.example/", "/%5Cevil.example/", "/%2F/evil.example", "/https:evil.example"]) {
      const answer = await fetch(console.url + path, { redirect: "manual" });
      expect([answer.status, answer.headers.get("location")], path).toEqual([404, null]);
    }
    for (const path of ["/?next=//evil.example", "/account?redirect=https:evil.example", "/device?next=javascript:alert(1)#//evil.example"]) {
      const { page } = await browser.open(console.url + path, { as: ada });
      await page.getByRole("link", { name: "Jobs" }).click();
      await page.getByRole("heading", { name: "Jobs" }).waitFor();
      here(page);
    }
    const { page } = await browser.open(`${console.url}/account?next=//evil.example`);
    await page.getByLabel("Email").fill("ada@example.com");
    await page.getByLabel("Password", { exact: true }).fill("correct horse battery");
    await page.getByRole("button", { name: "Sign in", exact: true }).click();
    await page.getByRole("navigation", { name: "Pages" }).waitFor();
    here(page);
    expect(new URL(page.url()).pathname).toBe("/account");
  });

  test("a provider that does not answer is told where its button is", async () => {
    await provider.stop();
    const { page } = await browser.open(console.url);
    await page.getByRole("button", { name: `Sign in with ${NAME}` }).click();
    await page.getByRole("alert").getByText("The sign-in provider does not answer as it should").waitFor();
    await until("the button to be there again", async () => ((await page.getByRole("button", { name: "Sign in with GitHub" }).isEnabled()) ? true : undefined));
  });
});
