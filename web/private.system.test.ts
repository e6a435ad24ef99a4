import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import type { Browser, Page } from "playwright-core";
import { createKey, createKeyLookup } from "../src/credential/key.ts";
import type { Scope } from "../src/credential/scope.ts";
import { openMemory } from "../src/storage/memory/store.ts";
import type { TodoStore } from "../src/todo.ts";
import { launchBrowser, whyNoBrowser } from "../test/chromium.ts";
import { openWindow, type Window } from "../test/page.ts";
import { startService } from "../test/service.ts";
import { skipFor } from "../test/skip.ts";
import { expectTitles, storedTodos, untilStored } from "../test/todos-page.ts";

const TODOS = [{ id: 1, title: "mine alone", done: false }];
const TIMEOUT_MS = 180_000;

/** Starts a private service with one to-do and one API key. */
async function startPrivate(scope: Scope = "write") {
  const store = openMemory();
  const { keys } = store;
  let now = Date.now();
  const minted = await createKey(keys, "phone", 3_600_000, now, scope);
  if (minted === undefined) throw new Error("the key exists");
  await store.insert("mine alone");
  const service = startService({
    store,
    credentials: { keys, lookupClient: createKeyLookup(keys, () => now) },
    access: { privateMode: true },
    now: () => now,
  });
  return {
    ...service,
    store,
    token: minted.token,
    credentials: { httpCredentials: { username: "me", password: minted.token } },
    revoke: () => keys.delete(minted.key.id),
    expire: () => {
      now += 3_600_001;
    },
  };
}

describe.skipIf(skipFor(whyNoBrowser))("in private mode", () => {
  let browser: Browser;
  beforeAll(async () => {
    browser = await launchBrowser();
  });
  afterAll(() => browser?.close());

  const add = async (page: Page, title: string): Promise<void> => {
    await page.locator("#title").fill(title);
    await page.locator("#title").press("Enter");
  };

  test(
    "the page reads, writes and follows changes with an API key as the password",
    async () => {
      await using service = await startPrivate();
      await using window = await openWindow(browser, service.url, service.credentials);
      const { page } = window;
      await expectTitles(page, ["mine alone"]);
      await add(page, "from the page");
      await expectTitles(page, ["mine alone", "from the page"]);
      await service.store.insert("from elsewhere");
      await expectTitles(page, ["mine alone", "from the page", "from elsewhere"]);
      await page.getByRole("checkbox", { name: "mine alone" }).check();
      await untilStored(service.store, [
        { id: 1, title: "mine alone", done: true },
        { id: 2, title: "from the page", done: false },
        { id: 3, title: "from elsewhere", done: false },
      ]);
      expect(await page.locator("#notice").textContent()).toBe("");
      expect(window.faults).toEqual([]);
    },
    TIMEOUT_MS,
  );

  test(
    "the page of the API keys works if it is the first page",
    async () => {
      const store = openMemory();
      const checkUser = (user: string, password: string) => user === "admin" && password === "secret";
      await using service = startService({
        store,
        credentials: { keys: store.keys, checkUser },
        access: { privateMode: true },
      });
      const httpCredentials = { username: "admin", password: "secret" };
      await using window = await openWindow(browser, `${service.url}/admin/keys`, { httpCredentials });
      const { page } = window;
      await page.getByText("No keys yet.").waitFor();
      await page.getByLabel("Name").fill("phone");
      await page.getByRole("button", { name: "Create key" }).click();
      await page.getByText(/^todo_/).waitFor();
      expect(window.faults).toEqual([]);
    },
    TIMEOUT_MS,
  );

  /** Adds a to-do after the service stopped accepting the window's credentials. */
  async function expectRejection({ page, faults }: Window, store: TodoStore): Promise<void> {
    await add(page, "too late");
    await page
      .locator("#title-error")
      .getByText("no longer accepts your API key or password. Reload this page and enter a valid one.")
      .waitFor();
    // The event stream ends at the next check of its credentials.
    await page.locator("#notice").getByText("it was revoked, changed or has expired. Reload").waitFor();
    expect(await storedTodos(store)).toEqual(TODOS);
    expect(faults).toEqual([]);
  }

  test.each(["revoke", "expire"] as const)(
    "the page shows what to do if the service %ss its API key",
    async (change) => {
      await using service = await startPrivate();
      await using window = await openWindow(browser, service.url, service.credentials);
      await expectTitles(window.page, ["mine alone"]);
      await service[change]();
      await expectRejection(window, service.store);
    },
    TIMEOUT_MS,
  );

  test(
    "the page shows what to do if the password of its user is changed",
    async () => {
      const store = openMemory();
      await store.insert("mine alone");
      let secret = "first";
      await using service = startService({
        store,
        access: { privateMode: true },
        credentials: {
          checkUser: (user, password) => user === "me" && password === secret,
          userEntry: () => secret,
        },
      });
      const httpCredentials = { username: "me", password: "first" };
      await using window = await openWindow(browser, service.url, { httpCredentials });
      await expectTitles(window.page, ["mine alone"]);
      secret = "second";
      await expectRejection(window, store);
    },
    TIMEOUT_MS,
  );

  test(
    "the page with an API key of the scope read shows the list, and why it cannot add to-dos",
    async () => {
      await using service = await startPrivate("read");
      await using window = await openWindow(browser, service.url, service.credentials);
      const { page } = window;
      await expectTitles(page, ["mine alone"]);
      await add(page, "mine too");
      await page.locator("#title-error").getByText("This token may only read.").waitFor();
      await service.store.insert("from elsewhere");
      await expectTitles(page, ["mine alone", "from elsewhere"]);
      expect(window.faults).toEqual([]);
    },
    TIMEOUT_MS,
  );
});
