import { expect, test } from "bun:test";
import type { Locator, Page } from "playwright-core";
import { openMemory } from "../src/storage/memory/store.ts";
import { accessibilityViolations, describeInChromium } from "../test/page.ts";
import {
  add,
  chooseAction,
  createStore,
  dismiss,
  expectTitles,
  focusedName,
  numbered,
  press,
  reject,
  start,
  storedTodos,
  untilChanges,
  untilStored,
  useTodosPage,
} from "../test/todos-page.ts";
import { until } from "../test/until.ts";

const UNUSUAL_TITLES = [
  "<img src=x onerror=\"document.title='owned'\">",
  "</span><script>document.title='owned'</script>",
  "\u202Egnp.txt\u202C and \u2067more",
  "😀".repeat(120),
  "a\u0000b\nc",
  "W".repeat(120),
  "a\u0301\u0302\u0303".repeat(30),
  `Z${"\u0301".repeat(119)}`,
  // Some parsers treat these as line breaks; they must not split an event.
  "a\u2028b\u2029c\u0085",
];

/** Waits until the field of the new to-do is empty, which may be after the to-do's event. */
async function untilEmpty(page: Page): Promise<void> {
  await page.waitForFunction(() => document.querySelector("input")?.value === "");
}

/** Clicks twice at the place of an element. The events say that 150 ms are between them, however long `untilShown` takes. */
async function doubleClick(page: Page, target: Locator, untilShown: () => Promise<void>): Promise<void> {
  const devTools = await page.context().newCDPSession(page);
  const box = await target.boundingBox();
  const place = { x: (box?.x ?? 0) + 10, y: (box?.y ?? 0) + 10, button: "left", clickCount: 1 } as const;
  const started = Date.now() / 1000;
  for (const timestamp of [started, started + 0.15]) {
    for (const type of ["mousePressed", "mouseReleased"] as const)
      await devTools.send("Input.dispatchMouseEvent", { type, timestamp, ...place });
    await untilShown();
  }
}

