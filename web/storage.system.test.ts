import { describe, expect, test } from "bun:test";
import { openWithoutCookies, whyNoBrowser } from "../test/chromium.ts";
import { skipFor } from "../test/skip.ts";
import {
  add,
  createStore,
  expectTitles,
  start,
  untilChanges,
  untilStored,
  useTodosPage,
} from "../test/todos-page.ts";
import { until } from "../test/until.ts";

describe.skipIf(skipFor(whyNoBrowser))("to-dos page", () => {
  const { openList, use } = useTodosPage();

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
