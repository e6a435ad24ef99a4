// cspell:ignore Banane Crème brûlée
import { expect, test } from "bun:test";
import type { Page } from "playwright-core";
import { accessibilityViolations, describeInChromium } from "../test/page.ts";
import { add, chooseAction, expectTitles, focusedName, press, useTodosPage } from "../test/todos-page.ts";

const FRUITS = ["apple", "Banane", "Crème brûlée", "date", "elder", "fig", "grape", "honey", "CREME", "jam"];

/** Presses a key of another layout. */
async function pressCode(page: Page, key: string, code: string, modifiers = 0): Promise<void> {
  const devTools = await page.context().newCDPSession(page);
  const text = modifiers === 0 ? { text: key } : {};
  for (const type of ["keyDown", "keyUp"] as const)
    await devTools.send("Input.dispatchKeyEvent", {
      ...{ type, key, code, modifiers, windowsVirtualKeyCode: code.charCodeAt(3) },
      ...(type === "keyDown" && text),
    });
}

describeInChromium("to-dos page", () => {
  const { openList } = useTodosPage();

  test("searches as the user types, and keeps the search in the URL", async () => {
    const { page } = await openList(FRUITS.with(8, "(CREME)"));
    await page.getByRole("link", { name: "All 10" }).waitFor();
    await press(page, "/");
    expect(await focusedName(page)).toBe("search");
    await page.keyboard.type("crème");
    await expectTitles(page, ["Crème brûlée", "(CREME)"]);
    await page.getByRole("link", { name: "Done 1" }).waitFor();
    await page.getByText("2 matches.").waitFor();
    expect(new URL(page.url()).searchParams.get("q")).toBe("crème");
    // Counts of the whole list stay in the window's title.
    expect(await page.title()).toBe("9 open · To-dos");
    await page.getByRole("link", { name: "Open 1" }).click();
    await expectTitles(page, ["Crème brûlée"]);
    await page.reload();
    await expectTitles(page, ["Crème brûlée"]);
    expect(await page.getByLabel("Search to-dos").inputValue()).toBe("crème");
    await page.evaluate(() => history.back());
    await expectTitles(page, ["Crème brûlée", "(CREME)"]);
    await page.getByRole("button", { name: "List actions" }).press("Enter");
    await press(page, "n", "Escape");
    expect(await focusedName(page)).toBe("List actions");
    await expectTitles(page, ["Crème brûlée", "(CREME)"]);
    await press(page, "Escape");
    await page.getByRole("link", { name: "All 10" }).waitFor();
    await page.waitForFunction(() => location.search === "");
    await press(page, "/");
    await page.keyboard.type("nothing");
    await page.getByText("No matches for “nothing”.").waitFor();
    await page.getByText("0 matches.").waitFor();
    await press(page, "Escape");
    await page.getByRole("link", { name: "All 10" }).waitFor();
  });

  test("shows the search field of a short list while the key / is in use, and of one with ten to-dos", async () => {
    const { page, store } = await openList(FRUITS.slice(1));
    await page.getByRole("link", { name: "All 9" }).waitFor();
    const field = page.getByLabel("Search to-dos");
    expect(await field.isVisible()).toBe(false);
    await press(page, "/");
    expect(await focusedName(page)).toBe("search");
    await page.keyboard.type("ja");
    await expectTitles(page, ["jam"]);
    await press(page, "Escape");
    await expectTitles(page, FRUITS.slice(1));
    await page.locator("#title").focus();
    await field.waitFor({ state: "hidden" });
    await store.insert("ten");
    await field.waitFor();
    await field.fill("ten");
    await store.delete(1n);
    await page.waitForFunction(() => document.title.startsWith("9 open"));
    expect(await field.isVisible()).toBe(true);
  });

  test("applies bulk changes only to the matches of a search", async () => {
    const { page } = await openList(FRUITS, "?q=creme");
    await chooseAction(page, "Mark 2 done");
    await expectTitles(page, ["(Crème brûlée)", "(CREME)"]);
    await page.waitForFunction(() => document.title.startsWith("8 open"));
    await chooseAction(page, "Clear 2 done");
    await page.getByText("No matches for “creme”.").waitFor();
    await press(page, "ControlOrMeta+z");
    await expectTitles(page, ["(Crème brûlée)", "(CREME)"]);
  });

  test.each([
    ["?show=done", "Added “kiwi” to the open to-dos"],
    ["?q=creme", "Added “kiwi”. The search does not show it"],
  ])("says where a new to-do is if %s hides it", async (path, text) => {
    const { page } = await openList(FRUITS, path);
    await add(page, "kiwi");
    const message = page.locator("#undo").getByText(text);
    await message.waitFor();
    expect((await message.boundingBox())?.width).toBeGreaterThan(50);
  });

  test("has shortcuts, lists them, and has a setting that disables the single-key shortcuts", async () => {
    const { page } = await openList(FRUITS);
    await page.getByRole("link", { name: "All 10" }).waitFor();
    await press(page, "n");
    expect(await focusedName(page)).toBe("title");
    await page.keyboard.type("n/?");
    expect(await page.getByLabel("New to-do").inputValue()).toBe("n/?");
    await page.getByLabel("New to-do").fill("");
    await press(page, "ArrowDown");
    expect(await focusedName(page)).toBe("apple");
    await press(page, "End");
    expect(await focusedName(page)).toBe("jam");
    await press(page, "Home");
    expect(await focusedName(page)).toBe("apple");
    await press(page, "ArrowUp");
    expect(await focusedName(page)).toBe("apple");
    await press(page, "?");
    await page.getByRole("heading", { name: "Shortcuts" }).waitFor();
    expect(await accessibilityViolations(page)).toEqual([]);
    await page.getByLabel("Use the keys n, / and ?").uncheck();
    await press(page, "Escape");
    await page.getByRole("heading", { name: "Shortcuts" }).waitFor({ state: "hidden" });
    expect(await focusedName(page)).toBe("apple");
    await page.reload();
    await page.getByRole("link", { name: "All 10" }).waitFor();
    await page.getByRole("checkbox", { name: "apple" }).focus();
    await press(page, "n", "/", "?");
    expect(await focusedName(page)).toBe("apple");
    await chooseAction(page, "Shortcuts");
    await page.getByLabel("Use the keys n, / and ?").check();
    await page.getByRole("button", { name: "Close" }).click();
    await press(page, "/");
    expect(await focusedName(page)).toBe("search");
  });

  test("copies the shown to-dos as Markdown, also without the clipboard API", async () => {
    for (const hasApi of [true, false]) {
      const { page } = await openList(["one", "(two)"], "", {
        permissions: ["clipboard-read", "clipboard-write"],
      });
      if (!hasApi)
        await page.evaluate(() => Object.defineProperty(navigator, "clipboard", { value: undefined }));
      await chooseAction(page, "Copy list");
      await page.getByText("Copied 2 to-dos.").first().waitFor();
      await page.getByLabel("New to-do").focus();
      await press(page, "ControlOrMeta+v");
      await page.getByRole("button", { name: "Add 2 to-dos" }).waitFor();
      expect(await page.getByLabel("One to-do per line").inputValue()).toBe("- [ ] one\n- [x] two");
    }
  });

  test("leaves the keys of an input method alone while it composes", async () => {
    const { page } = await openList(["one"]);
    const devTools = await page.context().newCDPSession(page);
    const compose = (text: string) =>
      devTools.send("Input.imeSetComposition", {
        text,
        selectionStart: text.length,
        selectionEnd: text.length,
      });
    for (const label of ["New to-do", "Search to-dos"]) {
      await page.locator("#search-field").evaluate((field) => field.removeAttribute("hidden"));
      await page.getByLabel(label).focus();
      await compose("に");
      for (const key of ["ArrowDown", "Escape"]) await page.keyboard.press(key);
      // Safari sends the key that ends a composition so.
      await page.evaluate(() => {
        const options = { key: "ArrowDown", keyCode: 229, bubbles: true, cancelable: true };
        document.activeElement?.dispatchEvent(new KeyboardEvent("keydown", options));
      });
      await devTools.send("Input.insertText", { text: "二" });
      expect(await page.getByLabel(label).inputValue()).toBe("二");
      expect(await focusedName(page)).toBe(label === "New to-do" ? "title" : "search");
    }
  });

  test("knows its keys on a Russian keyboard and with caps lock", async () => {
    const { page } = await openList(["one"]);
    await page.getByRole("checkbox", { name: "one" }).press("Space");
    await expectTitles(page, ["(one)"]);
    await pressCode(page, "я", "KeyZ", 2);
    await expectTitles(page, ["one"]);
    for (const key of ["т", "N"]) {
      await page.getByRole("checkbox", { name: "one" }).focus();
      await pressCode(page, key, "KeyN");
      expect(await focusedName(page)).toBe("title");
    }
    expect(await page.getByLabel("New to-do").inputValue()).toBe("");
  });
});