describeInChromium("to-dos page", () => {
  const { open, openList, openWithClock, use } = useTodosPage();

  test("reports a lost connection, loads the list of a new service, and drops changes to ids that have another meaning there", async () => {
    const { page, service } = await openList(["one", "two", "three"]);
    await service[Symbol.asyncDispose]();
    await page.getByText("Offline. Changes made elsewhere will appear later.").waitFor();
    await expectTitles(page, ["one", "two", "three"]);
    await page.getByRole("checkbox", { name: "two" }).press("Space");
    await page.getByRole("checkbox", { name: "three" }).press("Space");
    await page.getByRole("button", { name: "Delete: one" }).click();
    await dismiss(page);
    const store = await createStore(["pay the rent", "two"]);
    use(start(store, service.port));
    const alerts = page.getByRole("alert");
    await alerts.getByText("“one” could not be deleted: the service has another list").waitFor();
    await untilStored(store, ["1 pay the rent", "2 (two)"]);
    await alerts.getByText("“three” could not be marked as done: deleted elsewhere.").waitFor();
    await alerts
      .getByText("different list since it restarted. 2 to-dos that were here are not in it.")
      .waitFor();
    await page.locator("#notice:empty").waitFor({ state: "attached" });
    await page.getByText("Reconnected.").waitFor();
    await expectTitles(page, ["pay the rent", "(two)"]);
    await page.route("**/api/todos*", (route) => route.abort());
    await page.reload();
    await page.getByText("The list cannot be loaded. The service cannot be reached.").waitFor();
    await page.unroute("**/api/todos*");
    await expectTitles(page, ["pay the rent", "(two)"]);
    expect(await page.locator("#placeholder").textContent()).toBe("");
  });

  test("closes its event stream while hidden, and catches up without loading the list", async () => {
    const { page, store } = await openWithClock(["one"]);
    const setHidden = (hidden: boolean) =>
      page.evaluate((isHidden) => {
        Object.defineProperty(document, "hidden", { configurable: true, value: isHidden });
        document.dispatchEvent(new Event("visibilitychange"));
      }, hidden);
    // Headless Chromium also draws frames for hidden windows.
    await page.evaluate(() => {
      const draw = requestAnimationFrame;
      globalThis.requestAnimationFrame = (callback) => (document.hidden ? 0 : draw(callback));
    });
    await setHidden(true);
    await store.insert("two");
    await expectTitles(page, ["one", "two"]);
    expect(await page.title()).toBe("2 open · To-dos");
    const streamClosed = page.waitForEvent("requestfailed", (request) =>
      request.url().includes("/api/events"),
    );
    await page.clock.fastForward(31_000);
    await streamClosed;
    await store.insert("three");
    const paths: string[] = [];
    page.on("request", (request) => paths.push(new URL(request.url()).pathname));
    await setHidden(false);
    await expectTitles(page, ["one", "two", "three"]);
    expect(await page.title()).toBe("3 open · To-dos");
    expect(paths).toEqual(["/api/events"]);
  });

  test("shows validation errors at the field and keeps the text", async () => {
    const { page } = await openList(await createStore([], { maxTodos: 1 }));
    const field = page.getByLabel("New to-do");
    const error = page.locator("#title-error");
    await field.fill(" \u200B\u3164");
    await page.getByRole("button", { name: "Add" }).click();
    await page.getByText("The title must not be empty.").first().waitFor();
    expect(await field.getAttribute("aria-invalid")).toBe("true");
    expect(await focusedName(page)).toBe("title");
    await field.fill("x".repeat(121));
    expect(await error.textContent()).toBe("");
    await page.keyboard.press("Enter");
    await page.getByText("The title must be at most 120 characters.").first().waitFor();
    expect(await field.inputValue()).toBe("x".repeat(121));
    await add(page, "fits");
    await field.fill("unfinished");
    await untilChanges(page, 0);
    await expectTitles(page, ["fits"]);
    expect(await error.textContent()).toBe("");
    expect(await field.inputValue()).toBe("unfinished");
    await add(page, "one too many");
    await field.fill("next");
    await page.getByRole("alert").getByText("“one too many” could not be added:").waitFor();
    await expectTitles(page, ["fits"]);
    expect(await field.inputValue()).toBe("next");
  });

  test("undoes changes that the service rejects, and reports those of one action in one message", async () => {
    const { page } = await openList(["one", "two", "three", "four"]);
    const released = Promise.withResolvers<void>();
    await page.route(/todos\/[234]$/, async (route) => {
      // The tick of “two” succeeds, its deletion does not.
      if (route.request().url().endsWith("2") && route.request().method() === "PATCH")
        return route.continue();
      await released.promise;
      await reject(route, { title: "Forbidden", status: 403, code: "insufficient_scope" });
    });
    await chooseAction(page, "Mark all done");
    await page.getByRole("button", { name: "Delete: two" }).press("Enter");
    await expectTitles(page, ["(one)", "(three)", "(four)"]);
    await dismiss(page);
    released.resolve();
    await expectTitles(page, ["(one)", "(two)", "three", "four"]);
    const alerts = page.getByRole("alert");
    await alerts.getByText("“two” could not be deleted: Forbidden.").waitFor();
    await alerts.getByText("“three”, “four” could not be marked as done: Forbidden.").waitFor();
    for (const _ of [1, 2]) await alerts.getByRole("button", { name: "Dismiss" }).first().click();
    expect(await alerts.count()).toBe(0);
  });

  test("applies a double click or a repeated key to only one to-do", async () => {
    const titles = numbered(30);
    const { page, store } = await openList(titles, "?show=open");
    /** Clicks twice at the second row, which the first click hides. */
    const doubleClickSecond = async (selector: string): Promise<void> => {
      titles.splice(1, 1);
      await doubleClick(page, page.locator(selector).nth(1), () => expectTitles(page, titles));
    };
    await doubleClickSecond(".todo button");
    await dismiss(page);
    await Bun.sleep(500);
    await doubleClickSecond(".todo input");
    for (const [key, control] of [
      ["Delete", page.getByRole("checkbox", { name: "to-do 10", exact: true })],
      ["Backspace", page.getByRole("checkbox", { name: "to-do 15" })],
      ["Enter", page.getByRole("button", { name: "Delete: to-do 20" })],
    ] as const) {
      await control.focus();
      for (let repeat = 0; repeat < 10; repeat++) await page.keyboard.down(key);
      await page.keyboard.up(key);
      await dismiss(page);
    }
    const remaining = titles.filter((title) => !/ (?:[12]0|15)$/.test(title));
    await expectTitles(page, remaining);
    // The store also has the to-do that is done.
    await until(
      async () => (await storedTodos(store)).length <= remaining.length + 1,
      "the deletions are sent",
    );
    expect(await storedTodos(store)).toHaveLength(remaining.length + 1);
    await page.getByRole("checkbox", { name: "to-do 21" }).focus();
    // Separate key presses each delete one to-do.
    for (const title of ["to-do 21", "to-do 22", "to-do 23"]) {
      await page.keyboard.press("Delete");
      remaining.splice(remaining.indexOf(title), 1);
      await expectTitles(page, remaining);
    }
  });

  test.each([true, false])("a press outside of the menu only closes it (touch: %p)", async (isTouch) => {
    const { page } = await openList(["one", "two"], "", {
      viewport: { width: 390, height: 844 },
      hasTouch: isTouch,
    });
    const pressOn = async (locator: Locator, force = false): Promise<void> => {
      const options = { position: { x: 8, y: 8 }, force };
      await (isTouch ? locator.tap(options) : locator.click(options));
    };
    const isMenuOpen = () => page.locator("#menu").isVisible();
    for (const target of [
      page.locator(".todo label").first(),
      page.getByRole("checkbox", { name: "two" }),
      ...(isTouch ? [] : [page.getByRole("button", { name: "Delete: two" })]),
    ]) {
      await pressOn(page.getByRole("button", { name: "List actions" }));
      await page.locator("#menu").waitFor();
      // Away from the rows.
      await page.evaluate("document.querySelector('#menu').style.translate = '0 380px'");
      // Something covers it.
      await pressOn(target, true);
      await until(async () => !(await isMenuOpen()), "the menu is closed");
      await page.evaluate("new Promise(requestAnimationFrame)");
      await expectTitles(page, ["one", "two"]);
      expect(await page.locator("#undo").count()).toBe(0);
    }
    await pressOn(page.getByRole("checkbox", { name: "two" }));
    await expectTitles(page, ["one", "(two)"]);
    await pressOn(page.getByRole("button", { name: "List actions" }));
    await page.locator("#menu").waitFor();
    await pressOn(page.getByRole("button", { name: "List actions" }));
    expect(await isMenuOpen()).toBe(false);
    await pressOn(page.getByRole("button", { name: "List actions" }));
    await pressOn(page.getByRole("button", { name: "Clear 1 done" }));
    await expectTitles(page, ["one"]);
  });

  test("covers the button of the menu with the field while it scrolls, and the messages while the menu is open", async () => {
    const { page } = await openList(numbered(60), "", { viewport: { width: 390, height: 844 } });
    const menuButton = page.getByRole("button", { name: "List actions" });
    const field = await page.locator(".composer").boundingBox();
    const bounds = await menuButton.boundingBox();
    await page.evaluate((y) => scrollTo({ top: y }), (bounds?.y ?? 0) - (field?.height ?? 0) / 2 + 10);
    const isOnTop = (element: Element): boolean => {
      const { left, top, width, height } = element.getBoundingClientRect();
      return (
        document.elementFromPoint(left + width / 2, top + height / 2)?.closest(`#${element.id}`) !== null
      );
    };
    expect(await page.$eval("#show-menu", isOnTop)).toBe(false);
    await page.evaluate(() => scrollTo({ top: 0 }));
    await page.getByRole("checkbox", { name: "to-do 1", exact: true }).check();
    const undo = page.getByRole("button", { name: "Undo" });
    await undo.waitFor();
    await menuButton.click();
    expect(await page.$eval("#undo", isOnTop)).toBe(false);
    expect(await page.$eval("#show-menu", isOnTop)).toBe(true);
    await undo.click({ force: true });
    expect(await page.locator("#menu").isVisible()).toBe(false);
    expect(await page.getByRole("checkbox", { name: "to-do 1", exact: true }).isChecked()).toBe(true);
  });

  test("applies a double click on an action only to that action", async () => {
    const { page } = await openList(["one", "two"]);
    const done = ["(one)", "(two)"];
    await page.getByRole("button", { name: "List actions" }).click();
    const markAll = page.getByRole("button", { name: "Mark all done" });
    await doubleClick(page, markAll, () => expectTitles(page, done));
    expect(await page.locator("#undo").textContent()).toBe("Marked 2 to-dos as doneUndo");
  });

  test("shows the focused row and a new row between the field and the messages", async () => {
    const { page } = await openList(numbered(60));
    const isCovered = (selector: string): Promise<boolean> =>
      page.$eval(selector, (element) => {
        const { top, bottom } = element.getBoundingClientRect();
        const fieldEnd = document.querySelector(".composer")?.getBoundingClientRect().bottom ?? 0;
        const message = document.querySelector("#undo")?.getBoundingClientRect();
        return top < fieldEnd || bottom > (message?.top ?? innerHeight);
      });
    await page.getByRole("checkbox", { name: "to-do 1", exact: true }).focus();
    await page.keyboard.press("Delete");
    await page.getByText("Deleted “to-do 1”").first().waitFor();
    for (const key of [...Array(30).fill("ArrowDown"), ...Array(25).fill("ArrowUp")]) {
      await page.keyboard.press(key);
      const name = await focusedName(page);
      expect([key, name, await isCovered(":focus")]).toEqual([key, name, false]);
    }
    await chooseAction(page, "Oldest first");
    await page.evaluate(() => scrollTo({ top: 1500 }));
    const field = page.getByLabel("New to-do");
    const scrolled = await page.evaluate(() => scrollY);
    await field.pressSequentially("newest");
    // Typing does not scroll.
    expect(await page.evaluate(() => scrollY)).toBe(scrolled);
    await field.press("Enter");
    await page.locator(".todo.new").waitFor();
    expect(await isCovered(".todo.new")).toBe(false);
  });

  test("keeps the filter in the URL and the history", async () => {
    const { page } = await openList(["one", "(two)", "three"], "?show=done");
    await expectTitles(page, ["(two)"]);
    for (const modifier of ["ControlOrMeta", "Shift"] as const) {
      const opened = page.context().waitForEvent("page");
      await page.getByRole("link", { name: "Open 2" }).click({ modifiers: [modifier] });
      const tab = await opened;
      await expectTitles(tab, ["one", "three"]);
      await tab.close();
    }
    await expectTitles(page, ["(two)"]);
    await page.getByRole("link", { name: "Open 2" }).click();
    await expectTitles(page, ["one", "three"]);
    await page.getByText("Open to-dos: 2").waitFor();
    expect(new URL(page.url()).search).toBe("?show=open");
    expect(await page.locator("[data-show][aria-current=page]").textContent()).toBe("Open 2");
    await page.getByRole("link", { name: "All 3" }).click();
    await expectTitles(page, ["one", "(two)", "three"]);
    await page.evaluate(() => history.back());
    await expectTitles(page, ["one", "three"]);
    await page.evaluate(() => history.back());
    await expectTitles(page, ["(two)"]);
    await page.evaluate(() => history.forward());
    await expectTitles(page, ["one", "three"]);
    // check() would read the checkbox after the click, but its row is gone.
    await page.getByRole("checkbox", { name: "one" }).click();
    await expectTitles(page, ["three"]);
    await page.reload();
    await expectTitles(page, ["three"]);
  });

  test("shows every title as text", async () => {
    const store = openMemory();
    const service = use(start(store));
    const live = await open(service.url);
    await live.page.getByText("Nothing here yet. Add your first to-do above.").waitFor();
    for (const title of UNUSUAL_TITLES) await store.insert(title);
    await expectTitles(live.page, UNUSUAL_TITLES);
    for (const width of [1000, 320]) {
      const { page } = await open(service.url, { viewport: { width, height: 700 } });
      await expectTitles(page, UNUSUAL_TITLES);
      expect(await page.title()).toBe(`${UNUSUAL_TITLES.length} open · To-dos`);
      expect(await page.locator(".todo img, .todo script").count()).toBe(0);
      expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBe(width);
      const truncated = await page
        .locator(".todo .title")
        .evaluateAll((all) => all.filter((title) => title.scrollWidth > title.clientWidth).length);
      expect(truncated).toBe(0);
      // The text direction of one title must not change other elements.
      const buttons = await page
        .locator(".todo button")
        .evaluateAll((all) => all.map((button) => Math.round(button.getBoundingClientRect().left)));
      expect(new Set(buttons).size).toBe(1);
    }
  });

  test("works with the keyboard only", async () => {
    const { page, store, service, hosts } = await openList([]);
    await page.getByText("Nothing here yet. Add your first to-do above.").waitFor();
    expect(await page.title()).toBe("To-dos");
    // Another announcement may replace one before the test reads it.
    const announced: string[] = [];
    await page.exposeFunction("onAnnouncement", (text: string) => announced.push(text));
    await page.evaluate(`new MutationObserver(() => onAnnouncement(document.querySelector("#announcement").textContent))
      .observe(document.querySelector("#announcement"), { childList: true })`);
    await press(page, "Tab");
    expect(await focusedName(page)).toBe("title");
    for (const title of ["one", "two", "three"]) {
      await page.keyboard.type(title);
      await press(page, "Enter");
      await page.getByRole("checkbox", { name: title }).waitFor();
      await untilEmpty(page);
    }
    // The button, three filters, the menu with the actions, then the first row.
    await press(page, "Tab", "Tab", "Tab", "Tab", "Tab", "Enter");
    for (const action of ["Copy list", "Oldest first", "Shortcuts", "API keys", "API", "Mark all done"]) {
      await press(page, "Tab");
      expect(await page.evaluate(() => document.activeElement?.textContent)).toBe(action);
    }
    await press(page, "Escape");
    expect(await focusedName(page)).toBe("List actions");
    await press(page, "Tab");
    expect(await focusedName(page)).toBe("one");
    const outline = await page.evaluate(() => {
      const { outlineStyle, outlineWidth } = getComputedStyle(document.activeElement ?? document.body);
      return `${outlineStyle} ${outlineWidth}`;
    });
    expect(outline).toBe("solid 2px");
    await press(page, "ArrowDown", "Space");
    await expectTitles(page, ["one", "three", "(two)"]);
    await untilStored(store, ["1 one", "2 (two)", "3 three"]);
    expect(await focusedName(page)).toBe("three");
    await press(page, "ArrowUp", "ArrowUp");
    expect(await focusedName(page)).toBe("one");
    await press(page, "ArrowDown", "ArrowDown", "ArrowDown");
    for (const modifier of ["Control", "Alt", "Meta"]) {
      await press(page, `${modifier}+Delete`);
      expect(await page.locator("#announcement").textContent()).not.toContain("Deleted");
      await press(page, `${modifier}+ArrowDown`);
    }
    expect(await focusedName(page)).toBe("two");
    await press(page, "Delete");
    await expectTitles(page, ["one", "three"]);
    expect(await focusedName(page)).toBe("three");
    await press(page, "Tab");
    expect(await focusedName(page)).toBe("Delete: three");
    await press(page, "Enter");
    await expectTitles(page, ["one"]);
    expect(await focusedName(page)).toBe("Delete: one");
    await press(page, "Enter");
    await expectTitles(page, []);
    expect(await focusedName(page)).toBe("title");
    await until(
      () => announced.includes("Deleted “one”. Press Ctrl+Z to undo."),
      "the deletion is announced",
    );
    expect([...hosts]).toEqual([new URL(service.url).host]);
  });

  test("shows 100,000 to-dos", async () => {
    const store = openMemory();
    for (let n = 1; n <= 100_000; n++) await store.insert(`to-do ${n}`);
    const { page } = await openList(store);
    await page.getByRole("checkbox", { name: "to-do 1", exact: true }).waitFor();
    await page.getByRole("link", { name: "All 100k" }).waitFor();
    expect(await page.locator(".todo").count()).toBeLessThan(500);
    for (const fraction of [0.5, 1, 0.25]) {
      await page.evaluate((part) => scrollTo({ top: document.body.scrollHeight * part }), fraction);
      await page.waitForFunction(() =>
        [...document.querySelectorAll(".todo")].some((row) => {
          const { top } = row.getBoundingClientRect();
          return top > 0 && top < innerHeight;
        }),
      );
      expect(await page.locator(".todo").count()).toBeLessThan(500);
    }
    await add(page, "at the end");
    const last = page.getByRole("checkbox", { name: "at the end" });
    await last.waitFor();
    expect(await last.isVisible()).toBe(true);
    await last.check();
    // The fold is one of the rows.
    expect(await page.locator('.todo[aria-posinset="100002"]').getAttribute("aria-setsize")).toBe("100002");
    await store.setDone(1n, true);
    await page.getByRole("link", { name: "Done 2" }).click();
    await expectTitles(page, ["(to-do 1)", "(at the end)"]);
  });

  test.each(["light", "dark"] as const)("is accessible in the %s theme", async (colorScheme) => {
    const { page } = await openList(
      await createStore([...UNUSUAL_TITLES, "last"], { maxTodos: UNUSUAL_TITLES.length + 1 }),
      "",
      { colorScheme },
    );
    await page.getByRole("checkbox", { name: "last" }).check();
    await dismiss(page);
    await add(page, "one too many");
    await page.getByRole("alert").getByText("could not be added:").waitFor();
    expect(await accessibilityViolations(page)).toEqual([]);
    await page.getByRole("link", { name: "Done" }).click();
    await page.getByRole("button", { name: "Delete: last" }).click();
    await page.getByText("No to-dos are done yet.").waitFor();
    expect(await accessibilityViolations(page)).toEqual([]);
  });
});
