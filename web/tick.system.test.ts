import { expect, test } from "bun:test";
import type { Page } from "playwright-core";
import { accessibilityViolations, describeInChromium } from "../test/page.ts";
import {
  add,
  expectTitles,
  storedTodos,
  untilStored,
  useTodosPage,
  visibleTitles,
} from "../test/todos-page.ts";
import { until } from "../test/until.ts";

const PHONE = { viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true } as const;
const NUMBERS = Array.from({ length: 12 }, (_, index) => `to-do ${12 - index}`);

async function useFinger(page: Page) {
  const devTools = await page.context().newCDPSession(page);
  const send = (type: "touchStart" | "touchMove" | "touchEnd", points: { x: number; y: number }[]) =>
    devTools.send("Input.dispatchTouchEvent", { type, touchPoints: points });
  return {
    press: (x: number, y: number) => send("touchStart", [{ x, y }]),
    release: () => send("touchEnd", []),
    /** @param meanwhile runs before the finger leaves */
    swipe: async (
      from: { x: number; y: number },
      to: { x: number; y: number },
      meanwhile = async () => {},
    ) => {
      await send("touchStart", [from]);
      for (let step = 1; step <= 5; step++) {
        const between = (a: number, b: number) => a + ((b - a) * step) / 5;
        await send("touchMove", [{ x: between(from.x, to.x), y: between(from.y, to.y) }]);
      }
      await meanwhile();
      await send("touchEnd", []);
    },
  };
}

async function middle(page: Page, title: string) {
  const box = await page.locator(".todo", { hasText: title }).boundingBox();
  return { x: 150, y: (box?.y ?? 0) + (box?.height ?? 0) / 2 };
}

