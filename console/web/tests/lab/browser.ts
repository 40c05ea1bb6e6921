/**
 * Debian's Chromium, headless. Whatever a page complains about (an exception, a broken policy, a failed request) fails
 * the test that was looking; a failure leaves a screenshot.
 */
import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join, resolve } from "node:path";
import { chromium, type Browser, type BrowserContext, type Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, expect } from "vitest";
import type { Client } from "./console";

/** Where screenshots are kept. */
export const SHOTS = process.env.BROWSER_SHOTS ?? resolve(import.meta.dirname, "../../../../target/browser");
const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const EXECUTABLE = process.env.CHROMIUM ?? "/usr/bin/chromium";

const DESKTOP = { width: 1280, height: 800 };
const PHONE = { width: 390, height: 844 };
/** Nothing on a page takes longer, on a machine that builds something else meanwhile. */
const PATIENCE = 15_000;

/** A page and what it has complained about. */
export interface Tab {
  page: Page;
  context: BrowserContext;
  complaints: string[];
}

export interface Options {
  /** Who is signed in from the beginning; without, nobody. */
  as?: Client;
  /** Complaints that the test is about. */
  tolerate?: RegExp;
}

/** One browser for the tests of a file; each tab is a browser of its own as far as cookies go. */
export function useBrowser(): { open: (url: string, options?: Options) => Promise<Tab> } {
  let browser: Browser | undefined;
  let tabs: (Tab & { tolerate: RegExp | undefined })[] = [];
  beforeAll(async () => {
    mkdirSync(SHOTS, { recursive: true });
    // root has no use for Chromium's own sandbox, which needs another user
    browser = await chromium.launch({ executablePath: EXECUTABLE, args: ["--no-sandbox", "--disable-gpu"] });
  });
  afterAll(() => browser?.close());
  afterEach(async ({ task }) => {
    const open = tabs;
    tabs = [];
    for (const [number, { page, complaints }] of open.entries()) {
      if (task.result?.state !== "fail" || page.isClosed()) continue;
      const path = join(SHOTS, `failed-${task.name.replace(/\W+/g, "-").slice(0, 80)}-${number}.png`);
      await page.screenshot({ path, fullPage: true }).catch(() => undefined);
      console.error(`the page at ${page.url()}: ${path}\nits complaints: ${complaints.join("\n") || "none"}`);
    }
    for (const tab of open) await tab.context.close();
    const complaints = open.flatMap(({ complaints: list, tolerate }) => list.filter((one) => !tolerate?.test(one)));
    expect(complaints, "pages complain about nothing").toEqual([]);
  });
  return {
    open: async (url, options = {}) => {
      if (!browser) throw new Error("no browser");
      const context = await browser.newContext({ viewport: DESKTOP, colorScheme: "light", reducedMotion: "reduce" });
      context.setDefaultTimeout(PATIENCE);
      if (options.as) await context.addCookies([{ ...options.as.cookie(), url: new URL(url).origin }]);
      const page = await context.newPage();
      const tab = { page, context, complaints: [] as string[], tolerate: options.tolerate };
      tabs.push(tab);
      await listen(page, tab.complaints);
      if (process.env.BROWSER_APP !== undefined) await serve(context, process.env.BROWSER_APP, new URL(url).origin);
      await page.goto(url);
      return tab;
    },
  };
}

/** The app from a folder in place of the one in the binary, under the binary's own headers: for work on the app. */
async function serve(context: BrowserContext, folder: string, origin: string): Promise<void> {
  await context.route((url) => url.origin === origin && !url.pathname.startsWith("/api/"), async (route) => {
    const path = new URL(route.request().url()).pathname;
    if (/\.\w+$/.test(path)) return route.fulfill({ path: join(folder, path) });
    const answer = await route.fetch();
    const nonce = /'nonce-(\w+)'/.exec(answer.headers()["content-security-policy"] ?? "")?.[1] ?? "";
    const index = readFileSync(join(folder, "index.html"), "utf8").replace("%STYLE_NONCE%", nonce);
    return answer.ok() ? route.fulfill({ response: answer, body: index }) : route.fulfill({ response: answer });
  });
}

