import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import type { Browser, Page } from "playwright-core";
import { launchBrowser, openWithoutCookies, whyNoBrowser } from "../test/chromium.ts";
import { openWindow } from "../test/page.ts";
import { skipFor } from "../test/skip.ts";
import { createStore, expectTitles, start, untilStored } from "../test/todos-page.ts";
import { until } from "../test/until.ts";

const ADDED = [
  { id: 1, title: "one", done: false },
  { id: 2, title: "two", done: false },
];

async function add(page: Page, title: string): Promise<void> {
  await page.getByLabel("New to-do").fill(title);
  await page.keyboard.press("Enter");
}

describe.skipIf(skipFor(whyNoBrowser))("to-dos page", () => {
  let browser: Browser;
  beforeAll(async () => {
    browser = await launchBrowser();
  });
  afterAll(() => browser?.close());

  test("sends changes of both windows while the disk is full, and keeps what it cannot send", async () => {
    const store = await createStore(["one"]);
    await using service = start(store);
    await using window = await openWindow(browser, service.url);
    const { page } = window;
    const other = await page.context().newPage();
    await other.goto(service.url);
    for (const one of [page, other]) {
      await expectTitles(one, ["one"]);
      await until(
        () => one.evaluate<boolean>("navigator.locks.query().then(({ held }) => held.length > 2)"),
        "a window sends",
      );
    }
    const devTools = await page.context().newCDPSession(page);
    await devTools.send("Storage.overrideQuotaForOrigin", { origin: service.url, quotaSize: 1 });
    await add(page, "two");
    await untilStored(store, ADDED);
    await add(other, "three");
    await untilStored(store, [...ADDED, { id: 3, title: "three", done: false }]);
    await page.context().setOffline(true);
    await add(page, "four");
    await add(page, "five");
    await page.getByText("Offline. 2 changes will be sent later.").waitFor();
    await expectTitles(page, ["one", "two", "three", "four", "five"]);
    await page.context().setOffline(false);
    await untilStored(store, [
      ...ADDED,
      { id: 3, title: "three", done: false },
      { id: 4, title: "four", done: false },
      { id: 5, title: "five", done: false },
    ]);
    await expectTitles(page, ["one", "two", "three", "four", "five"]);
    expect(window.faults).toEqual([]);
  });

  test.each([
    "IDBFactory.prototype.open = () => { throw new DOMException('', 'SecurityError') }",
    "Object.defineProperty(globalThis, 'indexedDB', { value: null })",
    "IDBFactory.prototype.open = () => ({})",
  ])("sends the changes of each window without a database: %s", async (content) => {
    const store = await createStore(["one"]);
    await using service = start(store);
    await using window = await openWindow(browser, service.url);
    const context = window.page.context();
    await context.addInitScript({ content });
    await window.page.reload();
    const other = await context.newPage();
    await other.goto(service.url);
    await add(window.page, "two");
    await untilStored(store, ADDED);
    await add(other, "three");
    await untilStored(store, [...ADDED, { id: 3, title: "three", done: false }]);
    await expectTitles(other, ["one", "two", "three"]);
    expect(window.faults).toEqual([]);
  });

  test("loads the list and sends changes in a browser that blocks cookies", async () => {
    const store = await createStore(["one"]);
    await using service = start(store);
    await using blocked = await openWithoutCookies(service.url);
    const { page } = blocked;
    expect(await page.evaluate("navigator.locks.query().catch(({ name }) => name)")).toBe("SecurityError");
    await expectTitles(page, ["one"]);
    await add(page, "two");
    await untilStored(store, ADDED);
    await expectTitles(page, ["two", "one"]);
  });
});
