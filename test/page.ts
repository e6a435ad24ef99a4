import { afterAll, afterEach, beforeAll, describe, expect } from "bun:test";
import axe from "axe-core";
import type { Browser, BrowserContextOptions, Page } from "playwright-core";
import { launchBrowser, whyNoBrowser } from "./chromium.ts";
import { skipFor } from "./skip.ts";

export const describeInChromium = (name: string, define: () => void): void =>
  describe.skipIf(skipFor(whyNoBrowser))(name, define);

export interface Window {
  readonly page: Page;
  /** Errors of the page: on the console, exceptions, and violations of its content security policy. A test removes those that it expects. */
  readonly faults: string[];
  /** The hosts to which the page has sent requests. */
  readonly hosts: ReadonlySet<string>;
}

/** Failed requests, which tests check elsewhere, and the notice of Playwright where it blocks service workers. */
const IGNORED = /^Failed to load resource|^Service Worker registration blocked by Playwright/;

/** Keeps messages, and Undo, longer than six seconds, because a busy machine may be late. Does not affect the clock of `page.clock`. */
export const KEEP_STATUS = `{
  const start = setTimeout;
  globalThis.setTimeout = (run, ms, ...rest) => start(run, ms === 6000 ? 600_000 : ms, ...rest);
}`;

/** Makes the page show done to-dos and the oldest ones first, as if the user had chosen so before. */
export const SHOW_ALL = `try {
  localStorage["todo-service.completed"] ??= "shown";
  localStorage["todo-service.order"] ??= "oldest";
} catch {}`;

export function useBrowser(): Pick<Browser, "newContext" | "newPage"> {
  let browser: Browser;
  beforeAll(async () => {
    browser = await launchBrowser();
  });
  afterAll(() => browser?.close());
  return {
    newContext: (options) => browser.newContext(options),
    newPage: (options) => browser.newPage(options),
  };
}

/** Unless `settings` is empty, the list shows all to-dos, the oldest and the open ones first. Faults of pages fail their test. */
export function useChromium(defaults: BrowserContextOptions = {}, settings = SHOW_ALL) {
  const browser = useBrowser();
  let used = new AsyncDisposableStack();
  let faults: string[] = [];
  afterEach(async () => {
    const found = [...faults];
    faults = [];
    await used.disposeAsync();
    used = new AsyncDisposableStack();
    expect(found).toEqual([]);
  });

  return {
    /** Closes something after the test, such as a service. */
    use: <T extends AsyncDisposable>(resource: T): T => used.use(resource),
    /** Opens a page in a window with its own profile, and without motions. */
    open: async (url: string, options: BrowserContextOptions = {}): Promise<Window> => {
      // With a service worker, Playwright would not see all requests of the page. offline.system.test.ts allows it.
      const context = await browser.newContext({
        viewport: { width: 1000, height: 800 },
        serviceWorkers: "block",
        reducedMotion: "reduce",
        ...defaults,
        ...options,
      });
      used.defer(() => context.close());
      // Shorter than the timeout of the test.
      context.setDefaultTimeout(60_000);
      await context.addInitScript(KEEP_STATUS);
      await context.addInitScript(settings);
      const page = await context.newPage();
      // What the page reports while it closes counts for no test.
      const reported = faults;
      const hosts = new Set<string>();
      page.on("console", (message) => {
        const isFault = message.type() === "error" || message.type() === "warning";
        if (isFault && !IGNORED.test(message.text())) reported.push(message.text());
      });
      page.on("pageerror", (error) => reported.push(String(error)));
      page.on("request", (request) => hosts.add(new URL(request.url()).host));
      await page.goto(url);
      return { page, faults: reported, hosts };
    },
  };
}

/** Signs in at an open page of a private service, as its form does, and loads the list. */
export async function signIn(page: Page, body: Readonly<Record<string, string>>): Promise<void> {
  const status = await page.evaluate(async (json) => {
    const headers = { "Content-Type": "application/json" };
    return (await fetch("/api/session", { method: "POST", headers, body: json })).status;
  }, JSON.stringify(body));
  if (status !== 201) throw new Error(`the sign-in got status ${status}`);
  await page.reload();
}

export const WIDTHS = [320, 375, 768, 1000, 1280, 1920] as const;

export async function expectFits(page: Page, width: number): Promise<void> {
  await page.setViewportSize({ width, height: 700 });
  expect([width, await page.evaluate("document.documentElement.scrollWidth")]).toEqual([width, width]);
}

export async function accessibilityViolations(
  page: Page,
  exceptions: readonly string[] = [],
): Promise<string[]> {
  await page.evaluate(axe.source);
  const rules = Object.fromEntries(exceptions.map((rule) => [rule, { enabled: false }]));
  const { violations } = await page.evaluate<axe.AxeResults>(`axe.run(${JSON.stringify({ rules })})`);
  return violations.flatMap(({ id, nodes }) => nodes.map(({ target, html }) => `${id}: ${target} ${html}`));
}
