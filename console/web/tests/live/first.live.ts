/**
 * From the first start to a rule that takes effect, through a real runner and engine that stand already: the first owner,
 * a job with a policy of its own, its run watched as it goes, a denial, the rule proposed, and the next run under it.
 */
import { describe, expect, test } from "vitest";
import { look, useBrowser } from "../lab/browser";
import { until } from "../lab/console";

const LINK = process.env.LIVE_LINK ?? "";
/** A run makes a network, a container and what belongs to it; a busy machine takes its time. */
const RUN = { timeout: 90_000 };

/** Long enough to be watched; ends well only if both sites answer. */
const COMMAND = `echo begun
i=0; while [ $i -lt 20 ]; do i=$((i+1)); echo "line $i"; sleep 0.2; done
curl -sS -m 10 -o /dev/null http://ok.sallylab.net/ && echo "ok answers"
curl -sSf -m 10 -o /dev/null http://evil.sallylab.net/ || exit 7
echo "both answer"`;

const POLICY = ["policy: lab", "network: domains", "allow:", "  - host: ok.sallylab.net"].join("\n");

describe("a console with everything", () => {
  const browser = useBrowser();

  test("the first owner makes a job, watches it, sees a denial, proposes the rule, and sees it in force", async () => {
    expect(LINK, "tests/jobs/browser.rs starts what this looks at").not.toBe("");
    const { page } = await browser.open(LINK);
    await page.getByLabel("Email").fill("ada@example.com");
    await page.getByLabel("Your name").fill("Ada Lovelace");
    await page.getByLabel("Password", { exact: true }).fill("correct horse battery");
    await page.getByRole("button", { name: "Become the owner" }).click();
    await page.getByRole("heading", { name: "Now" }).waitFor();
    // the gateway answers here, so the label says what is enforced and no alert says that runs do not start
    await page.getByText("Private networks blocked").first().waitFor();
    await page.getByText("Nothing runs").waitFor();

    await page.getByRole("link", { name: "Jobs" }).click();
    await page.getByRole("link", { name: "Make a job" }).click();
    await page.getByLabel("Name", { exact: true }).fill("both sites");
    await page.getByLabel("Command", { exact: true }).fill(COMMAND);
    await page.getByRole("radio", { name: "Allowed domains only" }).check();
    await page.getByRole("switch", { name: "Write a policy" }).check();
    await page.getByRole("textbox", { name: "Policy" }).click();
    await page.keyboard.insertText(POLICY);
    await page.getByText("No mistakes.").waitFor();
    await page.getByRole("button", { name: "Make it" }).click();
    await page.getByRole("heading", { name: "both sites" }).waitFor();
    await page.getByRole("button", { name: "Run now" }).click();

    // as it goes: lines are there while the run is
    await page.getByText("line 3", { exact: true }).waitFor(RUN);
    expect(await page.getByText("both answer", { exact: true }).count()).toBe(0);
    await page.getByText("running", { exact: true }).first().waitFor();
    await page.getByText("exit code 7").waitFor(RUN);
    await page.getByText("ok answers", { exact: true }).waitFor();
    await look(page, "live-denied");

    await page.getByRole("tab", { name: /Network \(\d+, \d+ denied\)/ }).click();
    await page.getByRole("row", { name: /ok\.sallylab\.net:80.*permitted.*job\.yaml:\d+/ }).first().waitFor();
    const denied = page.getByRole("row", { name: /evil\.sallylab\.net.*denied.*name_not_allowed/ }).first();
    await denied.waitFor();
    await look(page, "live-network");
    await denied.getByRole("button", { name: "Propose rule" }).click();
    await page.getByRole("button", { name: "Allow in this job" }).waitFor();
    await page.screenshot({ path: `${process.env.BROWSER_SHOTS ?? "."}/live-propose.png` });
    await page.getByRole("button", { name: "Allow in this job" }).click();
    await page.getByText("evil.sallylab.net is allowed from the next run on.").waitFor();

    await page.getByRole("link", { name: "its job" }).click();
    await until("the rule to stand in the job's policy", async () => ((await page.getByRole("textbox", { name: "Policy" }).innerText()).includes("host: evil.sallylab.net") ? true : undefined));
    const before = page.url();
    await page.getByRole("button", { name: "Run now" }).click();
    await until("the page of the next run", () => (page.url() === before ? undefined : true));
    await page.getByText("both answer", { exact: true }).waitFor(RUN);
    await page.getByText("succeeded", { exact: true }).first().waitFor(RUN);
    await page.getByRole("tab", { name: "Since the run before" }).click();
    await page.getByRole("row", { name: /evil\.sallylab\.net.*permitted/ }).first().waitFor();
    await look(page, "live-diff");

    await page.getByRole("link", { name: "Now" }).click();
    await page.getByRole("cell", { name: /^evil\.sallylab\.net/ }).first().waitFor();
    await look(page, "live-now");
  });
});
