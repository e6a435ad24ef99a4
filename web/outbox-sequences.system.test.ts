import { describe, expect, test } from "bun:test";
import type { Page } from "playwright-core";
import { whyNoBrowser } from "../test/chromium.ts";
import { freePort } from "../test/free-port.ts";
import { skipFor } from "../test/skip.ts";
import {
  add,
  chooseAction,
  closeTab,
  createStore,
  numbered,
  start,
  storedTodos,
  useTodosPage,
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
  ...["undo", "undo", "undo", "undo", "redo", "redo", "dismiss", "close", "reload"],
  ...["offline", "offline", "restart", "other", "other"],
] as const;

/** What a window did. */
interface Step {
  readonly kind: "created" | "done" | "open" | "deleted" | "cleared";
  /** The titles, and whether they were done before. */
  readonly targets: readonly (readonly [string, boolean])[];
}

/** A window, and what it can undo and redo. */
interface Tab {
  page: Page;
  done: Step[];
  undone: Step[];
}

const isDeletion = ({ kind }: Step): boolean => kind === "deleted" || kind === "cleared";

/** The model: titles, and whether they are done. */
type Model = Map<string, boolean>;

function apply(model: Model, { kind, targets }: Step): void {
  for (const [title] of targets)
    if (kind === "deleted" || kind === "cleared") model.delete(title);
    else model.set(title, kind === "done");
}

/** Takes back what still has the value that the step set. Returns that part of the step. */
function takeBack(model: Model, step: Step): Step {
  if (isDeletion(step)) {
    for (const [title, isDone] of step.targets) model.set(title, isDone);
    return step;
  }
  const targets = step.targets.filter(([title]) => model.get(title) === (step.kind === "done"));
  for (const [title] of targets)
    if (step.kind === "created") model.delete(title);
    else model.set(title, step.kind === "open");
  return { ...step, targets };
}

/** Returns the part of an undone step that can be done again. */
function toRedo(model: Model, step: Step): Step {
  const { kind } = step;
  const isPossible = ([title]: readonly [string, boolean]): boolean => {
    if (kind === "created") return true;
    return kind === "deleted" ? model.has(title) : model.get(title) === (kind !== "done");
  };
  return { ...step, targets: step.targets.filter(isPossible) };
}

/** A deletion was sent: forgets what was done to its to-dos. */
function forget(tab: Tab, { targets }: Step): void {
  const titles = new Set(targets.map(([title]) => title));
  tab.done = tab.done
    .map((step) => ({ ...step, targets: step.targets.filter(([title]) => !titles.has(title)) }))
    .filter((step) => step.targets.length > 0);
}

/** Presses keys that undo or redo. Returns what the page says, or undefined if there is nothing to undo or redo. */
async function pressKeys(page: Page, keys: string): Promise<string | undefined> {
  await page.locator("#list-heading").focus();
  await page.evaluate((isUndo) => {
    const { dataset } = document.body;
    delete dataset.said;
    // Read by the observers of earlier keys, too.
    dataset.isUndo = String(isUndo);
    const announcement = document.getElementById("announcement");
    announcement?.replaceChildren();
    for (const alert of document.querySelectorAll("#toasts [role=alert]")) alert.remove();
    new MutationObserver(() => {
      const text = announcement?.textContent ?? "";
      const isOther = text === "" || /open, \d|^Reconnected/.test(text);
      const alert = document.querySelector("#toasts [role=alert]");
      if (!isOther && String(text.startsWith("Undone: ")) === dataset.isUndo) dataset.said ??= text;
      else if (alert !== null) dataset.said ??= alert.textContent;
    }).observe(document.body, { subtree: true, childList: true, characterData: true });
    window.addEventListener("keydown", ({ key, defaultPrevented }) => {
      if (key.toLowerCase() === "z" && !defaultPrevented) dataset.said ??= "";
    });
  }, keys === UNDO);
  await page.keyboard.press(keys);
  await page.waitForFunction(() => document.body.dataset.said !== undefined);
  return (await page.locator("body").getAttribute("data-said")) || undefined;
}

const UNDO = "ControlOrMeta+z";
const REDO = "ControlOrMeta+Shift+z";

const countTodos = (count: number, kind = ""): string => `${count} ${kind}to-do${count === 1 ? "" : "s"}`;

/** Returns what the page says of a step. */
function describeStep({ kind, targets }: Step): string {
  const [[title] = [""]] = targets;
  const name = targets.length === 1 ? `“${title}”` : countTodos(targets.length);
  if (kind === "created") return `Added ${name}`;
  if (kind === "deleted") return `Deleted ${name}`;
  if (kind === "cleared") return `Deleted ${countTodos(targets.length, "done ")}`;
  return kind === "open" ? `Reopened ${name}` : `Marked ${name} as done`;
}

