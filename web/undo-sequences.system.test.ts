import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import type { Browser, Page } from "playwright-core";
import { launchBrowser, whyNoBrowser } from "../test/chromium.ts";
import { openWindow } from "../test/page.ts";
import { skipFor } from "../test/skip.ts";
import { closeTab, createStore, start, storedTodos, visibleTitles } from "../test/todos-page.ts";
import { until } from "../test/until.ts";

const SEQUENCES = Number(process.env.TODO_TEST_PAGE_SEQUENCES ?? 6);
const SEED = Number(process.env.TODO_TEST_PAGE_SEED ?? Math.floor(Math.random() * 2 ** 31));
const STEPS = 8;

/** Returns pseudo-random integers from 0 to below `limit`. */
function createRandom(seed: number): (limit: number) => number {
  let state = seed;
  return (limit) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * limit);
  };
}

const STEP_NAMES = [
  "delete",
  "delete",
  "clear",
  "undo",
  "undo",
  "dismiss",
  "close",
  "reload",
  "offline",
  "other",
];

interface Tab {
  readonly page: Page;
  /** The titles of the deletion that this page can undo. */
  waiting: readonly string[];
}

describe.skipIf(skipFor(whyNoBrowser))("to-dos page", () => {
  let browser: Browser;
  beforeAll(async () => {
    browser = await launchBrowser();
  });
  afterAll(() => browser?.close());

  test(
    "deletes no restored to-do in random sequences of delete, undo, close, reload, second window and lost connection",
    async () => {
      for (let index = 0; index < SEQUENCES; index++) {
        const seed = SEED + index;
        const log: string[] = [];
        try {
          await runSequence(createRandom(seed), log);
        } catch (cause) {
          throw new Error(`TODO_TEST_PAGE_SEED=${seed} TODO_TEST_PAGE_SEQUENCES=1 fails: ${log.join(", ")}`, {
            cause,
          });
        }
      }
    },
    60_000 + SEQUENCES * 30_000,
  );

  async function runSequence(random: (limit: number) => number, log: string[]): Promise<void> {
    const titles = Array.from({ length: 6 }, (_, index) => `to-do ${index + 1}`);
    const store = await createStore(titles);
    for (const id of [5n, 6n]) await store.setDone(id, true);
    await using service = start(store);
    await using window = await openWindow(browser, service.url);
    const context = window.page.context();
    /** The titles that no deletion may have reached: never deleted, or restored. */
    const safe = new Set(titles);
    /** The titles whose deletion was sent while the browser was online. */
    const sent = new Set<string>();
    let isOffline = false;

    const ready = async (page: Page): Promise<Page> => {
      await page.waitForFunction(() => document.querySelector("#todos")?.ariaBusy === "false");
      return page;
    };
    const openTab = async (): Promise<Tab> => {
      const page = await context.newPage();
      await page.goto(service.url);
      return { page: await ready(page), waiting: [] };
    };
    const stored = async (): Promise<Set<string>> =>
      new Set((await storedTodos(store)).map((todo) => titleOf(todo)));
    /** Every deletion that was sent online arrives. The others may have failed with the connection. */
    const untilDeleted = async (): Promise<void> => {
      const expected = [...sent].filter((title) => !safe.has(title));
      await until(async () => {
        const remaining = await stored();
        return expected.every((title) => !remaining.has(title));
      }, `${expected} are deleted`);
    };
    const setOffline = async (offline: boolean): Promise<void> => {
      // The lost connection would abort requests that have not arrived.
      if (offline) await untilDeleted();
      isOffline = offline;
      await context.setOffline(offline);
    };
    const markSent = (tab: Tab): void => {
      if (!isOffline) for (const title of tab.waiting) sent.add(title);
      tab.waiting = [];
    };

    const tabs: Tab[] = [{ page: await ready(window.page), waiting: [] }];
    let current = 0;
    for (let step = 0; step < STEPS; step++) {
      const name = STEP_NAMES[random(STEP_NAMES.length)] ?? "";
      const tab = tabs[current];
      if (tab === undefined) throw new Error("no tab");
      const { page } = tab;
      log.push(`${name} in ${current}`);
      if (name === "delete") {
        const visible = (await visibleTitles(page)).map((title) => title.replace(/[()]/g, ""));
        const title = visible[random(visible.length)];
        if (title === undefined) continue;
        markSent(tab);
        // By keyboard: a second click at the same place would count as a double click.
        await page.getByRole("button", { name: `Delete: ${title}` }).press("Enter");
        await page.locator("#status").getByText(`Deleted “${title}”`).waitFor();
        tab.waiting = [title];
        safe.delete(title);
      } else if (name === "clear") {
        const button = page.getByRole("button", { name: /^Clear/ });
        if (!(await button.isVisible())) continue;
        const done = (await visibleTitles(page)).filter((title) => title.startsWith("("));
        markSent(tab);
        await button.click();
        tab.waiting = done.map((title) => title.replace(/[()]/g, ""));
        for (const title of tab.waiting) safe.delete(title);
      } else if (name === "undo") {
        const button = page.getByRole("button", { name: "Undo" });
        if (!(await button.isVisible())) continue;
        await page.keyboard.press("ControlOrMeta+z");
        await button.waitFor({ state: "detached" });
        // Another page may have deleted it; that deletion counts.
        const gone = new Set([
          ...sent,
          ...tabs.filter((one) => one !== tab).flatMap(({ waiting }) => waiting),
        ]);
        for (const title of tab.waiting) if (!gone.has(title)) safe.add(title);
        tab.waiting = [];
      } else if (name === "dismiss") {
        const button = page.locator("#status").getByRole("button", { name: "Dismiss" });
        if (!(await button.isVisible())) continue;
        await button.click();
        markSent(tab);
      } else if (name === "close" || name === "reload") {
        markSent(tab);
        if (isOffline || name === "close") await closeTab(page);
        else await page.reload();
        await setOffline(false);
        if (page.isClosed()) tabs[current] = await openTab();
        else await ready(page);
      } else if (name === "offline") await setOffline(!isOffline);
      else if (tabs.length === 1 && !isOffline) {
        tabs.push(await openTab());
        current = 1;
      } else current = tabs.length - 1 - current;
    }

    await setOffline(false);
    for (const tab of tabs) {
      markSent(tab);
      await closeTab(tab.page);
    }
    await untilDeleted();
    const remaining = await stored();
    expect([...safe].filter((title) => !remaining.has(title))).toEqual([]);
  }
});

function titleOf(todo: unknown): string {
  if (typeof todo === "object" && todo !== null && "title" in todo && typeof todo.title === "string")
    return todo.title;
  throw new TypeError("not a to-do");
}
