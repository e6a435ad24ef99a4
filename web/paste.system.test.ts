import { describe, expect, test } from "bun:test";
import type { Page } from "playwright-core";
import { whyNoBrowser } from "../test/chromium.ts";
import { accessibilityViolations } from "../test/page.ts";
import { skipFor } from "../test/skip.ts";
import {
  createStore,
  expectTitles,
  focusedName,
  paste,
  start,
  storedTodos,
  untilStored,
  useTodosPage,
} from "../test/todos-page.ts";

const box = (page: Page) => page.getByLabel("One to-do per line");

describe.skipIf(skipFor(whyNoBrowser))("to-dos page", () => {
  const { open, openList, use } = useTodosPage();

  test("adds one to-do per pasted line, in order, with the keyboard", async () => {
    const { page, store } = await openList([]);
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
    const service = use(start(await createStore(["one"])));
    const shared = new URLSearchParams({ title: "Groceries", text: "Milk\nEggs\n\nBread" });
    const { page } = await open(`${service.url}/?${shared}`);
    await page.getByRole("button", { name: "Add 3 to-dos" }).waitFor();
    expect(await box(page).inputValue()).toBe("Milk\nEggs\nBread");
    await page.keyboard.press("Enter");
    await expectTitles(page, ["one", "Milk", "Eggs", "Bread"]);
    expect(page.url()).toBe(`${service.url}/`);
  });

  test("adds nothing after Esc", async () => {
    const { page, store } = await openList([]);
    await paste(page, "one\ntwo");
    await page.getByRole("button", { name: "Add 2 to-dos" }).waitFor();
    await page.keyboard.press("Escape");
    await page.locator("#paste").waitFor({ state: "hidden" });
    expect(await storedTodos(store)).toEqual([]);
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
});