describe.skipIf(skipFor(whyNoBrowser))("to-dos page", () => {
  const { open } = useTodosPage();

  test(
    "loses and doubles nothing in random sequences of changes, undo, redo, lost connections, restarts and two windows",
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
    const titles = numbered(5);
    const store = await createStore(titles);
    await store.setDone(5n, true);
    const port = await freePort();
    let service = start(store, port);
    const window = await open(service.url);
    const context = window.page.context();
    /** What the user must see, and in the end the service must have. */
    const model: Model = new Map(titles.map((title) => [title, title === "to-do 5"]));
    let isOffline = false;
    let added = 0;

    const expected = (): string[] => [...model].map(([title, isDone]) => (isDone ? `(${title})` : title));
    const sorted = async (page: Page): Promise<string[]> => (await visibleTitles(page)).toSorted();
    const untilShown = (page: Page): Promise<void> =>
      until(
        async () => Bun.deepEquals(await sorted(page), expected().toSorted()),
        `the page shows ${expected()}`,
      );
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

    const tabs: Tab[] = [{ page: window.page, done: [], undone: [] }];
    let current = 0;
    for (let index = 0; index < STEPS; index++) {
      const name = STEP_NAMES[random(STEP_NAMES.length)] ?? "add";
      const tab = tabs[current];
      if (tab === undefined) throw new Error("no window");
      const { page } = tab;
      log.push(`${name} in ${current}`);
      await untilShown(page);
      const shown = [...model.keys()];
      const title = shown[random(shown.length)];
      const change = (kind: Step["kind"], targetTitles: readonly string[]): void => {
        const targets = targetTitles.map((one) => [one, model.get(one) === true] as const);
        const step = { kind, targets };
        apply(model, step);
        tab.done.push(step);
        tab.undone = [];
      };
      if (name === "add") {
        const newTitle = `new ${++added}`;
        await add(page, newTitle);
        change("created", [newTitle]);
      } else if (name === "toggle" && title !== undefined) {
        await page.getByRole("checkbox", { name: title, exact: true }).press("Space");
        change(model.get(title) === true ? "open" : "done", [title]);
      } else if (name === "delete" && title !== undefined) {
        await page.getByRole("button", { name: `Delete: ${title}`, exact: true }).press("Enter");
        change("deleted", [title]);
      } else if (name === "clear" || name === "mark all") {
        if (!(await chooseAction(page, name === "clear" ? /^Clear/ : "Mark all done"))) continue;
        const isClear = name === "clear";
        change(
          isClear ? "cleared" : "done",
          shown.filter((one) => model.get(one) === isClear),
        );
      } else if (name === "undo") {
        const said = await pressKeys(page, UNDO);
        log.push(`(${said})`);
        const step = tab.done.pop();
        expect([said === undefined, said]).toEqual([step === undefined, said]);
        if (step === undefined) continue;
        const undone = takeBack(model, step);
        if (undone.targets.length > 0) tab.undone.push(undone);
        const isUndone = said === `Undone: ${describeStep(undone)}`;
        expect([isUndone, said]).toEqual([undone.targets.length > 0, said]);
      } else if (name === "redo") {
        const said = await pressKeys(page, REDO);
        log.push(`(${said})`);
        const step = tab.undone.pop();
        expect([said === undefined, said]).toEqual([step === undefined, said]);
        if (step === undefined) continue;
        const redone = toRedo(model, step);
        apply(model, redone);
        if (redone.targets.length > 0) tab.done.push(redone);
      } else if (name === "dismiss") {
        const offered = await page.evaluate(() => document.querySelector("#undo span")?.textContent);
        await page.evaluate(() => document.querySelector<HTMLElement>("#undo [aria-label=Dismiss]")?.click());
        const last = tab.done.at(-1);
        if (last !== undefined && isDeletion(last) && offered === describeStep(last)) forget(tab, last);
      } else if (name === "close" || name === "reload") {
        if (isOffline || name === "close") await closeTab(page);
        else await page.reload();
        await setOffline(false);
        if (page.isClosed()) tab.page = await openTab();
        tab.done = [];
        tab.undone = [];
      } else if (name === "offline") await setOffline(!isOffline);
      else if (name === "restart") {
        await service[Symbol.asyncDispose]();
        service = start(store, port);
      } else if (name === "other") {
        if (tabs.length === 1 && !isOffline) tabs.push({ page: await openTab(), done: [], undone: [] });
        current = tabs.length - 1 - current;
      }
    }

    const pages = tabs.map(({ page }) => page);
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
    expect(await last.getByRole("alert").count()).toBe(0);
    await service[Symbol.asyncDispose]();
  }
});

function toShown(todo: unknown): string {
  if (typeof todo !== "object" || todo === null || !("title" in todo) || !("done" in todo))
    throw new TypeError("not a to-do");
  return todo.done ? `(${todo.title})` : String(todo.title);
}
