import { describe, expect, test } from "bun:test";
import type { Page } from "playwright-core";
import type { TodoStore } from "../src/todo.ts";
import { openWithoutCookies, whyNoBrowser } from "../test/chromium.ts";
import { skipFor } from "../test/skip.ts";
import { storeWith } from "../test/store.ts";
import {
  add,
  chooseAction,
  closeTab,
  createStore,
  dismiss,
  expectTitles,
  focusedName,
  pasteLines,
  reject,
  start,
  storedTitles,
  storedTodos,
  untilChanges,
  untilStored,
  useTodosPage,
} from "../test/todos-page.ts";
import { until } from "../test/until.ts";

const HOUR_MS = 3600_000;

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
  const { openList, use } = useTodosPage();

  test("can be changed while offline, says so at once, and sends the changes when online", async () => {
    const { page, store } = await openList(["one", "two"]);
    const top = () => page.locator(".todo").first().boundingBox();
    const before = await top();
    await page.context().setOffline(true);
    await page.getByText("Offline. Changes made elsewhere will appear later.").waitFor();
    expect(await top()).toEqual(before);
    await page.getByRole("checkbox", { name: "one" }).press("Space");
    await add(page, "three");
    await page.getByRole("button", { name: "Delete: two" }).press("Enter");
    await expectTitles(page, ["(one)", "three"]);
    await page.getByText("Offline. 3 changes will be sent later.").waitFor();
    await dismiss(page);
    await page.context().setOffline(false);
    await untilStored(store, ["1 (one)", "3 three"]);
    await page.waitForFunction(() => document.querySelector("#notice")?.textContent === "");
    await untilChanges(page, 0);
    await expectTitles(page, ["(one)", "three"]);
  });

  test.each(["close", "crash"] as const)("keeps offline changes through a %s of the page", async (end) => {
    const { page: first, store, service } = await openList(["one", "two"]);
    const context = first.context();
    await expectTitles(first, ["one", "two"]);
    await context.setOffline(true);
    await first.getByRole("checkbox", { name: "one" }).press("Space");
    await first.getByRole("button", { name: "Delete: two" }).press("Enter");
    await add(first, "three");
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

  test("ticks pasted to-dos although the page closes after the service has created the first", async () => {
    const { page: first, store, service } = await openList(["one"]);
    let created = 0;
    await first.route("**/api/todos", (route) =>
      route.request().method() === "POST" && ++created > 1 ? route.abort() : route.continue(),
    );
    await pasteLines(first, "[x] two\n[x] three");
    await until(() => created > 1, "the page tries to create the second");
    await closeTab(first);
    const page = await first.context().newPage();
    await page.goto(service.url);
    await untilStored(store, ["1 one", "2 (two)", "3 (three)"]);
    await untilChanges(page, 0);
  });

  test("sends no change of another user when the page closes before it knows who is signed in", async () => {
    const { page: first, store, service } = await openList(["one"]);
    const context = first.context();
    await context.setOffline(true);
    await first.getByRole("checkbox", { name: "one" }).press("Space");
    await untilChanges(first, 1);
    // As in private mode, where a user has made it.
    await first.evaluate(() => {
      for (const [name, text] of Object.entries<string>(localStorage))
        if (name.includes("change."))
          localStorage.setItem(name, JSON.stringify({ ...JSON.parse(text), owner: "user ada" }));
    });
    await closeTab(first);
    await context.setOffline(false);
    const page = await context.newPage();
    await page.addInitScript("navigator.locks.request = () => new Promise(() => {})");
    await page.goto(service.url);
    await expectTitles(page, ["(one)"]);
    await closeTab(page);
    const last = await context.newPage();
    await last.addInitScript("navigator.locks.request = () => new Promise(() => {})");
    await last.goto(service.url);
    await untilChanges(last, 1);
    expect(await storedTitles(store)).toEqual(["1 one"]);
  });

  test("does not repeat a tick that may have arrived when the page closes", async () => {
    const store = await createStore(["one", "two"]);
    let isAnswerLost = false;
    const { page } = await openList(
      storeWith(
        {
          setDone: async (id, done) => {
            await store.setDone(id, done);
            isAnswerLost = true;
            throw new Error("the answer is lost");
          },
          // So the page cannot find out whether the tick has arrived.
          list: (query) => (isAnswerLost ? new Promise(() => {}) : store.list(query)),
        },
        store,
      ),
    );
    const retry = page.waitForRequest(/limit=1$/);
    await page.getByRole("checkbox", { name: "one" }).press("Space");
    await retry;
    await store.setDone(1n, false);
    await page.getByRole("button", { name: "Delete: two" }).press("Enter");
    await closeTab(page);
    await untilStored(store, ["1 one"]);
  });

  test("says that it waits for a request without an answer, and keeps the tick if it closes", async () => {
    const { page: first, store, service } = await openList(["one"]);
    const context = first.context();
    await expectTitles(first, ["one"]);
    // A dead zone: no request gets an answer, and the browser reports nothing.
    await context.route(/api/, () => {});
    const request = first.waitForRequest(/api.todos/);
    await first.getByRole("checkbox", { name: "one" }).press("Space");
    await request;
    await first.getByText("Offline. 1 change will be sent later.").waitFor();
    await expectTitles(first, ["(one)"]);
    await closeTab(first);
    await context.unroute(/api/);
    const page = await context.newPage();
    await page.goto(service.url);
    await untilStored(store, ["1 (one)"]);
    await expectTitles(page, ["(one)"]);
  });

  test("shows the unsent changes of another window at once, undoes its own ones only, and sends each once", async () => {
    const { page, store, service } = await openList(["one", "two"]);
    const other = await page.context().newPage();
    await other.goto(service.url);
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

  test("keeps working in another window after the one that sends has closed", async () => {
    const { page: first, store, service } = await openList(["one", "two"]);
    const page = await first.context().newPage();
    await page.goto(service.url);
    await expectTitles(page, ["one", "two"]);
    await page.getByRole("checkbox", { name: "one" }).press("Space");
    await expectTitles(first, ["(one)", "two"]);
    await closeTab(first);
    await dismiss(page);
    await untilStored(store, ["1 (one)", "2 two"]);
  });

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
    const ticked = Promise.withResolvers<void>();
    await first.route("**/api/todos/1", async (route) => {
      if (route.request().method() === "PATCH") await ticked.promise;
      await route.continue();
    });
    const request = first.waitForRequest(/todos.1/);
    await first.getByRole("checkbox", { name: "one" }).press("Space");
    await request;
    await dismiss(second);
    await expectTitles(first, ["two"]);
    ticked.resolve();
    await untilStored(store, ["2 two"]);
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
    await page.route("**/api/todos/1", (route) => reject(route, problem));
    await page.getByRole("checkbox", { name: "one" }).press("Space");
    await page.getByText("This list is private. Use HTTPS.").waitFor();
    await closeTab(page);
    await (await context.newPage()).goto(service.url);
    await untilStored(store, ["1 (one)"]);
  });

  test("sends changes of both windows while the storage is full, and keeps what it cannot send", async () => {
    const { page, store, service } = await openList(["one"]);
    const other = await page.context().newPage();
    await other.goto(service.url);
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
    await page.getByText("Offline. 2 changes will be sent later.").waitFor();
    await expectTitles(page, ["one", "two", "three", "four", "five"]);
    await page.context().setOffline(false);
    await untilStored(store, ["1 one", "2 two", "3 three", "4 four", "5 five"]);
    await expectTitles(page, ["one", "two", "three", "four", "five"]);
  });

  test("sends the changes of each window without storage", async () => {
    const { page, store, service } = await openList(["one"]);
    const context = page.context();
    await context.addInitScript(
      "Storage.prototype.setItem = () => { throw new DOMException('', 'QuotaExceededError'); };",
    );
    await page.reload();
    const other = await context.newPage();
    await other.goto(service.url);
    await add(page, "two");
    await untilStored(store, ["1 one", "2 two"]);
    await add(other, "three");
    await untilStored(store, ["1 one", "2 two", "3 three"]);
    await expectTitles(other, ["one", "two", "three"]);
  });

  test("ignores stored changes that it cannot read, and stores others as always", async () => {
    const { page } = await openList(["one"]);
    await page.evaluate(
      `for (const text of ["{", "null", "{}"]) localStorage["todo-service.change." + text] = text`,
    );
    await page.reload();
    await expectTitles(page, ["one"]);
    await page.context().setOffline(true);
    await page.getByRole("checkbox", { name: "one" }).press("Space");
    await untilChanges(page, 4);
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
