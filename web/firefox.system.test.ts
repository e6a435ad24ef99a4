import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import axe from "axe-core";
import { type FirefoxPage, KEYS, launchFirefox, whyNoFirefox } from "../test/firefox.ts";
import { KEEP_STATUS } from "../test/page.ts";
import { skipFor } from "../test/skip.ts";
import { createStore, start, storedTodos, untilStored } from "../test/todos-page.ts";
import { until } from "../test/until.ts";

const TITLES = `[...document.querySelectorAll(".todo")].map((row) =>
  row.querySelector("input").checked ? "(" + row.textContent + ")" : row.textContent).join()`;
const FOCUSED = `document.activeElement.closest("label")?.textContent ?? document.activeElement.id`;

const untilShown = (page: FirefoxPage, titles: readonly string[]): Promise<void> =>
  until(async () => (await page.evaluate(TITLES)) === titles.join(), `${titles} are shown`);

describe.skipIf(skipFor(whyNoFirefox))("to-dos page in Firefox", () => {
  let firefox: Awaited<ReturnType<typeof launchFirefox>>;
  beforeAll(async () => {
    firefox = await launchFirefox();
  }, 90_000);
  afterAll(() => firefox?.[Symbol.asyncDispose]());

  test("adds, completes, deletes and restores to-dos with the keyboard", async () => {
    const store = await createStore(["one", "two"]);
    await using service = start(store);
    const page = await firefox.open(service.url);
    await page.evaluate(`${KEEP_STATUS}; true`);
    await untilShown(page, ["one", "two"]);
    await page.type("n");
    expect(await page.evaluate(FOCUSED)).toBe("title");
    await page.type(`three${KEYS.Enter}`);
    await untilShown(page, ["one", "two", "three"]);
    await until(
      async () => (await page.evaluate("document.querySelector('#title').value")) === "",
      "the field is empty",
    );
    await page.type(KEYS.ArrowDown);
    expect(await page.evaluate(FOCUSED)).toBe("one");
    await page.type(` ${KEYS.ArrowDown}${KEYS.Delete}`);
    await untilShown(page, ["(one)", "three"]);
    await page.pressWithControl("z");
    await untilShown(page, ["(one)", "two", "three"]);
    expect(await page.evaluate(FOCUSED)).toBe("two");
    await page.type(KEYS.Delete);
    await untilShown(page, ["(one)", "three"]);
    await page.evaluate("document.querySelector('#status .dismiss').click()");
    await untilStored(store, [
      { id: 1, title: "one", done: true },
      { id: 3, title: "three", done: false },
    ]);
    await page.evaluate(`${axe.source}; true`);
    const violations = await page.evaluate(
      "axe.run().then(({ violations }) => violations.map(({ id }) => id).join())",
    );
    expect(violations).toBe("");
    await page.close();
  });

  test("shows the changes of other clients, and searches", async () => {
    const store = await createStore(Array.from({ length: 10 }, (_, index) => `to-do ${index + 1}`));
    await using service = start(store);
    const page = await firefox.open(service.url);
    await store.insert("Éclair");
    await until(
      async () => (await page.evaluate("document.title")) === "11 open · To-dos",
      "the new to-do is shown",
    );
    await page.type("/ecl");
    await untilShown(page, ["Éclair"]);
    await page.type(KEYS.Escape);
    await until(
      async () => String(await page.evaluate(TITLES)).split(",").length === 11,
      "the search is cleared",
    );
    await page.close();
  });

  test("sends a deletion when the user leaves the page", async () => {
    const store = await createStore(["one", "two"]);
    await using service = start(store);
    const page = await firefox.open(service.url);
    await untilShown(page, ["one", "two"]);
    await page.evaluate("document.querySelector('.todo button').click()");
    await untilShown(page, ["two"]);
    await page.evaluate("void setTimeout(() => location.assign('/api/openapi.json'))");
    await until(async () => (await storedTodos(store)).length === 1, "the deletion is stored");
  });
});
