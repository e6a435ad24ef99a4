import { expect } from "bun:test";
import type { BrowserContextOptions, Page, Route } from "playwright-core";
import { listen } from "../src/http/listener/listen.ts";
import { createService, type ServiceOptions } from "../src/http/service.ts";
import { type MemoryOptions, openMemory } from "../src/storage/memory/store.ts";
import type { TodoStore } from "../src/todo.ts";
import { freePort } from "./free-port.ts";
import { useChromium } from "./page.ts";
import { until } from "./until.ts";

/** Longer than a busy machine needs. */
const PATIENCE_MS = 60_000;

/** Starts a service, by default one that only this machine can reach. */
export function start(
  store: TodoStore,
  port = 0,
  options: Partial<ServiceOptions> = { network: { onLoopback: true } },
) {
  const listener = listen(createService({ store, ...options }), { host: "127.0.0.1", port });
  return {
    store,
    url: listener.url,
    port: Number(new URL(listener.url).port),
    [Symbol.asyncDispose]: () => listener.abort(),
  };
}

/** Returns a store with these titles. Those in parentheses are done. */
export async function createStore(titles: readonly string[], options: MemoryOptions = {}) {
  const store = openMemory(options);
  for (const [index, title] of titles.entries()) {
    await store.insert(title.replace(/^\((.*)\)$/s, "$1"));
    if (isDone(title)) await store.setDone(BigInt(index + 1), true);
  }
  return store;
}

export function useTodosPage(...settings: Parameters<typeof useChromium>) {
  const chromium = useChromium(...settings);
  /** Serves a store, or a new one with these titles, at an address that another service can have later. */
  const serve = async (list: TodoStore | readonly string[]) => {
    const store = "insert" in list ? list : await createStore(list);
    return { store, service: chromium.use(start(store, await freePort())) };
  };
  const openList = async (
    list: TodoStore | readonly string[],
    path = "",
    options: BrowserContextOptions = {},
  ) => {
    const served = await serve(list);
    const window = await chromium.open(`${served.service.url}/${path}`, options);
    await window.page.locator('#todos[aria-busy="false"]').waitFor({ state: "attached" });
    return { ...window, ...served };
  };
  /** Serves titles and opens them in a page that is prepared first, and whose clock the test moves. */
  const openWithClock = async (
    titles: readonly string[],
    prepare = async (_page: Page): Promise<unknown> => undefined,
  ) => {
    const served = await serve(titles);
    const { page } = await chromium.open("about:blank");
    await prepare(page);
    await page.clock.install();
    await page.goto(served.service.url);
    await page.locator('#todos[aria-busy="false"]').waitFor({ state: "attached" });
    return { page, ...served };
  };
  return { ...chromium, openList, openWithClock };
}

export async function openBeside(page: Page, url: string): Promise<Page> {
  const other = await page.context().newPage();
  await other.goto(url);
  return other;
}

/** Returns the titles on the page in order, with those of done to-dos in parentheses. */
export const visibleTitles = (page: Page): Promise<string[]> =>
  page.$$eval(".todo", (rows) =>
    rows.map((row) => {
      const title = row.querySelector(".title")?.textContent ?? "";
      return row.querySelector("input")?.checked ? `(${title})` : title;
    }),
  );

/** An expression for browsers without Playwright: the same titles, joined by commas. */
export const TITLES = `[...document.querySelectorAll(".todo")].map((row) =>
  row.querySelector("input").checked ? "(" + row.textContent + ")" : row.textContent).join()`;

/** Returns no titles while the page loads. */
const loadedTitles = (page: Page): Promise<string[]> =>
  visibleTitles(page).catch((error) => {
    if (String(error).includes("context was destroyed")) return [];
    throw error;
  });

const isDone = (title: string): boolean => title.startsWith("(");

/** Waits until the page shows exactly these titles, the done ones last. */
export async function expectTitles(page: Page, titles: readonly string[]): Promise<void> {
  const deadline = performance.now() + PATIENCE_MS;
  const expected = titles.toSorted((a, b) => Number(isDone(a)) - Number(isDone(b)));
  while (JSON.stringify(await loadedTitles(page)) !== JSON.stringify(expected)) {
    if (performance.now() > deadline) expect(await visibleTitles(page)).toEqual(expected);
    await Bun.sleep(10);
  }
}

