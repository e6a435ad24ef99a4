import { expect, test } from "bun:test";
import type { Page } from "playwright-core";
import { accessibilityViolations, describeInChromium } from "../test/page.ts";
import {
  chooseAction,
  dismiss,
  expectTitles,
  focusedName,
  numbered,
  useTodosPage,
} from "../test/todos-page.ts";

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

describeInChromium("to-dos page on a phone", () => {
  const { openList } = useTodosPage(PHONE);

  test.each([
    [320, 568],
    [390, 844],
  ])("fits %d × %d pixels: one line of tools, large targets and rows near the top", async (width, height) => {
    const titles = [`(${"x".repeat(120)})`, "(to-do 0)", ...numbered(1233)];
    const { page } = await openList(titles, "", { viewport: { width, height } });
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
  });

  test("shows two rows of the list in landscape", async () => {
    const { page } = await openList(numbered(20), "", { viewport: { width: 844, height: 390 } });
    await page.getByRole("searchbox").waitFor();
    const row = await page.locator(".todo").nth(1).boundingBox();
    expect((row?.y ?? 390) + (row?.height ?? 0)).toBeLessThanOrEqual(390);
  });

  test("has the search of a short list, and links in a menu whose last entries change many to-dos", async () => {
    const { page } = await openList(["one", "two"]);
    await page.setViewportSize({ width: 390, height: 844 });
    await expectTitles(page, ["one", "two"]);
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
    const entries = await page.locator("#menu > :not([hidden])").allTextContents();
    expect(entries).toEqual(["Copy list", "Oldest first", "API keys", "API", "Reopen all", "Clear 2 done"]);
    await page.setViewportSize({ width: 1000, height: 800 });
    expect((await page.locator("#todos, #placeholder").first().boundingBox())?.y).toBeLessThanOrEqual(220);
    expect(await page.locator("#focus-title").isVisible()).toBe(false);
  });

  test.each([
    [195, 422, "100%"],
    [390, 844, "200%"],
    [320, 256, "100%"],
  ])("reaches the menu in %d × %d pixels with a root font of %s while showing a message", async (...size) => {
    const [width, height, fontSize] = size;
    const titles = numbered(25).map((title, index) => (index < 11 ? `(${title})` : title));
    const { page } = await openList(titles);
    await page.setViewportSize({ width, height });
    await page.evaluate((root) => {
      document.documentElement.style.fontSize = root;
    }, fontSize);
    await page.locator(".todo input:not(:checked)").first().tap();
    await page.waitForFunction(() => document.title === "13 open · To-dos");
    await page.locator("#undo").waitFor();
    await page.evaluate(() => scrollTo(0, 0));
    expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBe(width);
    for (const { name, left, right } of await targets(page))
      expect([name, left >= 0 && right <= width]).toEqual([name, true]);
    await page.getByRole("button", { name: "List actions" }).tap();
    await page.getByRole("button", { name: "Clear 12 done" }).tap();
    await page.getByText("Deleted 12 done to-dos").first().waitFor();
  });

  test("has one button that adds: + opens the field from below, which Add leaves open, and Add appears when it has text", async () => {
    const { page } = await openList(numbered(40));
    await page.setViewportSize({ width: 390, height: 844 });
    const plus = page.getByRole("button", { name: "Add a to-do" });
    const addButton = page.getByRole("button", { name: "Add", exact: true });
    const visible = async () => [await plus.isVisible(), await addButton.isVisible()];
    await page.evaluate(() => scrollTo({ top: 900 }));
    expect(await visible()).toEqual([true, false]);
    await plus.tap();
    for (const title of ["milk", "eggs"]) {
      // The field keeps the focus, and with it the keyboard on the screen.
      expect(await focusedName(page)).toBe("title");
      expect(await visible()).toEqual([false, false]);
      await page.keyboard.type(title);
      expect(await visible()).toEqual([false, true]);
      await addButton.tap();
      await page.locator(".todo.new").getByText(title).waitFor();
    }
    expect(await focusedName(page)).toBe("title");
    expect((await page.locator("#title").boundingBox())?.y).toBeWithin(0, 20);
    await page.getByRole("link", { name: "All" }).focus();
    // It would cover the message.
    expect(await visible()).toEqual([false, false]);
    await page.getByRole("button", { name: "Dismiss" }).tap();
    expect(await visible()).toEqual([true, false]);
  });

  test("covers no row at the end of the list, and deletes a row by its visible button", async () => {
    const { page } = await openList(numbered(30));
    await page.setViewportSize({ width: 390, height: 844 });
    const message = page.locator("#undo");
    await page.getByRole("checkbox", { name: "to-do 30" }).tap();
    await message.getByText("Marked “to-do 30” as done").waitFor();
    await page.getByText("Completed (1)").waitFor();
    await page.evaluate(() => scrollTo({ top: document.documentElement.scrollHeight }));
    const list = await page.locator("#todos").boundingBox();
    const toast = await message.boundingBox();
    expect((list?.y ?? 844) + (list?.height ?? 0)).toBeLessThan(toast?.y ?? 0);
    const button = page.getByRole("button", { name: "Delete: to-do 25" });
    expect(await button.evaluate((element) => getComputedStyle(element).opacity)).toBe("1");
    await button.tap();
    await message.getByText("Deleted “to-do 25”").waitFor();
    await dismiss(page);
    const plus = await page.getByRole("button", { name: "Add a to-do" }).boundingBox();
    expect((list?.y ?? 844) + (list?.height ?? 0)).toBeLessThan(plus?.y ?? 0);
  });
});
