import { expect, test } from "bun:test";
import type { Page, Route } from "playwright-core";
import type { TodoStore } from "../src/todo.ts";
import { openWithoutCookies } from "../test/chromium.ts";
import { describeInChromium } from "../test/page.ts";
import {
  add,
  closeTab,
  createStore,
  expectTitles,
  focusedName,
  openBeside,
  reject,
  start,
  storedTodos,
  untilChanges,
  untilStored,
  useTodosPage,
} from "../test/todos-page.ts";
import { until } from "../test/until.ts";

const HOUR_MS = 3600_000;
const HTTPS_REQUIRED = { title: "HTTPS required", status: 403, code: "https_required", detail: "Use HTTPS." };

/** Adds “two”, which the list has before its answer arrives, then “three” elsewhere. Returns what lets the answer arrive. */
async function addUnanswered(page: Page, store: TodoStore): Promise<() => void> {
  const answer = Promise.withResolvers<void>();
  await page.route("**/api/todos", async (route) => {
    if (route.request().method() !== "POST") return route.continue();
    const response = await route.fetch();
    await answer.promise;
    await route.fulfill({ response });
  });
  await add(page, "two");
  await until(async () => (await storedTodos(store)).length === 2, "the service has “two”");
  await store.insert("three");
  await expectTitles(page, ["one", "three", "two"]);
  return answer.resolve;
}

/** Opens a page whose clock is ahead, as after a pause. */
async function openLater(page: Page, url: string, ms: number): Promise<void> {
  await page.clock.setSystemTime(Date.now() + ms);
  await page.goto(url);
}

