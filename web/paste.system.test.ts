import { expect, test } from "bun:test";
import type { Page } from "playwright-core";
import { accessibilityViolations, describeInChromium } from "../test/page.ts";
import {
  add,
  createStore,
  expectTitles,
  focusedName,
  paste,
  press,
  untilStored,
  useTodosPage,
} from "../test/todos-page.ts";

const box = (page: Page) => page.getByLabel("One to-do per line");

describeInChromium("to-dos page", () => {
  const { openList } = useTodosPage();

  test("adds one to-do per pasted line, in order, with the keyboard, and none after Esc", async () => {
    const { page, store } = await openList([]);
    await paste(page, "one\ntwo");
    await page.getByRole("button", { name: "Add 2 to-dos" }).waitFor();
    await page.keyboard.press("Escape");
    await page.locator("#paste").waitFor({ state: "hidden" });
    await paste(page, "- [ ] buy milk\n\n* [x] call home\n1. <b>pay</b> rent\n");
    await page.getByRole("button", { name: "Add 3 to-dos" }).waitFor();
    expect(await box(page).inputValue()).toBe("- [ ] buy milk\n* [x] call home\n1. <b>pay</b> rent");
    expect(await accessibilityViolations(page)).toEqual([]);
    expect(await focusedName(page)).toBe("paste-submit");
    await page.keyboard.press("Enter");
    await expectTitles(page, ["buy milk", "(call home)", "<b>pay</b> rent"]);
    await page.locator("#paste").waitFor({ state: "hidden" });
    expect(await focusedName(page)).toBe("title");
    await untilStored(store, ["1 buy milk", "2 (call home)", "3 <b>pay</b> rent"]);
  });

  test("opens the dialog with several lines that the share sheet sends", async () => {
    const shared = new URLSearchParams({ title: "Groceries", text: "Milk\nEggs\n\nBread" });
    const { page, service } = await openList(["one"], `?${shared}`);
    await page.getByRole("button", { name: "Add 3 to-dos" }).waitFor();
    expect(await box(page).inputValue()).toBe("Milk\nEggs\nBread");
    await page.keyboard.press("Enter");
    await expectTitles(page, ["one", "Milk", "Eggs", "Bread"]);
    expect(page.url()).toBe(`${service.url}/`);
  });

  test("takes the text that the share sheet sends into the field", async () => {
    const { page, service } = await openList(["one"], "?title=Recipe&text=https://example.com/soup");
    expect(await page.getByLabel("New to-do").inputValue()).toBe("Recipe https://example.com/soup");
    expect(page.url()).toBe(`${service.url}/`);
  });

  test("marks lines that are too long, keeps them in the box, and adds them after an edit", async () => {
    const { page } = await openList([]);
    await paste(page, `one\n- ${"x".repeat(121)}\ntwo`);
    await page.getByRole("button", { name: "Add 2 to-dos" }).waitFor();
    await page.getByText("1 line is longer than 120 characters.").waitFor();
    await page.keyboard.press("Enter");
    await page.getByText("Added 2 to-dos. Shorten the lines that are longer than 120 characters.").waitFor();
    expect(await box(page).inputValue()).toBe(`- ${"x".repeat(121)}`);
    expect(await focusedName(page)).toBe("paste-lines");
    await box(page).fill("- short");
    await page.getByRole("button", { name: "Add 1 to-do" }).waitFor();
    await page.keyboard.press("ControlOrMeta+Enter");
    await expectTitles(page, ["one", "two", "short"]);
  });

  test("adds each line once although responses are lost, and names the lines that the full store rejects", async () => {
    const store = await createStore([], { maxTodos: 3 });
    const { page } = await openList(store);
    let isLost = false;
    await page.route("**/api/todos", async (route) => {
      if (isLost || !route.request().postData()?.includes("two")) return route.continue();
      isLost = true;
      await route.fetch();
      await route.abort("connectionreset");
    });
    await paste(page, "one\n[x] two\nthree\nfour\nfive");
    await page.keyboard.press("Enter");
    await page.getByRole("alert").getByText("“four”, “five” could not be added:").waitFor();
    await expectTitles(page, ["one", "(two)", "three"]);
    await untilStored(store, ["1 one", "2 (two)", "3 three"]);
    expect(isLost).toBe(true);
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
      await insert("- [ ] single\n");
      expect(await field.inputValue()).toBe("single");
      await press(page, "ControlOrMeta+z");
      expect(await field.inputValue()).toBe("");
      await insert("- single\n");
      expect((await field.inputValue()).trim()).toBe("- single");
      await field.fill("");
      await insert("one\ntwo");
      await page.getByRole("button", { name: "Add 2 to-dos" }).press("Enter");
      await expectTitles(page, ["zero", "one", "two"]);
      expect(await field.inputValue()).toBe("");
      await add(page, "three");
      await expectTitles(page, ["zero", "one", "two", "three"]);
    },
  );
});
