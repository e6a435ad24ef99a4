import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import type { Browser, Page } from "playwright-core";
import { launchBrowser, whyNoBrowser } from "../test/chromium.ts";
import { freePort } from "../test/free-port.ts";
import { openWindow } from "../test/page.ts";
import { skipFor } from "../test/skip.ts";
import {
  chooseAction,
  closeTab,
  createStore,
  start,
  storedTodos,
  visibleTitles,
} from "../test/todos-page.ts";
import { until } from "../test/until.ts";

const SEQUENCES = Number(process.env.TODO_TEST_PAGE_SEQUENCES ?? 2);
const SEED = Number(process.env.TODO_TEST_PAGE_SEED ?? Math.floor(Math.random() * 2 ** 31));
const STEPS = 10;

/** Returns pseudo-random integers from 0 to below `limit`. */
function createRandom(seed: number): (limit: number) => number {
  let state = seed;
  return (limit) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * limit);
  };
}

const STEP_NAMES = [
  ...["add", "add", "toggle", "toggle", "toggle", "delete", "delete", "clear", "mark all"],
  ...["undo", "undo", "undo", "dismiss", "close", "reload", "offline", "offline", "restart", "other"],
] as const;

interface Change {
  /** What the page says when it undoes the change. */
  readonly description: string;
  readonly edit: (todos: Map<string, boolean>) => unknown;
}

/** Undoes a change with the keyboard. Returns its description, or undefined if all changes were sent. */
async function undo(page: Page): Promise<string | undefined> {
  await page.locator("#list-heading").focus();
  await page.evaluate(() => {
    const { dataset } = document.body;
    delete dataset.undone;
    const [announcement, toast] = ["announcement", "toast"].map((id) => document.getElementById(id));
    for (const element of [announcement, toast]) element?.replaceChildren();
    new MutationObserver(() => {
      const undone = /^Undone: (.*)/.exec(announcement?.textContent ?? "")?.[1];
      if (undone !== undefined) dataset.undone ??= undone;
      else if (toast?.textContent?.includes("it was already sent")) dataset.undone ??= "";
    }).observe(document.body, { subtree: true, childList: true, characterData: true });
    window.addEventListener("keydown", ({ key, defaultPrevented }) => {
      if (key === "z" && !defaultPrevented) dataset.undone ??= "";
    });
  });
  await page.keyboard.press("ControlOrMeta+z");
  await page.waitForFunction(() => document.body.dataset.undone !== undefined);
  return (await page.locator("body").getAttribute("data-undone")) || undefined;
}

const countTodos = (count: number, kind = ""): string => `${count} ${kind}to-do${count === 1 ? "" : "s"}`;

