import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import axe from "axe-core";
import { createFixedUserCheck } from "../src/credential/user.ts";
import { openMemory } from "../src/storage/memory/store.ts";
import { KEEP_STATUS } from "../test/page.ts";
import { startPrivate } from "../test/service.ts";
import { skipFor } from "../test/skip.ts";
import { createStore, numbered, start, storedTodos, TITLES, untilStored } from "../test/todos-page.ts";
import { until } from "../test/until.ts";
import {
  type DriverPage,
  KEYS,
  launchFirefox,
  launchWebkit,
  whyNoFirefox,
  whyNoWebkit,
} from "../test/webdriver.ts";

const FOCUSED = `document.activeElement.closest("label")?.textContent ?? document.activeElement.id`;

const untilShown = (page: DriverPage, titles: readonly string[]): Promise<void> =>
  until(async () => (await page.evaluate(TITLES)) === titles.join(), `${titles} are shown`);
const untilEqual = (page: DriverPage, expression: string, value: string): Promise<void> =>
  until(async () => (await page.evaluate(expression)) === value, `${expression} is ${value}`);

const LAUNCHERS = [
  ["Firefox", whyNoFirefox, launchFirefox],
  ["WebKitGTK", whyNoWebkit, launchWebkit],
] as const;
for (const [name, whyNot, launch] of LAUNCHERS)
  describe.skipIf(skipFor(whyNot))(`in ${name}, the page of the list`, () => {
    let browser: Awaited<ReturnType<typeof launch>>;
    beforeAll(async () => {
      browser = await launch();
    }, 90_000);
    afterAll(() => browser?.[Symbol.asyncDispose]());

    test("adds, completes, deletes and restores to-dos with the keyboard", async () => {
      const store = await createStore(["one", "two"]);
      await using service = start(store);
      const page = await browser.open(service.url);
      await page.evaluate(`(() => { ${KEEP_STATUS} })()`);
      await untilShown(page, ["two", "one"]);
      await page.type("n");
      expect(await page.evaluate(FOCUSED)).toBe("title");
      await page.type(`three${KEYS.Enter}`);
      await untilShown(page, ["three", "two", "one"]);
      await untilEqual(page, "document.querySelector('#title').value", "");
      await page.type(KEYS.ArrowDown);
      expect(await page.evaluate(FOCUSED)).toBe("three");
      await page.type(" ");
      // The row of the done to-do leaves after a moment, and the next one gets the focus.
      await untilShown(page, ["two", "one"]);
      await page.type(KEYS.Delete);
      await untilShown(page, ["one"]);
      await page.type("z", KEYS.Control);
      await untilShown(page, ["two", "one"]);
      expect(await page.evaluate(FOCUSED)).toBe("two");
      await page.type(KEYS.Delete);
      await untilShown(page, ["one"]);
      await page.evaluate("document.querySelector('#undo [aria-label=Dismiss]').click()");
      await untilStored(store, ["1 one", "3 (three)"]);
    });

    test("shows the changes of other clients, and searches", async () => {
      const store = await createStore(numbered(10));
      await using service = start(store);
      const page = await browser.open(service.url);
      await untilEqual(page, "document.title", "10 open · To-dos");
      await store.insert("Éclair");
      await untilEqual(page, "document.title", "11 open · To-dos");
      await page.type("/ecl");
      await untilShown(page, ["Éclair"]);
      await page.type(KEYS.Escape);
      await untilEqual(page, `String(document.querySelectorAll(".todo").length)`, "11");
      await untilEqual(page, "location.search", "");
    });
  });

describe.skipIf(skipFor(whyNoFirefox))("in Firefox, the page", () => {
  let firefox: Awaited<ReturnType<typeof launchFirefox>>;
  beforeAll(async () => {
    firefox = await launchFirefox();
  }, 90_000);
  afterAll(() => firefox?.[Symbol.asyncDispose]());

  test("of the list is accessible, and sends a deletion when the user leaves it", async () => {
    const store = await createStore(["one", "two"]);
    await using service = start(store);
    const page = await firefox.open(service.url);
    await untilShown(page, ["two", "one"]);
    await page.evaluate(`${axe.source}; true`);
    const violations = await page.evaluate(
      "axe.run().then(({ violations }) => violations.map(({ id }) => id).join())",
    );
    expect(violations).toBe("");
    // A window without a live list would have to ask for the position first.
    await store.insert("three");
    await untilShown(page, ["three", "two", "one"]);
    await page.evaluate("document.querySelector('.todo button').click()");
    await untilShown(page, ["two", "one"]);
    await page.evaluate("void setTimeout(() => location.assign('/api/openapi.json'))");
    await until(async () => (await storedTodos(store)).length === 2, "the deletion is stored");
  });

  test("of an error loads its style sheet", async () => {
    await using service = start(await createStore([]));
    const page = await firefox.open(`${service.url}/nothing`);
    await untilEqual(page, "document.querySelector('h1')?.textContent", "Page not found");
    await untilEqual(page, "getComputedStyle(document.querySelector('.action')).display", "inline-block");
  });

  test("of the API keys creates and rotates a key, and asks before it revokes one", async () => {
    await using service = startPrivate(openMemory(), {
      credentials: { checkUser: createFixedUserCheck("admin", "secret") },
      access: { privateMode: false },
      network: { onLoopback: true },
    });
    const page = await firefox.open(`${service.url.replace("//", "//admin:secret@")}/admin/keys`);
    const untilTrue = (expression: string): Promise<void> =>
      until(async () => (await page.evaluate(expression)) === true, expression);
    const click = (selector: string) => page.evaluate(`document.querySelector('${selector}').click()`);
    const untilKeys = (count: number) =>
      untilTrue(`document.querySelectorAll("#keys tr").length === ${count}`);
    const untilToken = () => untilTrue(`document.activeElement.id === "invite-heading"`);

    await untilTrue(`document.querySelector("#placeholder").textContent === "No keys yet."`);
    await page.evaluate(`document.querySelector("#name").focus()`);
    await page.type(KEYS.Enter);
    await untilTrue(`document.querySelector("#name-error").textContent === "It must not be empty."`);
    await page.type(`ci${KEYS.Enter}`);
    await untilToken();
    await page.type(KEYS.Escape + KEYS.Escape);
    expect(await page.evaluate(`document.querySelector("#invite").open`)).toBe(true);
    await untilKeys(1);
    await click("#invite-done");
    await click('#keys [aria-label="Rotate ci"]');
    await click("#confirm-submit");
    await untilToken();
    await untilKeys(2);
    await click("#invite-done");
    await click('#keys [aria-label="Revoke ci"]');
    await page.type(KEYS.Escape);
    await untilTrue(`document.querySelector("dialog[open]") === null`);
    expect(await service.store.keys.list()).toHaveLength(2);
  }, 90_000);
});
