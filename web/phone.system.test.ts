import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import type { Browser, Page } from "playwright-core";
import { launchBrowser, whyNoBrowser } from "../test/chromium.ts";
import { accessibilityViolations, openWindow } from "../test/page.ts";
import { skipFor } from "../test/skip.ts";
import { chooseAction, createStore, expectTitles, focusedName, start } from "../test/todos-page.ts";

const PHONE = { hasTouch: true, isMobile: true } as const;

/** Returns the places of all visible elements that a finger can press, with what names them. */
const targets = (page: Page) =>
  page
    .locator("a, button, input:not([type=checkbox]), .todo label, .todo")
    .filter({ visible: true })
    .evaluateAll((all) =>
      all.map((element) => {
        const { left, right, top, bottom, width, height } = element.getBoundingClientRect();
        return { name: element.ariaLabel ?? element.textContent, left, right, top, bottom, width, height };
      }),
    );

describe.skipIf(skipFor(whyNoBrowser))("to-dos page on a phone", () => {
  let browser: Browser;
  beforeAll(async () => {
    browser = await launchBrowser();
  });
  afterAll(() => browser?.close());

  test.each([
    [320, 568],
    [390, 844],
  ])(
    "fits %d × %d pixels: one line of tools, large targets, and rows near the top",
    async (width, height) => {
      const titles = ["x".repeat(120), ...Array.from({ length: 1234 }, (_, n) => `to-do ${n}`)];
      const store = await createStore(titles);
      for (const id of [1n, 2n]) await store.setDone(id, true);
      await using service = start(store);
      await using window = await openWindow(browser, service.url, { ...PHONE, viewport: { width, height } });
      const { page } = window;
      await page.getByRole("link", { name: "All 1.2k" }).waitFor();
      const first = await page.locator(".todo").first().boundingBox();
      expect(first?.y).toBeLessThanOrEqual(150);
      const check = async (): Promise<void> => {
        expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBe(width);
        for (const target of await targets(page)) {
          expect(target.left).toBeGreaterThanOrEqual(0);
          expect(target.right).toBeLessThanOrEqual(width);
          expect([target.name, Math.min(target.width, target.height) >= 44]).toEqual([target.name, true]);
        }
        const tools = page.locator(".filter a, .search, #show-menu").filter({ visible: true });
        const bottoms = await tools.evaluateAll((all) =>
          all.map((tool) => Math.round(tool.getBoundingClientRect().bottom)),
        );
        expect(Math.max(...bottoms) - Math.min(...bottoms)).toBeLessThan(3);
        expect(await accessibilityViolations(page)).toEqual([]);
      };
      await check();
      // Safari zooms into fields with a smaller font.
      const fontSizes = await page
        .locator("input:not([type=checkbox]), textarea")
        .evaluateAll((all) => all.map((element) => Number.parseFloat(getComputedStyle(element).fontSize)));
      expect(Math.min(...fontSizes)).toBeGreaterThanOrEqual(16);
      await page.getByLabel("Search to-dos").tap();
      await page.keyboard.type("to-do 1000");
      await page.getByRole("link", { name: "All 1", exact: true }).waitFor();
      expect((await page.getByLabel("Search to-dos").boundingBox())?.width).toBeGreaterThan(120);
      await check();
      expect(window.faults).toEqual([]);
    },
  );

  test("reaches the field from below, and keeps the keyboard open while to-dos are added", async () => {
    await using service = start(await createStore(Array.from({ length: 40 }, (_, n) => `to-do ${n}`)));
    await using window = await openWindow(browser, service.url, PHONE, "");
    const { page } = window;
    await page.setViewportSize({ width: 390, height: 844 });
    await page.getByText("to-do 39").waitFor();
    await page.evaluate(() => scrollTo({ top: 900 }));
    const plus = page.getByRole("button", { name: "Add a to-do" });
    await plus.tap();
    expect(await focusedName(page)).toBe("title");
    expect(await plus.isVisible()).toBe(false);
    for (const title of ["milk", "eggs"]) {
      await page.keyboard.type(title);
      await page.getByRole("button", { name: "Add", exact: true }).tap();
      await page.locator(".todo.new").getByText(title).waitFor();
      expect(await focusedName(page)).toBe("title");
    }
    expect((await page.locator("#title").boundingBox())?.y).toBeWithin(0, 20);
    expect(window.faults).toEqual([]);
  });

  test("has the search of a short list, and the links of the header in the menu", async () => {
    await using service = start(await createStore(["one", "two"]));
    await using window = await openWindow(browser, service.url, PHONE);
    const { page } = window;
    await page.setViewportSize({ width: 390, height: 844 });
    await expectTitles(page, ["one", "two"]);
    expect(await page.locator(".site-header").isVisible()).toBe(false);
    await page.getByLabel("Search to-dos").tap();
    await page.keyboard.type("tw");
    await expectTitles(page, ["two"]);
    await page.keyboard.press("Escape");
    await expectTitles(page, ["one", "two"]);
    await page.getByRole("button", { name: "List actions" }).tap();
    expect(await page.locator("#menu a").allTextContents()).toEqual(["API keys", "API"]);
    expect((await targets(page)).filter(({ height }) => height < 44)).toEqual([]);
    expect(await accessibilityViolations(page)).toEqual([]);
    await page.keyboard.press("Escape");
    expect(await chooseAction(page, "Mark all done")).toBe(true);
    await expectTitles(page, ["(one)", "(two)"]);
    expect((await targets(page)).filter(({ height }) => height < 44)).toEqual([]);
    await page.setViewportSize({ width: 1000, height: 800 });
    expect(await page.locator(".site-header").isVisible()).toBe(true);
    expect(await page.locator("#focus-title").isVisible()).toBe(false);
    expect(window.faults).toEqual([]);
  });
});