describe.skipIf(skipFor(whyNoBrowser))("to-dos page", () => {
  let browser: Browser;
  beforeAll(async () => {
    browser = await launchBrowser();
  });
  afterAll(() => browser?.close());

  test(
    "loses and doubles nothing in random sequences of changes, undo, lost connections, restarts and two windows",
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
    const titles = Array.from({ length: 5 }, (_, index) => `to-do ${index + 1}`);
    const store = await createStore(titles);
    await store.setDone(5n, true);
    const port = await freePort();
    let service = start(store, port);
    await using window = await openWindow(browser, service.url);
    const context = window.page.context();
    const initial = new Map(titles.map((title) => [title, title === "to-do 5"]));
    let changes: Change[] = [];
    /** What the user must see, and in the end the service must have: each title, and whether it is done. */
    let model = new Map(initial);
    let isOffline = false;
    let added = 0;

    const expected = (): string[] => [...model].map(([title, isDone]) => (isDone ? `(${title})` : title));
    const sorted = async (page: Page): Promise<string[]> => (await visibleTitles(page)).toSorted();
    const untilShown = (page: Page): Promise<void> =>
      until(
        async () => Bun.deepEquals(await sorted(page), expected().toSorted()),
        `the page shows ${expected()}`,
      );
    const setChanges = (next: readonly Change[]): void => {
      changes = [...next];
      model = new Map(initial);
      for (const { edit } of changes) edit(model);
    };
    const openTab = async (): Promise<Page> => {
      const page = await context.newPage();
      await page.goto(service.url);
      await page.waitForFunction(() => document.querySelector("#todos")?.ariaBusy === "false");
      return page;
    };
    const setOffline = async (offline: boolean): Promise<void> => {
      isOffline = offline;
      await context.setOffline(offline);
    };

    const change = (description: string, edit: Change["edit"]): void =>
      setChanges([...changes, { description, edit }]);

    const pages = [window.page];
    let current = 0;
    for (let step = 0; step < STEPS; step++) {
      const name = STEP_NAMES[random(STEP_NAMES.length)] ?? "add";
      const page = pages[current];
      if (page === undefined) throw new Error("no page");
      log.push(`${name} in ${current}`);
      await untilShown(page);
      const shown = [...model.keys()];
      const title = shown[random(shown.length)];
      if (name === "add") {
        const newTitle = `new ${++added}`;
        await page.getByLabel("New to-do").fill(newTitle);
        await page.keyboard.press("Enter");
        change(`Added “${newTitle}”`, (todos) => todos.set(newTitle, false));
      } else if (name === "toggle" && title !== undefined) {
        await page.getByRole("checkbox", { name: title, exact: true }).press("Space");
        const isDone = !model.get(title);
        change(
          isDone ? `Marked “${title}” as done` : `Reopened “${title}”`,
          (todos) => todos.has(title) && todos.set(title, isDone),
        );
      } else if (name === "delete" && title !== undefined) {
        await page.getByRole("button", { name: `Delete: ${title}`, exact: true }).press("Enter");
        change(`Deleted “${title}”`, (todos) => todos.delete(title));
      } else if (name === "clear" || name === "mark all") {
        if (!(await chooseAction(page, name === "clear" ? /^Clear/ : "Mark all done"))) continue;
        const targets = shown.filter((one) => model.get(one) === (name === "clear"));
        const marked = targets.length === 1 ? `“${targets}”` : countTodos(targets.length);
        const description =
          name === "clear" ? `Deleted ${countTodos(targets.length, "done ")}` : `Marked ${marked} as done`;
        change(description, (todos) => {
          for (const one of targets)
            if (name === "mark all" && todos.has(one)) todos.set(one, true);
            else if (name === "clear" && todos.get(one)) todos.delete(one);
        });
      } else if (name === "undo") {
        const undone = await undo(page);
        if (undone === undefined) continue;
        log.push(`(${undone})`);
        const last = changes.findLast(({ description }) => description === undone);
        expect(last).toBeDefined();
        setChanges(changes.filter((one) => one !== last));
      } else if (name === "dismiss") {
        await page.locator("#undo").evaluate((bar) => bar.querySelector<HTMLElement>(".dismiss")?.click());
      } else if (name === "close" || name === "reload") {
        if (isOffline || name === "close") await closeTab(page);
        else await page.reload();
        await setOffline(false);
        if (page.isClosed()) pages[current] = await openTab();
      } else if (name === "offline") await setOffline(!isOffline);
      else if (name === "restart") {
        await service[Symbol.asyncDispose]();
        service = start(store, port);
      } else if (name === "other") {
        if (pages.length === 1 && !isOffline) pages.push(await openTab());
        current = pages.length - 1 - current;
      }
    }

    await setOffline(false);
    for (const page of pages) await untilShown(page);
    for (const page of pages) await closeTab(page);
    const last = await openTab();
    await until(
      async () => Bun.deepEquals((await storedTodos(store)).map(toShown).toSorted(), expected().toSorted()),
      `the service has ${expected()}`,
    );
    await untilShown(last);
    await until(
      async () => !(await last.locator("#notice").textContent()),
      "the page reports no unsent change",
    );
    expect(await last.getByRole("alert").textContent()).toBe("");
    await service[Symbol.asyncDispose]();
  }
});

function toShown(todo: unknown): string {
  if (typeof todo !== "object" || todo === null || !("title" in todo) || !("done" in todo))
    throw new TypeError("not a to-do");
  return todo.done ? `(${todo.title})` : String(todo.title);
}