export async function add(page: Page, title: string): Promise<void> {
  await page.getByLabel("New to-do").fill(title);
  await page.keyboard.press("Enter");
}

/** Pastes lines into the field of the new to-do, without the system's clipboard. */
export const paste = (page: Page, text: string): Promise<void> =>
  page.evaluate(`{
    const clipboardData = new DataTransfer();
    clipboardData.setData("text/plain", ${JSON.stringify(text)});
    const paste = new ClipboardEvent("paste", { clipboardData, bubbles: true, cancelable: true });
    const field = document.querySelector("#title");
    field.focus();
    field.dispatchEvent(paste);
  }`);

export async function pasteLines(page: Page, text: string): Promise<void> {
  await paste(page, text);
  await page.locator("#paste-submit").click();
}

export const press = async (page: Page, ...keys: readonly string[]): Promise<void> => {
  for (const key of keys) await page.keyboard.press(key);
};

export const numbered = (count: number): string[] =>
  Array.from({ length: count }, (_, index) => `to-do ${index + 1}`);

interface StoredTodo {
  readonly id: number;
  readonly title: string;
  readonly done: boolean;
}

export const storedTodos = async (store: TodoStore): Promise<StoredTodo[]> => {
  const { json } = await store.list({});
  const isOnePiece = json instanceof Uint8Array || json instanceof Blob;
  return JSON.parse(
    await new Response(isOnePiece ? json : Buffer.concat(await Array.fromAsync(json))).text(),
  );
};

export const storedTitles = async (store: TodoStore): Promise<string[]> =>
  (await storedTodos(store)).map(({ id, title, done }) => `${id} ${done ? `(${title})` : title}`);

/** Waits until the store has exactly these to-dos, such as “1 milk” and “2 (bread)”. */
export const untilStored = (store: TodoStore, todos: readonly string[]): Promise<void> =>
  until(async () => Bun.deepEquals(await storedTitles(store), todos), `${todos.join(", ")} are stored`);

export const untilChanges = (page: Page, count: number): Promise<void> =>
  until(async () => (await page.evaluate(COUNT_CHANGES)) === count, `${count} changes are stored`);

const COUNT_CHANGES = `Object.keys(localStorage).filter((key) => key.startsWith("todo-service.change.")).length`;

export const reject = (
  route: Route,
  problem: {
    readonly title: string;
    readonly status: number;
    readonly code: string;
    readonly detail?: string;
  },
  headers: Readonly<Record<string, string>> = {},
): Promise<void> =>
  route.fulfill({
    ...{ status: problem.status, contentType: "application/problem+json", headers },
    body: JSON.stringify(problem),
  });

/** Returns the accessible name or the id of the focused element. */
export const focusedName = (page: Page): Promise<string> =>
  page.evaluate(`(() => {
    const element = document.activeElement;
    return element?.ariaLabel ?? element?.closest("label")?.textContent ?? element?.id ?? "";
  })()`);

/** Sends the change that can still be undone, and all before it. */
export const dismiss = (page: Page): Promise<void> =>
  page.locator("#undo").getByRole("button", { name: "Dismiss" }).click();

/** Chooses an action from the menu of the list, with the keyboard. Returns false if the menu does not have it. */
export async function chooseAction(page: Page, name: string | RegExp): Promise<boolean> {
  // The actions appear with the list.
  await page.locator('#todos[aria-busy="false"]').waitFor({ state: "attached" });
  await page.getByRole("button", { name: "List actions" }).press("Enter");
  await page.locator("#menu").waitFor();
  const action = page.locator("#menu").getByRole("button", { name });
  const isThere = await action.isVisible();
  if (isThere) await action.press("Enter");
  else await page.keyboard.press("Escape");
  return isThere;
}

/** Closes a page as a user does. Playwright's `page.close()` alone does not wait for the page's own handlers. */
export async function closeTab(page: Page): Promise<void> {
  // Chromium waits for them half a second only, so the page must have nothing else to do.
  await page.evaluate("scheduler.postTask(() => {}, { priority: 'background' })");
  const closed = page.waitForEvent("close");
  await page.close({ runBeforeUnload: true });
  await closed;
}
