import { expect, test } from "bun:test";
import type { Page } from "playwright-core";
import { accessibilityViolations, describeInChromium } from "../test/page.ts";
import {
  add,
  chooseAction,
  expectTitles,
  focusedName,
  numbered,
  pasteLines,
  press,
  useTodosPage,
  visibleTitles,
} from "../test/todos-page.ts";

const MIXED = ["(one)", "(two)", "three", "four"];

const focusedText = (page: Page): Promise<string | null | undefined> =>
  page.evaluate(() => document.activeElement?.textContent);

/** Puts the pointer or a finger on a point, and leaves it there. */
async function point(page: Page, how: "pointer" | "finger" | "nothing", { x, y }: { x: number; y: number }) {
  if (how === "nothing") return;
  if (how === "pointer") return page.mouse.move(x, y);
  const devTools = await page.context().newCDPSession(page);
  await devTools.send("Input.dispatchTouchEvent", { type: "touchStart", touchPoints: [{ x, y }] });
}

describeInChromium("to-dos page", () => {
  // As on a first visit.
  const { openList } = useTodosPage({}, "");

  test("has the newest to-do first, and remembers another order", async () => {
    const { page } = await openList(["one", "two", "three"]);
    await expectTitles(page, ["three", "two", "one"]);
    await add(page, "four");
    await expectTitles(page, ["four", "three", "two", "one"]);
    await page.getByRole("checkbox", { name: "three" }).focus();
    await press(page, "ArrowDown");
    expect(await focusedName(page)).toBe("two");
    await press(page, "Delete");
    await expectTitles(page, ["four", "three", "one"]);
    expect(await focusedName(page)).toBe("one");
    await press(page, "ControlOrMeta+z");
    expect(await focusedName(page)).toBe("two");
    await chooseAction(page, "Oldest first");
    await expectTitles(page, ["one", "two", "three", "four"]);
    await page.reload();
    await expectTitles(page, ["one", "two", "three", "four"]);
  });

  test("folds done to-dos below the open ones, remembers that they are shown, and says that a new one is folded", async () => {
    const { page } = await openList(MIXED);
    await expectTitles(page, ["four", "three"]);
    const fold = page.getByRole("button", { name: "Completed (2)" });
    expect(await fold.getAttribute("aria-expanded")).toBe("false");
    await fold.click();
    await expectTitles(page, ["four", "three", "(two)", "(one)"]);
    expect(await fold.getAttribute("aria-expanded")).toBe("true");
    for (const colorScheme of ["light", "dark"] as const) {
      await page.emulateMedia({ colorScheme });
      expect(await accessibilityViolations(page)).toEqual([]);
    }
    await page.reload();
    await expectTitles(page, ["four", "three", "(two)", "(one)"]);
    await fold.press("Enter");
    await expectTitles(page, ["four", "three"]);
    expect(await focusedText(page)).toBe("Completed (2)");
    expect(await accessibilityViolations(page)).toEqual([]);
    await pasteLines(page, "[x] first\n[x] second");
    await page.getByText("Added 2 to-dos to the completed to-dos.").first().waitFor();
    await page.getByRole("button", { name: "Completed (4)" }).waitFor();
  });

  test("moves the focus over the fold with arrow keys, and to the next row when a row leaves", async () => {
    const { page } = await openList(MIXED);
    await page.getByRole("checkbox", { name: "four" }).focus();
    await press(page, "Space");
    await expectTitles(page, ["three"]);
    expect(await focusedName(page)).toBe("three");
    await press(page, "ArrowDown");
    expect(await focusedText(page)).toBe("Completed (3)");
    await press(page, "Enter", "End");
    expect(await focusedName(page)).toBe("one");
    await press(page, "ArrowUp", "Space");
    await expectTitles(page, ["three", "two", "(four)", "(one)"]);
    expect(await focusedName(page)).toBe("one");
    await press(page, "ControlOrMeta+z");
    expect(await focusedName(page)).toBe("two");
    await press(page, "ArrowUp", "ArrowUp", "ArrowUp", "Space");
    await expectTitles(page, ["(four)", "(three)", "(two)", "(one)"]);
    expect(await focusedText(page)).toBe("Completed (4)");
  });

  test("shows a new to-do below the field without scrolling, and pasted lines in their order", async () => {
    const { page } = await openList(numbered(60));
    await add(page, "new");
    await page.locator(".todo.new").waitFor();
    expect(await page.locator(".todo").first().textContent()).toBe("new");
    expect(await page.evaluate(() => scrollY)).toBe(0);
    await pasteLines(page, "first\nsecond");
    await page.getByRole("checkbox", { name: "second" }).waitFor();
    expect((await visibleTitles(page)).slice(0, 3)).toEqual(["first", "second", "new"]);
  });

  test.each([
    ["pointer", 6, 0],
    ["finger", 6, 0],
    ["pointer", 100, 0],
    ["pointer", 100, 700],
    ["nothing", 300, 6000],
    ["nothing", 300, 11_000],
  ] as const)("keeps a row in place as others change: %s, %d rows, %d pixels", async (how, count, scroll) => {
    const { page, store } = await openList(numbered(count), "", { hasTouch: how === "finger" });
    await page.getByRole("checkbox", { name: `to-do ${count}` }).waitFor();
    const firstTop = () => page.evaluate(() => document.querySelector(".todo")?.getBoundingClientRect().top);
    const before = await firstTop();
    await page.evaluate((top) => scrollTo({ top }), scroll);
    await point(page, how, { x: 500, y: 450 });
    // The rows there may not be in the document yet.
    await page.waitForFunction(() => document.elementFromPoint(500, 450)?.closest(".todo"));
    await page.evaluate("new Promise(requestAnimationFrame)");
    const row = await page.evaluateHandle(() => document.elementFromPoint(500, 450)?.closest(".todo"));
    const top = () => page.evaluate((element) => element?.getBoundingClientRect().top, row);
    const place = await top();
    expect(place).toBeWithin(350, 451);
    const last = BigInt(count);
    const changes = [
      () => store.delete(last),
      // Of a long list, the rows above the window shift by several.
      ...(count > 100 ? [2n, 3n].map((above) => () => store.delete(last - above)) : []),
      () => store.insert("new"),
      () => store.insert("newer"),
      () => store.setDone(last - 1n, true),
    ];
    for (const change of changes) {
      const title = await page.title();
      await change();
      await page.waitForFunction((old) => document.title !== old, title);
      // No row moves under a finger that presses it.
      if (how !== "finger") await page.waitForFunction(() => document.querySelector(".done") === null);
      expect(await top()).toBeCloseTo(place ?? 0, 0);
    }
    if (how === "finger" || scroll > 0) return;
    await page.mouse.move(500, 10);
    expect(await firstTop()).toBe(before);
  });
});