async function listen(page: Page, complaints: string[]): Promise<void> {
  page.on("pageerror", (error) => complaints.push(`exception: ${error.stack ?? error.message}`));
  page.on("console", (message) => {
    if (message.type() !== "error" && message.type() !== "warning") return;
    // answers that are no success are the API's words; tests look at what the page makes of them
    if (/Failed to load resource/.test(message.text())) return;
    complaints.push(`${message.type()}: ${message.text()}`);
  });
  await page.addInitScript(() => {
    document.addEventListener("securitypolicyviolation", (event) => {
      console.error(`policy: ${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}:${event.lineNumber} ${event.sample}`);
    });
  });
}

/** What a scheme changes for axe: colours. All else depends on the width at most. */
const COLOURS = { runOnly: { type: "rule", values: ["color-contrast", "link-in-text-block"] } };

/** Looks at a page in both schemes and both widths: keeps the pictures, and axe finds nothing serious on any. */
export async function look(page: Page, name: string): Promise<void> {
  for (const scheme of ["light", "dark"] as const) {
    await page.emulateMedia({ colorScheme: scheme, reducedMotion: "reduce" });
    for (const [kind, size] of [["desktop", DESKTOP], ["phone", PHONE]] as const) {
      await page.setViewportSize(size);
      await settled(page);
      await page.screenshot({ path: join(SHOTS, `${name}-${scheme}-${kind}.png`) });
      expect(await serious(page, scheme === "light" ? {} : COLOURS), `${name}, ${scheme}, ${kind}`).toEqual([]);
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
      expect(wide, `${name} is wider than a ${kind}`).toBeLessThanOrEqual(0);
    }
  }
  await page.emulateMedia({ colorScheme: "light", reducedMotion: "reduce" });
  await page.setViewportSize(DESKTOP);
}

/** Two frames later: what changed is drawn, and what moves by itself has ended. */
async function settled(page: Page): Promise<void> {
  await page.evaluate(async () => {
    for (let frame = 0; frame < 2; frame += 1) await new Promise(requestAnimationFrame);
    await Promise.all(document.getAnimations().filter((one) => one.effect?.getComputedTiming().iterations !== Infinity).map((one) => one.finished.catch(() => undefined)));
  });
}

/** How long the page itself worked meanwhile, in ms of processor time: what else the machine does counts for nothing. */
export async function worked(page: Page, during: () => Promise<void>): Promise<number> {
  const session = await page.context().newCDPSession(page);
  await session.send("Performance.enable", { timeDomain: "threadTicks" });
  const total = async () => {
    const { metrics } = await session.send("Performance.getMetrics");
    const tasks = metrics.find(({ name }) => name === "TaskDuration");
    if (!tasks) throw new Error("the browser counts no tasks");
    return tasks.value * 1000;
  };
  const before = await total();
  await during();
  const after = await total();
  await session.detach();
  return after - before;
}

interface Found {
  violations: { id: string; impact: string | null; nodes: { html: string; failureSummary?: string }[] }[];
}

async function serious(page: Page, options: object): Promise<string[]> {
  // through the debugger, which a page's policy does not bind
  if (!(await page.evaluate(() => "axe" in globalThis))) await page.evaluate(AXE);
  const found = await page.evaluate(async (asked) => {
    const { axe } = globalThis as unknown as { axe: { run: (options: unknown) => Promise<unknown> } };
    return await axe.run({ resultTypes: ["violations"], ...asked });
  }, options) as Found;
  return found.violations
    .filter((one) => one.impact === "serious" || one.impact === "critical")
    .flatMap((one) => one.nodes.slice(0, 4).map((node) => `${one.id}: ${node.html.slice(0, 200)} ${(node.failureSummary ?? "").slice(0, 300)}`));
}
