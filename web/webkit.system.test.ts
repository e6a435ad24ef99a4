import { afterAll, beforeAll, describe, test } from "bun:test";
import { KEYS } from "../test/firefox.ts";
import { KEEP_STATUS } from "../test/page.ts";
import { skipFor } from "../test/skip.ts";
import { createStore, numbered, start, TITLES, untilStored } from "../test/todos-page.ts";
import { until } from "../test/until.ts";
import { launchWebkit, type WebkitPage, whyNoWebkit } from "../test/webkit.ts";

const READ_TITLES = `return ${TITLES}`;

/** A driver cannot click a row that moves. */
const READ_MOVING = "return document.getAnimations().length";

async function untilShown(page: WebkitPage, titles: readonly string[]): Promise<void> {
  await until(async () => (await page.run(READ_TITLES)) === titles.join(), `${titles} are shown`);
  await until(async () => (await page.run(READ_MOVING)) === 0, "no row moves");
}

describe.skipIf(skipFor(whyNoWebkit))("to-dos page in WebKitGTK", () => {
  let webkit: Awaited<ReturnType<typeof launchWebkit>>;
  beforeAll(async () => {
    webkit = await launchWebkit();
  }, 90_000);
  afterAll(() => webkit?.[Symbol.asyncDispose]());

  test("adds, completes, deletes and restores to-dos", async () => {
    const store = await createStore(["one", "two"]);
    await using service = start(store);
    const page = await webkit.open(service.url);
    await page.run(KEEP_STATUS);
    await untilShown(page, ["two", "one"]);
    await page.click("#title");
    await page.type(`three${KEYS.Enter}`);
    await untilShown(page, ["three", "two", "one"]);
    await page.click(".todo input");
    await untilShown(page, ["two", "one"]);
    await page.click("[aria-label='Delete: one']");
    await untilShown(page, ["two"]);
    await page.click("#undo button");
    await untilShown(page, ["two", "one"]);
    await page.click("[aria-label='Delete: two']");
    await page.click("#undo [aria-label=Dismiss]");
    await untilStored(store, ["1 one", "3 (three)"]);
  });

  test("shows the changes of other clients, and searches", async () => {
    const store = await createStore(numbered(10));
    await using service = start(store);
    const page = await webkit.open(service.url);
    await until(
      async () => (await page.run("return document.title")) === "10 open · To-dos",
      "the list is shown",
    );
    await store.insert("Éclair");
    await until(
      async () => (await page.run("return document.title")) === "11 open · To-dos",
      "the new to-do is shown",
    );
    await page.type("/ecl");
    await untilShown(page, ["Éclair"]);
    await page.type(KEYS.Escape);
    await until(
      async () => String(await page.run(READ_TITLES)).split(",").length === 11,
      "the search is cleared",
    );
    await until(async () => (await page.run("return location.search")) === "", "the address has no search");
  });
});
