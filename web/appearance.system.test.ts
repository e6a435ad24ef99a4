import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import type { Browser } from "playwright-core";
import { launchBrowser, whyNoBrowser } from "../test/chromium.ts";
import { openWindow } from "../test/page.ts";
import { skipFor } from "../test/skip.ts";
import { createStore, expectTitles, start } from "../test/todos-page.ts";

describe.skipIf(skipFor(whyNoBrowser))("to-dos page", () => {
  let browser: Browser;
  beforeAll(async () => {
    browser = await launchBrowser();
  });
  afterAll(() => browser?.close());

  test.each(["light", "dark"] as const)("fits windows of six widths in the %s theme", async (colorScheme) => {
    const titles = ["W".repeat(120), "many words ".repeat(10), ...Array.from("abcdefghij")];
    const store = await createStore(titles);
    for (const id of [1n, 2n]) await store.setDone(id, true);
    await using service = start(store);
    for (const path of ["/", "/?show=done", "/?q=nothing"]) {
      await using window = await openWindow(browser, service.url + path, { colorScheme });
      const { page } = window;
      await page.waitForFunction(() => document.title === "10 open · To-dos");
      expect(await page.locator(".no-script").count()).toBe(0);
      for (const width of [320, 375, 768, 1000, 1280, 1920]) {
        await page.setViewportSize({ width, height: 800 });
        const scrollWidth = await page.evaluate(() => document.documentElement.scrollWidth);
        expect([path, width, scrollWidth]).toEqual([path, width, width]);
      }
    }
  });

  test("prints every to-do", async () => {
    const titles = Array.from({ length: 300 }, (_, index) => `to-do ${index + 1}`);
    await using service = start(await createStore(titles));
    await using window = await openWindow(browser, service.url);
    const { page } = window;
    await page.waitForFunction(() => document.title.startsWith("300 "));
    await page.evaluate(() => {
      addEventListener("beforeprint", () => {
        document.documentElement.dataset.printed = String(document.querySelectorAll(".todo").length);
      });
    });
    const pdf = (await page.pdf({ format: "A4" })).toString("latin1");
    expect(await page.evaluate(() => document.documentElement.dataset.printed)).toBe("300");
    // An A4 page has room for about 20 rows.
    const pages = pdf.match(/\/Type\s*\/Page\b/g)?.length;
    expect(pages).toBeWithin(8, 25);
    expect(await page.locator(".todo").count()).toBeLessThan(150);
    expect(window.faults).toEqual([]);
  });

  test.each(["reduce", "no-preference"] as const)(
    "moves nothing if reduced motion is %s",
    async (reducedMotion) => {
      await using service = start(await createStore(["one"]));
      await using window = await openWindow(browser, service.url, { reducedMotion });
      const { page } = window;
      await page.getByLabel("New to-do").fill("two");
      await page.keyboard.press("Enter");
      await expectTitles(page, ["one", "two"]);
      const motion = await page.evaluate(() => {
        const styles = [".todo.new", ".todo .title", ".todo input"].map((selector) =>
          getComputedStyle(document.querySelector(selector) ?? document.body),
        );
        const before = getComputedStyle(document.querySelector(".todo input") ?? document.body, "::before");
        return [...styles, before].some(
          ({ animationName, transitionDuration }) =>
            animationName !== "none" || /[1-9]/.test(transitionDuration),
        );
      });
      expect(motion).toBe(reducedMotion === "no-preference");
    },
  );

  test("shows the current filter in forced colors", async () => {
    await using service = start(await createStore(["one", "two"]));
    for (const colorScheme of ["light", "dark"] as const) {
      await using window = await openWindow(browser, service.url, { forcedColors: "active", colorScheme });
      const { page } = window;
      await expectTitles(page, ["one", "two"]);
      const looks = await page.locator(".filter a, .menu button:not([hidden])").evaluateAll((all) =>
        all.map((element) => {
          const { backgroundColor, color } = getComputedStyle(element);
          return { name: element.textContent, look: `${color} on ${backgroundColor}` };
        }),
      );
      const [all, open] = looks;
      const current = looks.filter(({ look }) => look === all?.look).map(({ name }) => name);
      expect(current).toEqual(["All 2", "Oldest first"]);
      expect(open?.look).not.toBe(all?.look ?? "");
    }
  });

  test.each(["disabled", "missing", "too new"])(
    "shows a message instead of a form if its script is %s",
    async (cause) => {
      await using service = start(await createStore(["one"]));
      await using window = await openWindow(browser, "about:blank", {
        javaScriptEnabled: cause !== "disabled",
      });
      const { page } = window;
      await page.route("**/*.js", (route) =>
        cause === "missing"
          ? route.abort()
          : route.fulfill({ contentType: "text/javascript", body: "new syntax" }),
      );
      await page.goto(service.url);
      await page.locator(".no-script").waitFor();
      expect(await page.locator("form, input, button").filter({ visible: true }).count()).toBe(0);
      expect(await page.getByText("Loading…").isVisible()).toBe(false);
      await page.locator(".no-script a").click();
      expect(await page.textContent("body")).toBe('[{"id":1,"title":"one","done":false}]');
    },
  );
});
