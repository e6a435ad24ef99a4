import { describe, expect, test } from "bun:test";
import type { Page } from "playwright-core";
import type { TodoStore } from "../src/todo.ts";
import { whyNoBrowser } from "../test/chromium.ts";
import { skipFor } from "../test/skip.ts";
import { storeWith } from "../test/store.ts";
import {
  add,
  chooseAction,
  closeTab,
  createStore,
  dismiss,
  expectTitles,
  pasteLines,
  start,
  storedTitles,
  untilChanges,
  untilStored,
  useTodosPage,
} from "../test/todos-page.ts";
import { until } from "../test/until.ts";

const deleteOne = (page: Page): Promise<void> =>
  page.getByRole("button", { name: "Delete: one" }).press("Enter");

/** Lets the service tick a to-do and another device reopen it before the page loses the answer. */
const reopenAndLoseAnswer = (page: Page, store: TodoStore): Promise<unknown> =>
  page.route(
    "**/api/todos/1",
    async (route) => {
      await route.fetch();
      await store.setDone(1n, false);
      await route.abort("connectionreset");
    },
    { times: 1 },
  );

describe.skipIf(skipFor(whyNoBrowser))("to-dos page", () => {
  const { open, openList, use } = useTodosPage();

  /** Opens two windows of one browser. The first one sends the changes of both. */
  const openTwo = async () => {
    const { page: first, store, service } = await openList(["one", "two"]);
    const second = await first.context().newPage();
    // As if more time passes than a deletion waits.
    await first.clock.setSystemTime(Date.now() + 3600_000);
    await second.goto(service.url);
    await expectTitles(second, ["one", "two"]);
    return { first, second, store };
  };

  test("does not repeat a tick whose request arrived while the page closed, if another device reopens the to-do", async () => {
    const store = await createStore(["one"]);
    const closed = Promise.withResolvers<void>();
    let requests = 0;
    const setDone = async (id: bigint, done: boolean) => {
      requests++;
      const answer = await store.setDone(id, done);
      await closed.promise;
      return answer;
    };
    const { page, service } = await openList(storeWith({ setDone }, store));
    const context = page.context();
    await page.getByRole("checkbox", { name: "one" }).press("Space");
    await untilStored(store, ["1 (one)"]);
    await closeTab(page);
    closed.resolve();
    await store.setDone(1n, false);
    const next = await context.newPage();
    await next.goto(service.url);
    await expectTitles(next, ["one"]);
    await untilChanges(next, 0);
    expect(await storedTitles(store)).toEqual(["1 one"]);
    expect(requests).toBe(1);
  });

  test("does not repeat ticks with an answer while others of the same change have none when the page closes", async () => {
    const { page, store, service } = await openList(["one", "two"]);
    const context = page.context();
    await page.route("**/api/todos/2", () => {});
    await chooseAction(page, "Mark all done");
    await untilStored(store, ["1 (one)", "2 two"]);
    await store.setDone(1n, false);
    await expectTitles(page, ["(one)", "(two)"]);
    await closeTab(page);
    const next = await context.newPage();
    await next.goto(service.url);
    await untilStored(store, ["1 one", "2 (two)"]);
    await untilChanges(next, 0);
    expect(await storedTitles(store)).toEqual(["1 one", "2 (two)"]);
  });

  test("does not tick a pasted to-do again that another device reopens, if the answer is lost", async () => {
    const { page, store } = await openList([]);
    await reopenAndLoseAnswer(page, store);
    await pasteLines(page, "[x] one\n[ ] two");
    await untilChanges(page, 0);
    await until(async () => (await storedTitles(store)).length === 2, "both are added");
    await untilChanges(page, 0);
    expect(await storedTitles(store)).toEqual(["1 one", "2 two"]);
  });

  test("does not repeat a tick whose answer is lost, if another device reopens the to-do", async () => {
    const { page, store } = await openList(["one"]);
    await reopenAndLoseAnswer(page, store);
    const request = page.waitForRequest(/todos.1/);
    await page.getByRole("checkbox", { name: "one" }).press("Space");
    await request;
    await expectTitles(page, ["one"]);
    await untilChanges(page, 0);
    expect(await storedTitles(store)).toEqual(["1 one"]);
  });

  test("sends the last of three changes to a to-do if the answer to the first one is lost", async () => {
    const { page, store } = await openList(["one"]);
    const changed = Promise.withResolvers<void>();
    const values: boolean[] = [];
    await page.route("**/api/todos/1", async (route) => {
      values.push(route.request().postDataJSON().done);
      if (values.length > 1) return route.continue();
      await route.fetch();
      await changed.promise;
      await route.abort("connectionreset");
    });
    const checkbox = page.getByRole("checkbox", { name: "one" });
    for (const titles of [["(one)"], ["one"], ["(one)"], ["one"]]) {
      await checkbox.press("Space");
      await expectTitles(page, titles);
    }
    changed.resolve();
    await untilChanges(page, 0);
    expect(values).toEqual([true, false]);
    expect(await storedTitles(store)).toEqual(["1 one"]);
  });

  test("deletes a to-do although another window ticks it before the deletion is sent", async () => {
    const { first, second, store } = await openTwo();
    await deleteOne(second);
    await expectTitles(second, ["two"]);
    await first.getByRole("checkbox", { name: "one" }).press("Space");
    await untilStored(store, ["1 (one)", "2 two"]);
    await expectTitles(second, ["two"]);
    await dismiss(second);
    await untilStored(store, ["2 two"]);
    await expectTitles(first, ["two"]);
  });

  test("sends the last of several ticks although the list lacks the first one, which was answered", async () => {
    const store = await createStore(["one"]);
    const service = use(start(store));
    const { page } = await open("about:blank");
    await page.route("**/api/events*", (route) => route.abort());
    await page.goto(service.url);
    await expectTitles(page, ["one"]);
    await page.route("**/api/todos?limit=500", (route) => route.abort());
    const checkbox = page.getByRole("checkbox", { name: "one" });
    await checkbox.press("Space");
    await untilStored(store, ["1 (one)"]);
    await untilChanges(page, 0);
    await page.context().setOffline(true);
    for (const titles of [["one"], ["(one)"], ["one"]]) {
      await checkbox.press("Space");
      await expectTitles(page, titles);
    }
    await page.unroute("**/api/todos?limit=500");
    await page.context().setOffline(false);
    await untilStored(store, ["1 one"]);
  });

  test("sends changes in the order of the clicks although the clock was set back", async () => {
    const { page: first, store, service } = await openList([]);
    const context = first.context();
    await first.clock.setSystemTime(Date.now() + 3600_000);
    await context.route(/api.todos/, (route) =>
      route.request().method() === "GET" ? route.continue() : route.abort(),
    );
    await add(first, "one");
    await untilChanges(first, 1);
    await closeTab(first);
    const page = await context.newPage();
    await page.clock.setSystemTime(Date.now());
    await page.goto(service.url);
    await page.getByRole("checkbox", { name: "one" }).press("Space");
    await untilChanges(page, 2);
    await page.reload();
    await expectTitles(page, ["(one)"]);
    await context.unroute(/api.todos/);
    await untilStored(store, ["1 (one)"]);
  });

  test("forgets a failure when another window has sent the changes", async () => {
    const { first, store } = await openTwo();
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

  test("keeps a change that the service does not accept over HTTP", async () => {
    const { page, store, service } = await openList(["one"]);
    const context = page.context();
    const problem = { title: "HTTPS required", status: 403, code: "https_required", detail: "Use HTTPS." };
    await page.route("**/api/todos/1", (route) =>
      route.fulfill({ status: 403, contentType: "application/problem+json", body: JSON.stringify(problem) }),
    );
    await page.getByRole("checkbox", { name: "one" }).press("Space");
    await page.getByText("This list is private. Use HTTPS.").waitFor();
    await closeTab(page);
    await (await context.newPage()).goto(service.url);
    await untilStored(store, ["1 (one)"]);
  });
});
