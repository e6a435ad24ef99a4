import { describe, expect, setDefaultTimeout, test } from "bun:test";
import type { Page } from "playwright-core";
import { startWeb } from "../test/chromium.ts";
import { freePort } from "../test/free-port.ts";
import { accessibilityViolations, describeInChromium } from "../test/page.ts";
import { skipFor } from "../test/skip.ts";
import {
  add,
  chooseAction,
  createStore,
  dismiss,
  expectTitles,
  numbered,
  start,
  untilChanges,
  untilStored,
  useTodosPage,
} from "../test/todos-page.ts";
import { until } from "../test/until.ts";
import { launchFirefox, whyNoFirefox } from "../test/webdriver.ts";

setDefaultTimeout(180_000);

/** A host that is not loopback for the page. Chromium treats it as secure. */
const HOST = "list.secure.example";

/** What a browser keeps of the list, as a page of its origin sees it. */
const KEPT = `(async () => {
  const registrations = await navigator.serviceWorker.getRegistrations();
  const active = registrations.filter(({ active }) => active?.state === "activated");
  const list = await caches.match("/last-list");
  return JSON.stringify({
    workers: registrations.length,
    isActive: active.length === 1,
    titles: list === undefined ? "" : (await list.json()).todos.map(({ title }) => title).join(),
  });
})()`;

/** Waits until the browser keeps this. The page may reload meanwhile. */
const untilKeeps = (page: Pick<Page, "evaluate">, expected: object): Promise<void> =>
  until(
    async () => {
      try {
        return Bun.deepMatch(expected, JSON.parse(String(await page.evaluate(KEPT))));
      } catch (error) {
        if (/context was destroyed|because of a navigation|no such frame|Target closed/i.test(String(error)))
          return false;
        throw error;
      }
    },
    `the browser keeps ${JSON.stringify(expected)}`,
  );

const untilKept = (page: Pick<Page, "evaluate">, titles: readonly string[]): Promise<void> =>
  untilKeeps(page, { isActive: true, titles: titles.join() });

