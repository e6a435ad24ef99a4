import { expect, test } from "bun:test";
import type { Page } from "playwright-core";
import { describeInChromium } from "../test/page.ts";
import {
  add,
  chooseAction,
  closeTab,
  dismiss,
  expectTitles,
  focusedName,
  numbered,
  press,
  untilStored,
  useTodosPage,
} from "../test/todos-page.ts";

function countWrites(page: Page): () => number {
  let count = 0;
  page.on("request", (request) => {
    if (request.method() !== "GET") count++;
  });
  return () => count;
}

describeInChromium("to-dos page", () => {
  const { openList, openWithClock } = useTodosPage();

  /** Opens a list on whose page time passes only where the test says so, because its steps may take longer than a deletion waits. */
  async function openPaused() {
    const opened = await openWithClock(["one", "two"]);
    await opened.page.clock.pauseAt(Date.now() + 60_000);
    return opened;
  }

  test("restores a deleted to-do and the focus with the keyboard", async () => {
    const { page } = await openList(["one", "two", "three"]);
    const writes = countWrites(page);
    await page.getByRole("checkbox", { name: "two" }).focus();
    await press(page, "Delete");
    await expectTitles(page, ["one", "three"]);
    expect(await page.locator("#undo").textContent()).toBe("Deleted “two”Undo");
    expect(await page.title()).toBe("2 open · To-dos");
    await page.getByRole("link", { name: "All 2" }).waitFor();
    await press(page, "ControlOrMeta+z");
    await expectTitles(page, ["one", "two", "three"]);
    expect(await focusedName(page)).toBe("two");
    expect(await page.locator("#undo").textContent()).toBe("Undone: Deleted “two”Redo");
    // The delete button gets the focus back, too.
    await press(page, "Tab", "Enter");
    await expectTitles(page, ["one", "three"]);
    await page.getByRole("button", { name: "Undo" }).focus();
    await press(page, "Enter");
    await expectTitles(page, ["one", "two", "three"]);
    expect(await focusedName(page)).toBe("Delete: two");
    // There is nothing left to undo.
    await press(page, "ControlOrMeta+z");
    await expectTitles(page, ["one", "two", "three"]);
    await press(page, "ControlOrMeta+Shift+z");
    await expectTitles(page, ["one", "three"]);
    expect(await page.locator("#undo").textContent()).toBe("Deleted “two”Undo");
    expect(writes()).toBe(0);
  });

  test("restores the last to-do of the list, and lets the browser undo typed text", async () => {
    const { page } = await openList(["one"]);
    await page.getByRole("checkbox", { name: "one" }).focus();
    await press(page, "Delete");
    await expectTitles(page, []);
    expect(await focusedName(page)).toBe("title");
    await page.keyboard.type("text");
    await press(page, "ControlOrMeta+a", "Backspace", "ControlOrMeta+z");
    await expectTitles(page, []);
    await press(page, "Enter");
    await expectTitles(page, ["text"]);
    await press(page, "ControlOrMeta+z", "ControlOrMeta+z");
    await expectTitles(page, ["one"]);
    expect(await focusedName(page)).toBe("one");
  });

  test("sends a deletion after six seconds, but not while the pointer or the focus is on its message", async () => {
    const { page, store } = await openPaused();
    const writes = countWrites(page);
    await page.getByRole("button", { name: "Delete: one" }).click();
    await page.clock.fastForward(5800);
    expect(writes()).toBe(0);
    await page.getByRole("button", { name: "Undo" }).hover();
    await page.clock.fastForward(60_000);
    expect(writes()).toBe(0);
    await page.mouse.move(10, 10);
    await page.clock.fastForward(5800);
    await page.getByRole("button", { name: "Undo" }).focus();
    await page.clock.fastForward(60_000);
    expect(writes()).toBe(0);
    await page.getByLabel("New to-do").focus();
    await page.clock.fastForward(6100);
    await page.clock.resume();
    await untilStored(store, ["2 two"]);
    expect(await page.locator("#undo").count()).toBe(0);
  });

  test("sends a deletion although another message appears under the pointer in place of its own", async () => {
    const { page, store } = await openPaused();
    await page.getByRole("button", { name: "Delete: one" }).press("Enter");
    await page.getByRole("button", { name: "Undo" }).hover();
    await page.clock.fastForward(60_000);
    await page.getByRole("checkbox", { name: "two" }).press("Space");
    await page.clock.fastForward(6100);
    await page.clock.resume();
    await untilStored(store, ["2 (two)"]);
  });

  test("undoes and redoes one change after another: deletions, ticks, bulk changes and adds", async () => {
    const { page, store } = await openList(["one", "two", "three"]);
    const offered = () => page.locator("#undo").textContent();
    await page.getByRole("checkbox", { name: "two" }).press("Space");
    await page.getByRole("button", { name: "Delete: one" }).press("Enter");
    await chooseAction(page, "Mark all done");
    await expectTitles(page, ["(two)", "(three)"]);
    await add(page, "four");
    await expectTitles(page, ["(two)", "(three)", "four"]);
    expect(await offered()).toBe("Added “four”Undo");
    // A message without Undo does not replace it.
    await chooseAction(page, "Copy list");
    await page.locator("#status").getByText("Copied 3 to-dos.").waitFor();
    await page.getByRole("button", { name: "Undo" }).click();
    await expectTitles(page, ["(two)", "(three)"]);
    expect(await offered()).toBe("Undone: Added “four”Redo");
    await press(page, "ControlOrMeta+z");
    await expectTitles(page, ["(two)", "three"]);
    // The time of the deletion runs out, so its button is shown.
    expect(await offered()).toBe("Deleted “one”Undo");
    await press(page, "ControlOrMeta+z");
    await expectTitles(page, ["one", "(two)", "three"]);
    await press(page, "ControlOrMeta+z");
    await expectTitles(page, ["one", "two", "three"]);
    for (const titles of [
      ["one", "(two)", "three"],
      ["(two)", "three"],
      ["(two)", "(three)"],
      ["(two)", "(three)", "four"],
    ]) {
      await press(page, "Control+y");
      await expectTitles(page, titles);
    }
    // The redone deletion waits again.
    await untilStored(store, ["1 one", "2 (two)", "3 (three)", "5 four"]);
  });

  test("undoes only what still has the value that the window set, and names the rest", async () => {
    const { page, store } = await openList(["one", "two", "three"]);
    await chooseAction(page, "Mark all done");
    await untilStored(store, ["1 (one)", "2 (two)", "3 (three)"]);
    await store.setDone(3n, false);
    await store.delete(1n);
    await store.setDone(2n, false);
    await expectTitles(page, ["two", "three"]);
    await store.setDone(2n, true);
    await expectTitles(page, ["(two)", "three"]);
    const undo = page.locator("#undo").getByRole("button", { name: "Undo" });
    // Another announcement may replace this one soon.
    const announced = await undo.evaluate((button: HTMLElement) => {
      button.click();
      return document.querySelector("#announcement")?.textContent;
    });
    expect(announced).toBe("Undone: Marked “two” as done");
    const alerts = page.getByRole("alert");
    await alerts.getByText("“one” was deleted elsewhere.").waitFor();
    await alerts.getByText("“three” was changed elsewhere, and stays as it is.").waitFor();
    // It offers to redo that part only.
    expect(await page.locator("#undo").textContent()).toBe("Undone: Marked “two” as doneRedo");
    await page.getByRole("button", { name: "Delete: two" }).click();
    await store.delete(2n);
    // The event of a later change shows that the page has read the event of the deletion.
    await store.insert("four");
    await expectTitles(page, ["three", "four"]);
    await page.getByRole("button", { name: "Undo" }).click();
    await alerts.getByText("“two” was deleted elsewhere, so it cannot be restored.").waitFor();
    await expectTitles(page, ["three", "four"]);
    expect(await page.getByText("Undone: Deleted").count()).toBe(0);
  });

  test.each(["close", "reload", "leave"] as const)("sends 100 deletions on %s of the page", async (way) => {
    const done = numbered(100).map((title) => `(${title})`);
    const { page, store, service } = await openList([...done, "open"]);
    await chooseAction(page, "Clear 100 done");
    await expectTitles(page, ["open"]);
    if (way === "close") await closeTab(page);
    else if (way === "reload") await page.reload();
    else await page.goto(`${service.url}/api/openapi.json`);
    await untilStored(store, ["101 open"]);
  });

  test.each([
    ["keeps the undo of a deletion on a desktop", {}, false],
    ["sends a deletion on a phone", { hasTouch: true, isMobile: true }, true],
  ])("%s while the page is hidden", async (_what, options, isSent) => {
    const { page, store } = await openList(["one", "two"], "", options);
    await page.getByRole("button", { name: "Delete: one" }).press("Enter");
    await expectTitles(page, ["two"]);
    await page.evaluate(() => {
      Object.defineProperty(document, "hidden", { value: true, configurable: true });
      document.dispatchEvent(new Event("visibilitychange"));
    });
    expect(await page.locator("#undo").count()).toBe(isSent ? 0 : 1);
    if (isSent) return untilStored(store, ["2 two"]);
    await page.keyboard.press("ControlOrMeta+z");
    await expectTitles(page, ["one", "two"]);
  });

  test("marks all to-dos as done, reopens and clears them", async () => {
    const { page, store } = await openList(numbered(3));
    await chooseAction(page, "Mark all done");
    await expectTitles(page, ["(to-do 1)", "(to-do 2)", "(to-do 3)"]);
    expect(await page.locator("#undo").textContent()).toBe("Marked 3 to-dos as doneUndo");
    // The user changes one of them back.
    await page.getByRole("checkbox", { name: "to-do 2" }).click();
    await dismiss(page);
    await untilStored(store, ["1 (to-do 1)", "2 to-do 2", "3 (to-do 3)"]);
    await page.getByRole("checkbox", { name: "to-do 2" }).press("Space");
    await chooseAction(page, "Reopen all");
    await expectTitles(page, numbered(3));
    await press(page, "ControlOrMeta+z");
    await expectTitles(page, ["(to-do 1)", "(to-do 2)", "(to-do 3)"]);
    expect(await focusedName(page)).toBe("List actions");
    await chooseAction(page, "Clear 3 done");
    expect(await page.locator("#undo").textContent()).toBe("Deleted 3 done to-dosUndo");
    await dismiss(page);
    await untilStored(store, []);
  });
});
