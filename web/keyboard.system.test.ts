import { describe, expect, test } from "bun:test";
import type { Page } from "playwright-core";
import { whyNoBrowser } from "../test/chromium.ts";
import { skipFor } from "../test/skip.ts";
import { add, expectTitles, focusedName, useTodosPage } from "../test/todos-page.ts";

const LINES = "one\ntwo";

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

describe.skipIf(skipFor(whyNoBrowser))("to-dos page", () => {
  const { openList } = useTodosPage();

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

  test.each(["pasted", "dropped", "inserted by a keyboard"] as const)(
    "opens the dialog for several lines that are %s, and for no single one",
    async (how) => {
      const { page } = await openList(["zero"]);
      const field = page.getByLabel("New to-do");
      await field.focus();
      const devTools = await page.context().newCDPSession(page);
      const { x = 0, y = 0 } = (await field.boundingBox()) ?? {};
      const insert = async (text: string): Promise<void> => {
        if (how === "inserted by a keyboard") await devTools.send("Input.insertText", { text });
        else if (how === "pasted") {
          await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
          await page.evaluate((copied) => navigator.clipboard.writeText(copied), text);
          await page.keyboard.press("ControlOrMeta+v");
        } else {
          const data = { items: [{ mimeType: "text/plain", data: text }], dragOperationsMask: 1 };
          for (const type of ["dragEnter", "dragOver", "drop"] as const)
            await devTools.send("Input.dispatchDragEvent", { type, x: x + 20, y: y + 10, data });
        }
      };
      await insert("single\n");
      expect((await field.inputValue()).trim()).toBe("single");
      await field.fill("");
      await insert(LINES);
      await page.getByRole("button", { name: "Add 2 to-dos" }).press("Enter");
      await expectTitles(page, ["zero", "one", "two"]);
      expect(await field.inputValue()).toBe("");
      await add(page, "three");
      await expectTitles(page, ["zero", "one", "two", "three"]);
    },
  );
});