describeInChromium("to-dos page", () => {
  // As on a first visit.
  const { openList, openWithClock } = useTodosPage(PHONE, "");

  test("counts quick taps on neighboring rows, and moves no row before the last one or under a finger", async () => {
    // A busy machine may take longer for a tap than rows wait.
    const { page } = await openWithClock(NUMBERS.toReversed());
    await expectTitles(page, NUMBERS);
    await page.clock.pauseAt(Date.now() + 60_000);
    const places = [];
    for (const title of NUMBERS.slice(1, 5)) places.push(await middle(page, title));
    for (const { x, y } of places) {
      await page.touchscreen.tap(x, y);
      await page.clock.runFor(550);
    }
    expect(await visibleTitles(page)).toEqual(
      NUMBERS.map((title, index) => (index >= 1 && index < 5 ? `(${title})` : title)),
    );
    const finger = await useFinger(page);
    await finger.press(places[3]?.x ?? 0, (places[3]?.y ?? 0) + 54);
    await page.clock.runFor(2000);
    expect(await page.locator(".todo").count()).toBe(12);
    await finger.release();
    await page.clock.resume();
    await expectTitles(page, [NUMBERS[0] ?? "", ...NUMBERS.slice(6)]);
    expect(await page.locator(".fold").textContent()).toBe("Completed (5)");
  });

  test.each(["reduce", "no-preference"] as const)(
    "changes only the ticked row in the document, and closes its gap (reduced motion: %s)",
    async (reducedMotion) => {
      const { page } = await openList(NUMBERS.toReversed(), "", { ...PHONE, reducedMotion });
      await expectTitles(page, NUMBERS);
      await add(page, "new");
      await page.locator(".todo.new").waitFor();
      if (reducedMotion === "no-preference") await page.locator(".todo.new").waitFor({ state: "detached" });
      const tick = page.evaluate(async () => {
        const changed: (string | null)[] = [];
        const observer = new MutationObserver((records) => {
          for (const { addedNodes, removedNodes } of records)
            changed.push(...[...addedNodes, ...removedNodes].map((node) => node.textContent));
        });
        observer.observe(document.querySelector("#todos") ?? document, { childList: true, subtree: true });
        let moves = 0;
        while (changed.length < 2) {
          await new Promise((resolve) => requestAnimationFrame(resolve));
          // Only rows that take their places have motions without a style.
          moves += document.getAnimations().filter(({ id }) => id === "move").length;
        }
        const looks = [".todo .title", ".todo input"].map(
          (part) => getComputedStyle(document.querySelector(part) ?? document.body).transitionDuration,
        );
        return { changed, moves, hasTransitions: looks.some((look) => /[1-9]/.test(look)) };
      });
      const { x, y } = await middle(page, "to-do 12");
      await page.touchscreen.tap(x, y);
      const { changed, moves, hasTransitions } = await tick;
      await expectTitles(page, ["new", ...NUMBERS.slice(1)]);
      expect(changed).toEqual(["to-do 12", "Completed (1)"]);
      const hasMotion = reducedMotion === "no-preference";
      expect([moves > 0, hasTransitions]).toEqual([hasMotion, hasMotion]);
      expect(await page.locator(".todo.new").count()).toBe(hasMotion ? 0 : 1);
    },
  );

  test("changes the counts together with the rows", async () => {
    const { page } = await openList(["(one)", "two", "three"]);
    await page.getByText("Completed (1)").waitFor();
    const [before, after] = await page.evaluate(async () => {
      const read = () =>
        [".filter", ".fold"].map((part) => document.querySelector(part)?.textContent?.match(/\d+\D*$/)?.[0]);
      document.querySelector<HTMLElement>(".todo input:not(:checked)")?.click();
      const seen = [read().join(" ")];
      while (document.querySelector(".fold")?.textContent !== "Completed (2)")
        await new Promise((resolve) => requestAnimationFrame(resolve));
      return [...seen, read().join(" ")];
    });
    expect([before, after].map((text) => text?.replace(/\D+/g, " ").trim())).toEqual(["1 1", "2 2"]);
  });

  test("highlights what someone else adds and ticks, but not the list itself", async () => {
    const { page, store } = await openList(["one", "two"]);
    await expectTitles(page, ["two", "one"]);
    expect(await page.locator(".todo.new").count()).toBe(0);
    await store.insert("three");
    await page.locator(".todo.new", { hasText: "three" }).waitFor();
    await store.setDone(1n, true);
    await page.locator(".todo.new.done", { hasText: "one" }).waitFor();
    await expectTitles(page, ["three", "two"]);
    await page.getByText("2 open, 1 done.").waitFor();
    expect(await page.locator(".todo.new").allTextContents()).toEqual(["three"]);
  });

  test("completes an open row by a swipe to the right, and deletes it by one to the left, both with undo", async () => {
    const { page, store } = await openList(["one", "two", "three"]);
    await expectTitles(page, ["three", "two", "one"]);
    const finger = await useFinger(page);
    const swipe = async (title: string, x: number, to: number, meanwhile = async () => {}): Promise<void> => {
      const { y } = await middle(page, title);
      await finger.swipe({ x, y }, { x: to, y: y + 5 }, meanwhile);
    };
    // Too short, from the edge, and mostly vertical.
    const start = await middle(page, "two");
    await finger.swipe(start, { x: start.x + 50, y: start.y }, async () =>
      expect(await page.locator("[data-swipe]:not([data-far])").count()).toBe(1),
    );
    await swipe("two", 10, 300);
    const { x, y } = await middle(page, "two");
    await finger.swipe({ x, y }, { x: x + 120, y: y + 200 });
    expect(await visibleTitles(page)).toEqual(["three", "two", "one"]);
    await swipe("two", 100, 300);
    await expectTitles(page, ["three", "one"]);
    await page.getByText("Marked “two” as done").first().waitFor();
    await page.getByRole("button", { name: "Undo" }).click();
    await expectTitles(page, ["three", "two", "one"]);
    await swipe("one", 300, 100);
    await expectTitles(page, ["three", "two"]);
    await page.getByRole("button", { name: "Undo" }).click();
    await expectTitles(page, ["three", "two", "one"]);
    // Someone else ticks it during the swipe.
    await swipe("one", 100, 300, async () => {
      await store.setDone(1n, true);
      await page.locator(".todo.done", { hasText: "one" }).waitFor();
    });
    await expectTitles(page, ["three", "two"]);
    await untilStored(store, ["1 (one)", "2 two", "3 three"]);
    expect(await page.locator("[data-swipe]").count()).toBe(0);
  });

  test("says that all is done, and offers to clear the completed ones", async () => {
    const { page, store } = await openList(["one", "two"]);
    await expectTitles(page, ["two", "one"]);
    for (const title of ["one", "two"]) await page.getByRole("checkbox", { name: title }).tap();
    await page.getByText("All done.").waitFor();
    expect(await accessibilityViolations(page)).toEqual([]);
    const clear = page.getByRole("button", { name: "Clear 2 completed" });
    expect((await clear.boundingBox())?.height).toBeGreaterThanOrEqual(44);
    await clear.tap();
    await page.getByText("Nothing here yet.").waitFor();
    expect(await clear.isVisible()).toBe(false);
    await page.getByRole("button", { name: "Undo" }).click();
    await clear.waitFor();
    await clear.tap();
    await page.getByRole("button", { name: "Dismiss" }).tap();
    await until(async () => (await storedTodos(store)).length === 0, "the to-dos are deleted");
  });
});
