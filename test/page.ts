import axe from "axe-core";
import type { Browser, BrowserContextOptions, Page } from "playwright-core";

/** A page in a window with a profile of its own. */
export interface Window extends AsyncDisposable {
  readonly page: Page;
  /** What went wrong in it: errors on the console, exceptions, and what its policy has blocked. */
  readonly faults: readonly string[];
  /** The hosts that it has asked for anything. */
  readonly hosts: ReadonlySet<string>;
}

/** What Chromium writes of each answer that is an error or does not come: tests see that elsewhere. */
const OF_ANSWERS = /^Failed to load resource/;

export async function openWindow(
  browser: Browser,
  url: string,
  options: BrowserContextOptions = {},
): Promise<Window> {
  const context = await browser.newContext({ viewport: { width: 1000, height: 800 }, ...options });
  // Sooner than the test that waits.
  context.setDefaultTimeout(60_000);
  const page = await context.newPage();
  const faults: string[] = [];
  const hosts = new Set<string>();
  page.on("console", (message) => {
    const isFault = message.type() === "error" || message.type() === "warning";
    if (isFault && !OF_ANSWERS.test(message.text())) faults.push(message.text());
  });
  page.on("pageerror", (error) => faults.push(String(error)));
  page.on("request", (request) => hosts.add(new URL(request.url()).host));
  await page.goto(url);
  return { page, faults, hosts, [Symbol.asyncDispose]: () => context.close() };
}

/** What axe-core finds wrong with a page for people who cannot see, hear or point: a line for each place. */
export async function accessibilityViolations(
  page: Page,
  exceptions: readonly string[] = [],
): Promise<string[]> {
  await page.evaluate(axe.source);
  const rules = Object.fromEntries(exceptions.map((rule) => [rule, { enabled: false }]));
  const { violations } = await page.evaluate<axe.AxeResults>(`axe.run(${JSON.stringify({ rules })})`);
  return violations.flatMap(({ id, nodes }) => nodes.map(({ target, html }) => `${id}: ${target} ${html}`));
}