describeInChromium("to-dos page without a connection", () => {
  const { open, openList, use } = useTodosPage({ serviceWorkers: "allow", locale: "en-GB" });

  /** Opens a list, and waits until the browser keeps it. Another service can have its address then. */
  async function openKept(...titles: readonly string[]) {
    const opened = await openList(titles);
    await untilKept(opened.page, titles);
    return opened;
  }

  test("shows the last list until the service is up again, and then sends what the user changed in it", async () => {
    const { page, store, service } = await openList(["one", "(two)"], "?show=open");
    await expectTitles(page, ["one"]);
    await store.insert("three");
    await untilKept(page, ["one", "two", "three"]);
    await service[Symbol.asyncDispose]();

    // As on a slow phone.
    await page.addInitScript(() => {
      const { match } = CacheStorage.prototype;
      CacheStorage.prototype.match = async function (...query) {
        await new Promise((resolve) => setTimeout(resolve, 1500));
        return match.apply(this, query);
      };
    });
    await page.reload();
    await expectTitles(page, ["one", "three"]);
    const notice = page.locator("#notice");
    // The page adds the date if the list is from before midnight.
    await notice
      .getByText(
        /^Offline, list from (?:\d+ \w+ \d{4}, )?\d\d:\d\d\. Changes made elsewhere will appear later\.$/,
      )
      .waitFor();
    await page.getByRole("link", { name: "All 3" }).click();
    await expectTitles(page, ["one", "(two)", "three"]);
    await page.getByRole("checkbox", { name: "one" }).press("Space");
    await add(page, "five");
    await page.getByRole("button", { name: "Delete: three" }).press("Enter");
    await chooseAction(page, "Clear 2 done");
    await page.keyboard.press("ControlOrMeta+z");
    await expectTitles(page, ["(one)", "(two)", "five"]);
    await notice.getByText("3 changes will be sent later.").waitFor();
    for (const colorScheme of ["light", "dark"] as const) {
      await page.emulateMedia({ colorScheme });
      expect(await accessibilityViolations(page)).toEqual([]);
    }

    await store.insert("four");
    use(start(store, service.port));
    await expectTitles(page, ["(one)", "(two)", "four", "five"]);
    await page.waitForFunction(() => document.querySelector("#notice")?.textContent === "");
    await dismiss(page);
    await untilStored(store, ["1 (one)", "2 (two)", "4 four", "5 five"]);
    await untilKept(page, ["one", "two", "four", "five"]);
  });

  test("opens at its URL, also after the browser has closed all windows of the page", async () => {
    const { page: closed, store, service } = await openKept("one");
    const context = closed.context();
    await closed.close();
    await service[Symbol.asyncDispose]();
    const page = await context.newPage();
    await page.goto(`${service.url}/?q=on`);
    await expectTitles(page, ["one"]);
    await page.getByText(/^Offline, list from/).waitFor();
    const again = start(store, service.port);
    // The list has not changed since.
    await page.locator("#notice:empty").waitFor({ state: "attached" });
    await again[Symbol.asyncDispose]();
    // Other pages have no copy.
    const failure = await page.goto(`${service.url}/docs`).catch((error) => error);
    expect(String(failure)).toContain("ERR_CONNECTION_REFUSED");
  });

  test("is shown if a proxy responds with 502, or if no response arrives", async () => {
    const port = await freePort();
    const network = { allowedHosts: [`${HOST}:${port}`] };
    const service = start(await createStore(["one"]), port, { network });
    const { page } = await open(`http://${HOST}:${port}`);
    await untilKept(page, ["one"]);
    await service[Symbol.asyncDispose]();
    const answers = [
      () => new Response("Bad Gateway", { status: 502 }),
      () => new Promise<Response>(() => {}),
    ];
    for (const fetch of answers) {
      await using _proxy = startWeb(fetch, port);
      await page.reload({ waitUntil: "commit" });
      await expectTitles(page, ["one"]);
      await page.getByText(/^Offline, list from/).waitFor();
    }
  });

  test.each([
    [500, 0],
    [404, 0],
    [200, 1000],
  ])("on loopback, is not shown in place of another program's answer %d after %d ms", async (status, ms) => {
    const { page, service } = await openKept("one");
    await service[Symbol.asyncDispose]();
    const answer = async (): Promise<Response> => {
      await Bun.sleep(ms);
      return new Response("another program", { status });
    };
    use(startWeb(answer, service.port));
    await page.reload();
    await page.getByText("another program").waitFor();
    expect(await page.locator(".todo").count()).toBe(0);
  });

  test.each([
    ["is not used any more", "another program", { worker: 404, health: 404 }, 0],
    ["is not used any more", "a program that is healthy, too,", { worker: 404, health: 200 }, 0],
    ["stays", "a proxy that fails", { worker: 502, health: 502 }, 1],
    ["stays", "a proxy with a login", { worker: 401, health: 401 }, 1],
    ["stays", "a service with one broken path", { worker: 404, health: 200, text: "ok\n" }, 1],
    ["stays", "a proxy that redirects", { worker: 302, health: 302 }, 1],
  ])("%s if %s answers, and unsent changes are kept", async (_what, _who, answers, workers) => {
    const { page, service } = await openKept("one");
    await service[Symbol.asyncDispose]();
    await add(page, "two");
    let asked = 0;
    use(
      startWeb(async ({ url }) => {
        const { pathname } = new URL(url);
        const isWorker = pathname === "/service-worker.js";
        if (!isWorker && pathname !== "/livez") return new Response("another program", { status: 404 });
        asked++;
        const { worker, health, text = "fine" } = { text: undefined, ...answers };
        const status = isWorker ? worker : health;
        return new Response(text, { status, headers: status === 302 ? { Location: "/login" } : {} });
      }, service.port),
    );
    await until(async () => asked >= 2, "the page asks who answers");
    await untilKeeps(page, { workers });
    await untilChanges(page, 1);
  });

  test("stores the newest 5,000 to-dos of a longer list, and displays that", async () => {
    const titles = numbered(5100);
    const { page, service } = await openList(titles);
    await untilKept(page, titles.slice(100));
    const notice = page.getByText(
      /^Offline, the newest 5,000 of 5,100 to-dos from (?:\d+ \w+ \d{4}, )?\d\d:\d\d\./,
    );
    // The first page of the list arrives.
    await page.route(/\/api\/todos\?after=/, (route) => route.abort());
    await page.reload();
    await notice.waitFor();
    expect(await page.locator("#placeholder").textContent()).toBe("");
    await service[Symbol.asyncDispose]();
    await page.reload();
    await notice.waitFor();
    await page.getByText("to-do 101", { exact: true }).waitFor();
  });

  test("is ignored if it cannot be read", async () => {
    const { page, service } = await openKept("one");
    for (const entry of ["{", '{"todos":[{}],"total":1,"readAt":"2026-01-01"}']) {
      // The page of the list would store it again when it closes.
      await page.goto(`${service.url}/docs`);
      await page.evaluate(
        async (text) => (await caches.open("todo-service.list")).put("/last-list", new Response(text)),
        entry,
      );
      await page.route(/\/api\/todos\?/, (route) => route.abort());
      await page.goto(service.url);
      await page.getByText("The list cannot be loaded").waitFor();
      await page.unroute(/\/api\/todos\?/);
      await expectTitles(page, ["one"]);
    }
  });

  test("is where a new start continues, without loading the list", async () => {
    const { page, store, service } = await openKept("one", "two");
    await page.goto(`${service.url}/docs`);
    await store.insert("three");
    await store.delete(1n);
    const lists: string[] = [];
    page.on("request", (request) => {
      if (/api.todos/.test(request.url())) lists.push(request.url());
    });
    await page.goto(service.url);
    await expectTitles(page, ["two", "three"]);
    expect(lists).toEqual([]);
    // Another store has another list, whatever the browser keeps.
    await service[Symbol.asyncDispose]();
    use(start(await createStore(["four"]), service.port));
    await page.goto(service.url);
    await expectTitles(page, ["four"]);
  });

  test("is loaded again if no event stream can continue it, so that changes are sent", async () => {
    const { page, store } = await openKept("one");
    await page.route("**/api/events*", (route) => route.abort());
    await page.reload();
    await page.getByRole("checkbox", { name: "one" }).press("Space");
    await untilStored(store, ["1 (one)"]);
  });

  test("does not handle requests for the API and for other pages in the service worker", async () => {
    const { page, store, service } = await openKept("one");
    const paths = new Set<string>();
    page.context().on("request", (request) => {
      if (request.serviceWorker() !== null) paths.add(new URL(request.url()).pathname);
    });
    await page.reload();
    expect(await page.evaluate(() => navigator.serviceWorker.controller !== null)).toBe(true);
    await add(page, "two");
    await page.getByRole("checkbox", { name: "one" }).check();
    await dismiss(page);
    await store.insert("three");
    await expectTitles(page, ["(one)", "two", "three"]);
    for (const path of ["/docs", "/nothing"]) await page.goto(service.url + path);
    await page.goto(service.url);
    await expectTitles(page, ["(one)", "two", "three"]);
    expect([...paths].filter((path) => !path.startsWith("/assets/"))).toEqual(["/"]);
  });

  test("is replaced at the first visit after an update, and never mixes two versions", async () => {
    const backend = start(await createStore(["one"]));
    const port = await freePort();
    /** Which files come from the new version. */
    let updated: readonly string[] = [];
    /** How often a new worker has requested the page. */
    let installations = 0;
    const update = (path: string, text: string): string =>
      path === "/" ? text.replace("To-dos</h1>", "Updated</h1>") : `${text};"new"`;
    const proxy = startWeb(async (request) => {
      const { pathname, search } = new URL(request.url);
      const headers = new Headers(request.headers);
      if (pathname === "/" && headers.get("sec-fetch-mode") !== "navigate") installations++;
      headers.delete("if-none-match");
      headers.set("accept-encoding", "identity");
      const response = await fetch(backend.url + pathname + search, { headers });
      if (!updated.includes(pathname)) return response;
      const text = update(pathname, await response.text());
      // The build puts a hash of the page into the script.
      const changed = text
        .replace(/(?<=page-)[0-9a-f]{12}(?=")/, "0123456789ab")
        .replaceAll(/todos-[0-9a-f]{12}/g, updated.includes("/") ? "$&" : "todos-0123456789ab");
      return new Response(changed, { headers: response.headers });
    }, port);
    const url = `http://127.0.0.1:${port}`;
    const { page } = await open(url);
    await untilKept(page, ["one"]);
    const pageCaches = () =>
      page.evaluate(async () => (await caches.keys()).filter((name) => name.includes("page")).join());
    const before = await pageCaches();
    // While replicas are updated, the new script and the old page may come together.
    updated = ["/service-worker.js"];
    await page.reload();
    await until(() => installations === 2, "a new worker requests the page");
    const isRefused = () =>
      page.evaluate(async () => {
        const registration = await navigator.serviceWorker.getRegistration("/");
        return registration?.installing === null && registration.waiting === null;
      });
    await until(isRefused, "the new worker is refused");
    expect(await pageCaches()).toBe(before);
    updated = ["/", "/service-worker.js"];
    await page.reload();
    await page.getByRole("heading", { name: "Updated" }).waitFor();
    await until(async () => (await pageCaches()) === "todo-service.page-0123456789ab", "it is replaced");
    expect(before).not.toContain("0123456789ab");
    await untilKept(page, ["one"]);
    await proxy[Symbol.asyncDispose]();
    await backend[Symbol.asyncDispose]();
    await page.reload();
    await page.getByRole("heading", { name: "Updated" }).waitFor();
    await expectTitles(page, ["one"]);
  });

  test("deletes its list in the browser if the service becomes private while the page is open", async () => {
    const { page, store, service } = await openKept("mine alone");
    await service[Symbol.asyncDispose]();
    use(start(store, service.port, { access: { privateMode: true } }));
    await untilKeeps(page, { titles: "" });
  });

  test("works over plain HTTP, where the browser cannot store it", async () => {
    const { store, port } = use(start(await createStore(["one"]), 0, {}));
    // Over plain HTTP from another host, browsers have neither service workers nor caches.
    const { page } = await open(`http://list.lan:${port}`);
    expect(await page.evaluate(() => isSecureContext || "caches" in window)).toBe(false);
    await expectTitles(page, ["one"]);
    await page.getByRole("checkbox", { name: "one" }).check();
    await dismiss(page);
    await untilStored(store, ["1 (one)"]);
  });
});

describe.skipIf(skipFor(whyNoFirefox))("to-dos page without a connection, in Firefox", () => {
  const TITLES = `[...document.querySelectorAll(".todo .title")].map(({ textContent }) => textContent).join()`;
  const RELOAD = "void setTimeout(() => location.reload())";

  test("shows the last list, keeps a change, reconnects, and deletes all its data if the service becomes private", async () => {
    const port = await freePort();
    const store = await createStore(["one"]);
    const service = start(store, port);
    await using firefox = await launchFirefox();
    const page = await firefox.open(service.url);
    await untilKept(page, ["one"]);
    await page.evaluate("localStorage.setItem('todo-service.completed', 'shown')");
    await service[Symbol.asyncDispose]();
    await page.evaluate(RELOAD);
    const evaluate = (expression: string) => page.evaluate(expression).catch(() => undefined);
    await until(
      async () =>
        /^Offline, list from/.test(String(await evaluate("document.querySelector('#notice').textContent"))),
      "the list is offline",
    );
    await until(async () => (await evaluate(TITLES)) === "one", "the last list is shown");
    await page.evaluate("document.querySelector('.todo input').click()");
    await page.evaluate(RELOAD);
    await until(
      async () => (await evaluate("document.querySelector('.todo input').checked")) === true,
      "the change is kept",
    );
    await store.insert("two");
    const again = start(store, port);
    await until(async () => (await evaluate(TITLES)) === "two,one", "the list is current");
    await untilStored(store, ["1 (one)", "2 two"]);
    await untilKept(page, ["one", "two"]);
    await again[Symbol.asyncDispose]();
    await using _closed = start(store, port, { access: { privateMode: true } });
    await untilKeeps(page, { titles: "" });
  });
});
