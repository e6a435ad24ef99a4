import { expect, test } from "bun:test";
import type { Page } from "playwright-core";
import { describeInChromium } from "../test/page.ts";
import {
  add,
  createStore,
  expectTitles,
  start,
  untilChanges,
  untilStored,
  useTodosPage,
} from "../test/todos-page.ts";
import { until } from "../test/until.ts";

/** Makes the event stream deliver its first bytes at most, as a proxy does that holds back the body. */
const holdBody = (first: string): string => `{
  const fetchAll = fetch;
  globalThis.fetch = async (url, init) => {
    if (!String(url).includes("/api/events")) return fetchAll(url, init);
    const start = (body) => {
      if (${first.length} > 0) body.enqueue(new TextEncoder().encode(${JSON.stringify(first)}));
      init.signal.addEventListener("abort", () => body.error(init.signal.reason));
    };
    return new Response(new ReadableStream({ start }), { headers: { "Content-Type": "text/event-stream" } });
  };
}`;

const blockEvents = (page: Page) => page.route("**/api/events*", (route) => route.abort());

const NOTICE = "Too many windows show this list";

describeInChromium("to-dos page", () => {
  const { openList, openWithClock, use } = useTodosPage();

  test.each([
    "blocked",
    "held back by a proxy",
    "opened and then held back",
    "held back after a comment",
  ] as const)("shows the changes of others while the event stream is %s, and sends its own", async (how) => {
    const { page, store } = await openWithClock(["one"], async (page) => {
      if (how === "opened and then held back") await page.addInitScript(holdBody(""));
      else if (how === "held back after a comment") await page.addInitScript(holdBody(":\n"));
      else await page.route("**/api/events*", (route) => (how === "blocked" ? route.abort() : undefined));
    });
    for (const title of ["two", "three"]) {
      await store.insert(title);
      await page.clock.runFor(40_000);
      await page.getByText(title).waitFor();
    }
    await page.getByRole("checkbox", { name: "one" }).press("Space");
    await untilStored(store, ["1 (one)", "2 two", "3 three"]);
    const notice = how === "held back after a comment" ? "" : "Something between";
    await until(async () => {
      await page.clock.fastForward(5000);
      return (await page.locator("#notice").textContent())?.slice(0, 17) === notice;
    }, "the page says what is wrong");
    await page.unroute("**/api/events*");
  });

  test("does not repeat a tick without an answer that someone has undone, once the event stream delivers again", async () => {
    const { page, store } = await openWithClock(["one"], blockEvents);
    await page.clock.runFor(5000);
    await page.getByText("Something between").waitFor();
    let ticks = 0;
    await page.route("**/api/todos/1", async (route) => {
      ticks++;
      await route.fetch();
      if (ticks > 1) await route.continue();
    });
    await page.getByRole("checkbox", { name: "one" }).press("Space");
    await untilStored(store, ["1 (one)"]);
    await store.setDone(1n, false);
    await page.unroute("**/api/events*");
    await until(async () => {
      await page.clock.fastForward(1000);
      return (await page.evaluate(() => Object.keys(localStorage).join())).includes("change.") === false;
    }, "the tick is settled");
    await untilStored(store, ["1 one"]);
    expect(ticks).toBe(1);
  });

  test("changes no to-do of another list that has the same id, although no event says that the list is new", async () => {
    const { page, service } = await openWithClock(["one"], blockEvents);
    await service[Symbol.asyncDispose]();
    const { store } = use(start(await createStore(["other"]), service.port));
    await page.getByRole("checkbox", { name: "one" }).press("Space");
    await until(async () => {
      await page.clock.fastForward(5000);
      return (await page.getByText("another list since it restarted").count()) > 0;
    }, "the page reports the tick");
    await expectTitles(page, ["other"]);
    await untilStored(store, ["1 other"]);
  });

  test("loads the list of another store once, although the user goes on", async () => {
    const { page, service } = await openList(["one"]);
    await blockEvents(page);
    await page.reload();
    await expectTitles(page, ["one"]);
    await service[Symbol.asyncDispose]();
    const { store } = use(start(await createStore(["one"]), service.port));
    const released = Promise.withResolvers<void>();
    let lists = 0;
    await page.route(/limit=500/, async (route) => {
      lists++;
      await released.promise;
      await route.continue();
    });
    await add(page, "two");
    await until(async () => lists > 0, "the list is requested");
    for (const title of ["three", "four"]) await add(page, title);
    await untilChanges(page, 2);
    released.resolve();
    await untilStored(store, ["1 one", "2 two", "3 three", "4 four"]);
    expect(lists).toBe(1);
  });

  test("works in seven windows over HTTP/1.1, and shows which windows are not updated", async () => {
    const { page: first, store, service } = await openList(["one"]);
    const pages = [first];
    for (let count = 2; count <= 7; count++) {
      const page = await first.context().newPage();
      await page.goto(service.url);
      await expectTitles(page, ["one"]);
      if (count > 5) await page.getByText(NOTICE).waitFor();
      pages.push(page);
    }
    const [, second, , , , sixth, seventh] = pages;
    if (second === undefined || sixth === undefined || seventh === undefined)
      throw new Error("there are not seven windows");
    expect(await first.getByText(NOTICE).count()).toBe(0);
    await first.getByRole("checkbox", { name: "one" }).check();
    await untilStored(store, ["1 (one)"]);
    await expectTitles(second, ["(one)"]);
    await add(seventh, "two");
    await expectTitles(first, ["(one)", "two"]);
    expect(await sixth.getByText(NOTICE).isVisible()).toBe(true);
    // The windows that wait continue when others close.
    await first.close();
    await second.close();
    for (const page of [sixth, seventh]) {
      await page.getByText(NOTICE).waitFor({ state: "detached" });
      await expectTitles(page, ["(one)", "two"]);
    }
    await store.insert("three");
    await expectTitles(seventh, ["(one)", "two", "three"]);
  });
});
