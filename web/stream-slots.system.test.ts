import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import type { Browser } from "playwright-core";
import { launchBrowser, whyNoBrowser } from "../test/chromium.ts";
import { SHOW_ALL } from "../test/page.ts";
import { skipFor } from "../test/skip.ts";
import { createStore, expectTitles, start, untilStored } from "../test/todos-page.ts";

const NOTICE = "Too many windows show this list";

describe.skipIf(skipFor(whyNoBrowser))("to-dos page", () => {
  let browser: Browser;
  beforeAll(async () => {
    browser = await launchBrowser();
  });
  afterAll(() => browser?.close());

  test("works in seven windows over HTTP/1.1, and shows which windows are not updated", async () => {
    const store = await createStore(["one"]);
    await using service = start(store);
    const context = await browser.newContext();
    await context.addInitScript(SHOW_ALL);
    context.setDefaultTimeout(60_000);
    const pages = [];
    for (let count = 1; count <= 7; count++) {
      const page = await context.newPage();
      await page.goto(service.url);
      await expectTitles(page, ["one"]);
      if (count > 5) await page.getByText(NOTICE).waitFor();
      pages.push(page);
    }
    const [first, second, , , , sixth, seventh] = pages;
    if (first === undefined || second === undefined || sixth === undefined || seventh === undefined)
      throw new Error("there are not seven windows");
    expect(await first.getByText(NOTICE).count()).toBe(0);
    await first.getByRole("checkbox", { name: "one" }).check();
    await untilStored(store, [{ id: 1, title: "one", done: true }]);
    await expectTitles(second, ["(one)"]);
    await seventh.getByLabel("New to-do").fill("two");
    await seventh.keyboard.press("Enter");
    await expectTitles(first, ["(one)", "two"]);
    expect(await sixth.getByText(NOTICE).isVisible()).toBe(true);
    // The windows that wait continue when others close.
    await first.close();
    await second.close();
    for (const page of [sixth, seventh]) {
      await page.getByText(NOTICE).waitFor({ state: "detached" });
      await expectTitles(page, ["(one)", "two"]);
    }
    await store.insert("three");
    await expectTitles(seventh, ["(one)", "two", "three"]);
    await context.close();
  });
});