describeInChromium("to-dos page", () => {
  const { openList, use } = useTodosPage();

  test.each(["close", "crash"] as const)("keeps offline changes through a %s of the page", async (end) => {
    const { page: first, store, service } = await openList(["one", "two"]);
    const context = first.context();
    await expectTitles(first, ["one", "two"]);
    const top = () => first.locator(".todo").first().boundingBox();
    const before = await top();
    await context.setOffline(true);
    await first.getByText("Offline. Changes made elsewhere will appear later.").waitFor();
    expect(await top()).toEqual(before);
    await first.getByRole("checkbox", { name: "one" }).press("Space");
    await first.getByRole("button", { name: "Delete: two" }).press("Enter");
    await add(first, "three");
    await first.getByText("Offline. 3 changes will be sent later.").waitFor();
    // The deletion can still be undone, so only its window knows it.
    await untilChanges(first, 2);
    if (end === "close") await closeTab(first);
    else {
      const devTools = await context.newCDPSession(first);
      const crashed = first.waitForEvent("crash");
      devTools.send("Page.crash").catch(() => {});
      await crashed;
      await first.close();
    }
    await context.setOffline(false);
    expect(await storedTodos(store)).toHaveLength(2);
    const page = await context.newPage();
    await openLater(page, service.url, 48 * HOUR_MS);
    const left = end === "close" ? [] : ["2 two"];
    await untilStored(store, ["1 (one)", ...left, "3 three"]);
    await expectTitles(page, ["(one)", ...left.map(() => "two"), "three"]);
    expect(await page.getByRole("alert").count()).toBe(0);
  });

  test.each([
    // A dead zone: no request gets an answer, and the browser reports nothing.
    ["Offline. 1 change will be sent later.", () => {}],
    ["This list is private. Use HTTPS.", (route: Route) => reject(route, HTTPS_REQUIRED)],
  ])("says “%s”, and keeps the change if it closes", async (notice, answer) => {
    const { page, store, service } = await openList(["one"]);
    const context = page.context();
    await context.route("**/api/todos/1", answer);
    await page.getByRole("checkbox", { name: "one" }).press("Space");
    await page.getByText(notice).waitFor();
    await closeTab(page);
    await context.unroute("**/api/todos/1");
    const next = await openBeside(page, service.url);
    await untilStored(store, ["1 (one)"]);
    await expectTitles(next, ["(one)"]);
  });

  test("shows the unsent changes of another window at once, undoes its own ones only, and sends each once", async () => {
    const { page, store, service } = await openList(["one", "two"]);
    const other = await openBeside(page, service.url);
    await expectTitles(other, ["one", "two"]);
    const writes: string[] = [];
    page.context().on("request", (request) => {
      if (request.method() !== "GET") writes.push(request.method());
    });
    await page.getByRole("checkbox", { name: "one" }).press("Space");
    await expectTitles(other, ["(one)", "two"]);
    await other.getByRole("button", { name: "Delete: two" }).press("Enter");
    await page.keyboard.press("ControlOrMeta+z");
    await expectTitles(other, ["one"]);
    await add(other, "three");
    await other.getByRole("checkbox", { name: "three" }).press("Space");
    // Nobody else sees a deletion while it can be undone.
    await expectTitles(page, ["one", "two", "(three)"]);
    for (let count = 0; count < 3; count++) await other.keyboard.press("ControlOrMeta+z");
    await expectTitles(page, ["one", "two"]);
    await untilStored(store, ["1 one", "2 two"]);
    await expectTitles(other, ["one", "two"]);
    expect(writes.filter((method) => method !== "PATCH").toSorted()).toEqual(["DELETE", "POST"]);
  });

  test("shows a new to-do once while its creation has no answer, and ticks it with a key held meanwhile", async () => {
    const { page, store } = await openList(["one"]);
    const release = await addUnanswered(page, store);
    await page.reload();
    await expectTitles(page, ["one", "three", "two"]);
    await page.getByRole("checkbox", { name: "two" }).focus();
    await page.keyboard.down("Space");
    release();
    await expectTitles(page, ["one", "two", "three"]);
    await store.delete(1n);
    await expectTitles(page, ["two", "three"]);
    await page.keyboard.up("Space");
    await expectTitles(page, ["(two)", "three"]);
    expect(await focusedName(page)).toBe("three");
  });

  test("moves the focus to a new to-do and ticks it after its answer and before the next frame", async () => {
    const { page, store } = await openList(["one"]);
    const release = await addUnanswered(page, store);
    await page.getByRole("checkbox", { name: "three" }).focus();
    await page.evaluate(`{
      globalThis.held = [];
      globalThis.startFrame = requestAnimationFrame;
      globalThis.requestAnimationFrame = (run) => held.push(run);
    }`);
    release();
    await until(() => page.evaluate<boolean>("held.length > 0"), "the page has the answer");
    await page.keyboard.press("ArrowDown");
    expect(await focusedName(page)).toBe("two");
    await page.keyboard.press("Space");
    await page.evaluate("globalThis.requestAnimationFrame = startFrame; for (const run of held) run()");
    await expectTitles(page, ["one", "(two)", "three"]);
    await until(async () => (await focusedName(page)) === "three", "the focus is on the next row");
    await untilStored(store, ["1 one", "2 (two)", "3 three"]);
  });

  test("forgets a failure when another window has sent the changes", async () => {
    const { page: first, store, service } = await openList(["one", "two"]);
    const second = await openBeside(first, service.url);
    await expectTitles(second, ["one", "two"]);
    await first.route("**/api/todos/1", (route) => route.abort());
    await first.getByRole("checkbox", { name: "one" }).press("Space");
    await first.getByText("Offline. 1 change will be sent later.").waitFor();
    await first.evaluate(() => dispatchEvent(new Event("online")));
    await untilStored(store, ["1 (one)", "2 two"]);
    await untilChanges(first, 0);
    await first.locator("#notice:empty").waitFor({ state: "attached" });
    // Before the answer can arrive.
    const notice = await first.getByRole("checkbox", { name: "two" }).evaluate((checkbox: HTMLElement) => {
      checkbox.click();
      return document.querySelector("#notice")?.textContent;
    });
    expect(notice).toBe("");
    await untilStored(store, ["1 (one)", "2 (two)"]);
  });

  test("sends changes of both windows while the storage is full, and keeps what it cannot send", async () => {
    const { page, store, service } = await openList(["one"]);
    const other = await openBeside(page, service.url);
    for (const one of [page, other]) {
      await expectTitles(one, ["one"]);
      await until(
        () => one.evaluate<boolean>("navigator.locks.query().then(({ held }) => held.length > 2)"),
        "a window sends",
      );
    }
    await page.evaluate(`for (let size = 2 ** 22; size > 0; size >>= 1)
      try { localStorage[size] = "x".repeat(size); } catch {}`);
    await add(page, "two");
    await untilStored(store, ["1 one", "2 two"]);
    await add(other, "three");
    await untilStored(store, ["1 one", "2 two", "3 three"]);
    await page.context().setOffline(true);
    await add(page, "four");
    await add(page, "five");
    await page.getByText("Offline. 2 changes will be sent later. Keep this page open until then.").waitFor();
    await expectTitles(page, ["one", "two", "three", "four", "five"]);
    await page.context().setOffline(false);
    await untilStored(store, ["1 one", "2 two", "3 three", "4 four", "5 five"]);
    await expectTitles(page, ["one", "two", "three", "four", "five"]);
  });

  test("loads the list and sends changes in a browser that blocks cookies", async () => {
    const store = await createStore(["one"]);
    const service = use(start(store));
    await using blocked = await openWithoutCookies(service.url);
    const { page } = blocked;
    expect(await page.evaluate("navigator.locks.query().catch(({ name }) => name)")).toBe("SecurityError");
    await expectTitles(page, ["one"]);
    await add(page, "two");
    await untilStored(store, ["1 one", "2 two"]);
    await expectTitles(page, ["two", "one"]);
  });
});
