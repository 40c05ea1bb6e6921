/** A change of a policy in git, proposed in the browser, through a real gateway to a real repository that others read. */
import { describe, expect, test } from "vitest";
import { look, useBrowser } from "../lab/browser";
import { until } from "../lab/console";

const LINK = process.env.LIVE_LINK ?? "";
const COMMIT = process.env.LIVE_COMMIT ?? "";

describe("policies in a real repository", () => {
  const browser = useBrowser();

  test("a file in force is opened, changed and proposed where that is allowed, and not where it is not", async () => {
    expect(LINK, "tests/jobs/browser.rs starts what this looks at").not.toBe("");
    const { page } = await browser.open(LINK);
    await page.getByLabel("Email").fill("ada@example.com");
    await page.getByLabel("Your name").fill("Ada Lovelace");
    await page.getByLabel("Password", { exact: true }).fill("correct horse battery");
    await page.getByRole("button", { name: "Become the owner" }).click();
    await page.getByRole("heading", { name: "Now" }).waitFor();
    await page.getByRole("link", { name: "Policies" }).click();
    await page.getByText(COMMIT.slice(0, 12)).first().waitFor();
    const editor = page.getByRole("textbox", { name: "Policy" });
    const propose = page.getByRole("button", { name: "Propose as a branch" });

    /** Opens a file and adds a host to its list. */
    const change = async (policy: string) => {
      await page.getByRole("button", { name: `Open ${policy}` }).click();
      await until("the file in the editor", async () => ((await editor.innerText()).includes(`policy: ${policy}`) ? true : undefined));
      await editor.click();
      await page.keyboard.press("Control+Home");
      for (let line = 0; line < 3; line += 1) await page.keyboard.press("ArrowDown");
      await page.keyboard.insertText("  - host: more.sallylab.net\n");
      await page.getByText("wider").first().waitFor();
    };
    await change("closed");
    expect(await propose.count()).toBe(0);
    await change("research");
    await page.getByLabel("What the change is for").fill("Let research reach more");
    await propose.click();
    await page.getByText("Proposed", { exact: true }).waitFor();
    await page.getByText("sallyport/proposals/let-research-reach-more").waitFor();
    await look(page, "live-proposed");
  });
});
