import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import type { Browser, BrowserContextOptions, Locator, Page } from "playwright-core";
import { listen } from "../src/http/listen.ts";
import { createService } from "../src/http/service.ts";
import { type MemoryOptions, openMemory } from "../src/storage/memory.ts";
import type { TodoStore } from "../src/todo.ts";
import { launchBrowser, whyNoBrowser } from "../test/chromium.ts";
import { barriers, openWindow } from "../test/page.ts";

setDefaultTimeout(60_000);
if (whyNoBrowser !== undefined)
  process.stderr.write(`skipped: the page of the to-dos, for ${whyNoBrowser}\n`);

/** Between two windows, and what a person does not wait for. */
const AT_ONCE_MS = 1000;

const HOSTILE = [
  "<img src=x onerror=\"document.title='owned'\">",
  "</span><script>document.title='owned'</script>",
  "\u202Egnp.txt\u202C and \u2067more",
  "😀".repeat(120),
  "a\u0000b\nc",
  "W".repeat(120),
  "a\u0301\u0302\u0303".repeat(30),
  `Z${"\u0301".repeat(119)}`,
  // Line breaks to some; the events must not be cut there.
  "a\u2028b\u2029c\u0085",
];

function start(store: TodoStore, port = 0) {
  const listener = listen(createService({ store, onLoopback: true }), { host: "127.0.0.1", port });
  return {
    url: listener.url,
    port: Number(new URL(listener.url).port),
    [Symbol.asyncDispose]: () => listener.abort(),
  };
}

async function filled(titles: readonly string[], options: MemoryOptions = {}) {
  const store = openMemory(options);
  for (const title of titles) await store.insert(title);
  return store;
}

/** The titles that the page shows, in their order, those that are done in parentheses. */
const shown = (page: Page): Promise<string[]> =>
  page.$$eval(".todo", (rows) =>
    rows.map((row) => {
      const title = row.querySelector(".title")?.textContent ?? "";
      return row.querySelector("input")?.checked ? `(${title})` : title;
    }),
  );

/** Waits until the page shows just this. */
async function shows(page: Page, titles: readonly string[], timeout = 5000): Promise<void> {
  const deadline = performance.now() + timeout;
  while (JSON.stringify(await shown(page)) !== JSON.stringify(titles)) {
    if (performance.now() > deadline) expect(await shown(page)).toEqual([...titles]);
    await Bun.sleep(10);
  }
}

const held = async (store: TodoStore): Promise<unknown> => {
  const { json } = await store.list({});
  return JSON.parse(await new Response(json as BodyInit).text());
};

/** What has the focus: the accessible name of a button, or of a checkbox or field. */
const focused = (page: Page): Promise<string> =>
  page.evaluate(() => {
    const at = document.activeElement;
    return at?.ariaLabel ?? at?.closest("label")?.textContent ?? at?.id ?? "";
  });

/** Enters titles, each while the last is on its way, as all are from now on for 300 ms. */
async function enterAtOnce(page: Page, titles: readonly string[]): Promise<Locator> {
  await page.route("**/api/todos", async (route) => {
    await Bun.sleep(300);
    await route.continue();
  });
  const field = page.getByLabel("New to-do");
  for (const title of titles) {
    await field.fill(title);
    await page.keyboard.press("Enter");
  }
  return field;
}

describe.skipIf(whyNoBrowser !== undefined)("the page of the to-dos", () => {
  let browser: Browser;
  beforeAll(async () => {
    browser = await launchBrowser();
  }, 40_000);
  afterAll(() => browser?.close());

  const open = (url: string, options?: BrowserContextOptions) => openWindow(browser, url, options);

  test("adds, marks, unmarks and deletes", async () => {
    const store = openMemory();
    await using service = start(store);
    await using window = await open(service.url);
    const { page } = window;
    await page.getByText("Nothing to do yet.").waitFor();
    expect(await page.title()).toBe("To-dos");
    for (const title of ["buy milk", "call home"]) {
      await page.getByLabel("New to-do").fill(title);
      await page.getByRole("button", { name: "Add" }).click();
      await page.getByRole("checkbox", { name: title }).waitFor();
    }
    expect(await page.getByLabel("New to-do").inputValue()).toBe("");
    expect(await page.title()).toBe("2 open · To-dos");
    await page.getByRole("checkbox", { name: "buy milk" }).check();
    await shows(page, ["(buy milk)", "call home"]);
    await page.waitForFunction(() => document.title === "1 open · To-dos");
    await page.getByRole("checkbox", { name: "buy milk" }).uncheck();
    await shows(page, ["buy milk", "call home"]);
    await page.getByRole("button", { name: "Delete: call home" }).click();
    await shows(page, ["buy milk"]);
    await Bun.sleep(100);
    expect(await held(store)).toEqual([{ id: 1, title: "buy milk", done: false }]);
    expect(window.faults).toEqual([]);
    expect([...window.hosts]).toEqual([new URL(service.url).host]);
  });

  test("agrees with another window within a second", async () => {
    await using service = start(await filled(["one", "two"]));
    await using left = await open(service.url);
    await using right = await open(service.url);
    await shows(left.page, ["one", "two"]);
    await shows(right.page, ["one", "two"]);
    await left.page.getByLabel("New to-do").fill("three");
    await left.page.keyboard.press("Enter");
    await shows(right.page, ["one", "two", "three"], AT_ONCE_MS);
    await right.page.getByRole("checkbox", { name: "three" }).check();
    await shows(left.page, ["one", "two", "(three)"], AT_ONCE_MS);
    await left.page.getByRole("button", { name: "Delete: one" }).click();
    await shows(right.page, ["two", "(three)"], AT_ONCE_MS);
    await right.page.getByText("1 open, 1 done.").waitFor();
    expect(left.faults).toEqual([]);
    expect(right.faults).toEqual([]);
  });

  test("says that it is not connected, and is right again after the service was started anew", async () => {
    const first = start(await filled(["of the first life"]));
    await using window = await open(first.url);
    const { page } = window;
    await shows(page, ["of the first life"]);
    await first[Symbol.asyncDispose]();
    await page.getByText("Not connected, trying again.").waitFor();
    await shows(page, ["of the first life"]);
    await using _second = start(await filled(["of the second life", "another"]), first.port);
    await shows(page, ["of the second life", "another"], 15_000);
    await page.waitForFunction(() => document.querySelector("#notice")?.textContent === "");
    await page.getByText("Connected again.").waitFor();
    await page.getByLabel("New to-do").fill("and it goes on");
    await page.keyboard.press("Enter");
    await shows(page, ["of the second life", "another", "and it goes on"]);
    await page.route("**/api/todos*", (route) => route.abort());
    await page.reload();
    await page.getByText("The list cannot be loaded: the service cannot be reached.").waitFor();
    await page.unroute("**/api/todos*");
    await shows(page, ["of the second life", "another", "and it goes on"], 15_000);
    expect(await page.locator("#placeholder").textContent()).toBe("");
    expect(window.faults).toEqual([]);
  });

  test("takes up what it has missed, without a new list", async () => {
    const store = await filled(["one"]);
    const first = start(store);
    await using window = await open(first.url);
    const { page } = window;
    await shows(page, ["one"]);
    await first[Symbol.asyncDispose]();
    await store.insert("two");
    await store.setDone(1n, true);
    let lists = 0;
    page.on("request", (request) => {
      if (request.url().includes("/api/todos")) lists++;
    });
    await using _second = start(store, first.port);
    await shows(page, ["(one)", "two"], 15_000);
    expect(lists).toBe(0);
  });

  test("lets its stream go while nobody sees it, and catches up", async () => {
    const store = await filled(["one"]);
    await using service = start(store);
    await using window = await open("about:blank");
    const { page } = window;
    await page.clock.install();
    await page.goto(service.url);
    await shows(page, ["one"]);
    const see = (hidden: boolean) =>
      page.evaluate((isHidden) => {
        Object.defineProperty(document, "hidden", { configurable: true, value: isHidden });
        document.dispatchEvent(new Event("visibilitychange"));
      }, hidden);
    // Chromium without a screen draws hidden windows too.
    await page.evaluate(() => {
      const draw = requestAnimationFrame;
      globalThis.requestAnimationFrame = (callback) => (document.hidden ? 0 : draw(callback));
    });
    await see(true);
    await store.insert("two");
    await shows(page, ["one", "two"]);
    expect(await page.title()).toBe("2 open · To-dos");
    const ended = page.waitForEvent("requestfailed", (request) => request.url().includes("/api/events"));
    await page.clock.fastForward(31_000);
    await ended;
    await store.insert("three");
    await Bun.sleep(300);
    expect(await page.title()).toBe("2 open · To-dos");
    await see(false);
    await shows(page, ["one", "two", "three"]);
    expect(await page.title()).toBe("3 open · To-dos");
    expect(window.faults).toEqual([]);
  });

  test("shows the service's own messages beside the field, and keeps what was written", async () => {
    await using service = start(await filled([], { maxTodos: 1 }));
    await using window = await open(service.url);
    const { page } = window;
    const field = page.getByLabel("New to-do");
    const error = page.locator("#title-error");
    await field.fill("   ");
    await page.getByRole("button", { name: "Add" }).click();
    await page.getByText("The title must not be empty.").first().waitFor();
    expect(await field.getAttribute("aria-invalid")).toBe("true");
    expect(await focused(page)).toBe("title");
    await field.fill("x".repeat(121));
    expect(await error.textContent()).toBe("");
    await page.keyboard.press("Enter");
    await page.getByText("The title must be at most 120 characters.").first().waitFor();
    expect(await field.inputValue()).toBe("x".repeat(121));
    await field.fill("fits");
    await page.keyboard.press("Enter");
    await shows(page, ["fits"]);
    expect(await error.textContent()).toBe("");
    await field.fill("one too many");
    await page.keyboard.press("Enter");
    await page.getByText("It could not be added:").first().waitFor();
    expect(await field.inputValue()).toBe("one too many");
    expect(window.faults).toEqual([]);
  });

  test("leaves alone what is written while a to-do is on its way", async () => {
    await using service = start(openMemory());
    await using window = await open(service.url);
    const { page } = window;
    const wait = Promise.withResolvers<void>();
    await page.route("**/api/todos", async (route) => {
      if (route.request().method() === "POST") await wait.promise;
      await route.continue();
    });
    const field = page.getByLabel("New to-do");
    await field.fill("one");
    await page.keyboard.press("Enter");
    await page.keyboard.press("Enter");
    await field.fill("two");
    wait.resolve();
    await shows(page, ["one"]);
    expect(await field.inputValue()).toBe("two");
    await page.keyboard.press("Enter");
    await shows(page, ["one", "two"]);
    expect(await field.inputValue()).toBe("");
  });

  test("adds what is entered while a to-do is on its way", async () => {
    await using service = start(await filled([], { maxTodos: 2 }));
    await using window = await open(service.url);
    const { page } = window;
    const field = await enterAtOnce(page, ["one", "two"]);
    await shows(page, ["one", "two"]);
    expect(await field.inputValue()).toBe("");
    await field.fill("lost");
    await page.keyboard.press("Enter");
    await field.fill("next");
    await page.getByRole("alert").getByText("“lost” could not be added: It remembers").waitFor();
    expect(await field.inputValue()).toBe("next");
    expect(window.faults).toEqual([]);
  });

  test("adds all that is entered while a to-do is on its way, as it was then, and nothing else", async () => {
    await using service = start(openMemory());
    await using window = await open(service.url);
    const { page } = window;
    const field = await enterAtOnce(page, ["one", "two", "three"]);
    await field.fill("not ent");
    await shows(page, ["one", "two", "three"]);
    await Bun.sleep(500);
    await shows(page, ["one", "two", "three"]);
    expect(await field.inputValue()).toBe("not ent");
    expect(window.faults).toEqual([]);
  });

  test("adds one to-do when the answer was lost and it is entered again", async () => {
    const store = openMemory();
    await using service = start(store);
    await using window = await open(service.url);
    const { page } = window;
    await page.route("**/api/todos", async (route) => {
      await route.fetch();
      await route.abort("connectionreset");
    });
    const field = page.getByLabel("New to-do");
    await field.fill("one");
    await page.keyboard.press("Enter");
    await page
      .getByText("It is not known whether it was added: the service cannot be reached.")
      .first()
      .waitFor();
    await shows(page, ["one"]);
    await page.unroute("**/api/todos");
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => document.querySelector("input")?.value === "");
    await field.fill("one");
    await page.keyboard.press("Enter");
    await shows(page, ["one", "one"]);
    expect(await held(store)).toHaveLength(2);
    expect(window.faults).toEqual([]);
  });

  test("keeps what is seen in its place when something goes above it", async () => {
    const store = await filled(Array.from({ length: 300 }, (_, at) => `to-do ${at + 1}`));
    await using service = start(store);
    await using window = await open(`${service.url}/?show=open`);
    const { page } = window;
    await page.waitForFunction(() => document.title.startsWith("300 "));
    let first = 0n;
    for (const scroll of [1200, 6000, 11_000]) {
      await page.evaluate((top) => scrollTo({ top }), scroll);
      await Bun.sleep(300);
      const row = await page.evaluateHandle(() => document.elementFromPoint(500, 300)?.closest(".todo"));
      const place = () => page.evaluate((element) => element?.getBoundingClientRect().top, row);
      const before = await place();
      expect(before).toBeWithin(200, 301);
      for (const take of [(id: bigint) => store.delete(id), (id: bigint) => store.setDone(id, true)]) {
        const title = await page.title();
        await take(++first);
        await page.waitForFunction((before) => document.title !== before, title);
        expect(await place()).toBeCloseTo(before ?? 0, 0);
        await Bun.sleep(100);
        expect(await place()).toBeCloseTo(before ?? 0, 0);
      }
    }
    expect(window.faults).toEqual([]);
  });

  test("takes back what the service refuses, and says so", async () => {
    await using service = start(await filled(["one", "two"]));
    await using window = await open(service.url);
    const { page } = window;
    await shows(page, ["one", "two"]);
    const refusal = { title: "Something went wrong here", status: 500, code: "internal_error" };
    const wait = Promise.withResolvers<void>();
    await page.route("**/api/todos/*", async (route) => {
      await wait.promise;
      await route.fulfill({
        status: 500,
        contentType: "application/problem+json",
        body: JSON.stringify(refusal),
      });
    });
    await page.getByRole("checkbox", { name: "one" }).click();
    await page.getByRole("button", { name: "Delete: two" }).click();
    await shows(page, ["(one)"]);
    wait.resolve();
    await shows(page, ["one", "two"]);
    await page.getByRole("alert").getByText("could not be").waitFor();
    await page.getByRole("button", { name: "Dismiss" }).click();
    expect(await page.getByRole("alert").textContent()).toBe("");
    expect(window.faults).toEqual([]);
  });

  test("says when a to-do is gone that is marked", async () => {
    const store = await filled(["one", "two"]);
    await using service = start(store);
    await using window = await open(service.url);
    const { page } = window;
    await shows(page, ["one", "two"]);
    const wait = Promise.withResolvers<void>();
    await page.route("**/api/todos/*", async (route) => {
      await wait.promise;
      await route.continue();
    });
    await page.getByRole("checkbox", { name: "one" }).click();
    await store.delete(1n);
    wait.resolve();
    await page.getByRole("alert").getByText("deleted elsewhere").waitFor();
    await shows(page, ["two"]);
  });

  test("lets the last of many clicks count", async () => {
    const store = await filled(["one"]);
    await using service = start(store);
    await using window = await open(service.url);
    const { page } = window;
    await page.route("**/api/todos/*", async (route) => {
      await Bun.sleep(20);
      await route.continue();
    });
    const box = page.getByRole("checkbox", { name: "one" });
    for (let click = 0; click < 5; click++) await box.click();
    await shows(page, ["(one)"]);
    await Bun.sleep(300);
    expect(await held(store)).toEqual([{ id: 1, title: "one", done: true }]);
    await shows(page, ["(one)"]);
  });

  test("takes a double click, and a key that is held, as meant for one to-do", async () => {
    const titles = Array.from({ length: 30 }, (_, at) => `to-do ${at + 1}`);
    const store = await filled(titles);
    await using service = start(store);
    await using window = await open(`${service.url}/?show=open`);
    const { page } = window;
    await shows(page, titles);
    const twice = async (selector: string): Promise<void> => {
      const box = await page.locator(selector).nth(1).boundingBox();
      const [x, y] = [(box?.x ?? 0) + 10, (box?.y ?? 0) + 10];
      for (let click = 1; click <= 2; click++) {
        await page.mouse.click(x, y);
        await Bun.sleep(150);
      }
    };
    await twice(".todo button");
    titles.splice(1, 1);
    await shows(page, titles);
    await Bun.sleep(500);
    await twice(".todo input");
    titles.splice(1, 1);
    await shows(page, titles);
    for (const [key, control] of [
      ["Delete", page.getByRole("checkbox", { name: "to-do 10", exact: true })],
      ["Enter", page.getByRole("button", { name: "Delete: to-do 20" })],
    ] as const) {
      await control.focus();
      for (let times = 0; times < 10; times++) await page.keyboard.down(key);
      await page.keyboard.up(key);
    }
    const left = titles.filter((title) => !/ [12]0$/.test(title));
    await shows(page, left);
    await Bun.sleep(100);
    expect(await held(store)).toHaveLength(left.length + 1);
    // Pressed again and again, it is meant each time.
    for (const title of ["to-do 21", "to-do 22", "to-do 23"]) {
      await page.keyboard.press("Delete");
      left.splice(left.indexOf(title), 1);
      await shows(page, left);
    }
    expect(window.faults).toEqual([]);
  });

  test("keeps the filter in the address, and goes back", async () => {
    const store = await filled(["one", "two", "three"]);
    await store.setDone(2n, true);
    await using service = start(store);
    await using window = await open(`${service.url}/?show=done`);
    const { page } = window;
    await shows(page, ["(two)"]);
    for (const modifier of ["ControlOrMeta", "Shift"] as const) {
      const opened = page.context().waitForEvent("page");
      await page.getByRole("link", { name: "Open 2" }).click({ modifiers: [modifier] });
      const tab = await opened;
      await shows(tab, ["one", "three"], 15_000);
      await tab.close();
    }
    await shows(page, ["(two)"]);
    await page.getByRole("link", { name: "Open 2" }).click();
    await shows(page, ["one", "three"]);
    await page.getByText("Open to-dos: 2").waitFor();
    expect(new URL(page.url()).search).toBe("?show=open");
    expect(await page.locator("[aria-current=page]").textContent()).toBe("Open 2");
    await page.getByRole("link", { name: "All 3" }).click();
    await shows(page, ["one", "(two)", "three"]);
    await page.evaluate(() => history.back());
    await shows(page, ["one", "three"]);
    await page.evaluate(() => history.back());
    await shows(page, ["(two)"]);
    await page.evaluate(() => history.forward());
    await shows(page, ["one", "three"]);
    // Not check(), which would look at the box once more, and it is gone.
    await page.getByRole("checkbox", { name: "one" }).click();
    await shows(page, ["three"]);
    await page.reload();
    await shows(page, ["three"]);
    expect(window.faults).toEqual([]);
  });

  test("shows titles as text, whatever is in them", async () => {
    const store = openMemory();
    await using service = start(store);
    await using live = await open(service.url);
    await live.page.getByText("Nothing to do yet.").waitFor();
    for (const title of HOSTILE) await store.insert(title);
    await shows(live.page, HOSTILE);
    for (const width of [1000, 320]) {
      await using window = await open(service.url, { viewport: { width, height: 700 } });
      const { page } = window;
      await shows(page, HOSTILE);
      expect(await page.title()).toBe(`${HOSTILE.length} open · To-dos`);
      expect(await page.locator(".todo img, .todo script").count()).toBe(0);
      expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBe(width);
      const cut = await page
        .locator(".todo .title")
        .evaluateAll((all) => all.filter((title) => title.scrollWidth > title.clientWidth).length);
      expect(cut).toBe(0);
      // What one title does to the direction of text ends with it.
      const buttons = await page
        .locator(".todo button")
        .evaluateAll((all) => all.map((button) => Math.round(button.getBoundingClientRect().left)));
      expect(new Set(buttons).size).toBe(1);
      expect(window.faults).toEqual([]);
    }
  });

  test("keeps every digit of an id", async () => {
    const store = openMemory({ lastId: 2n ** 64n - 3n });
    await store.insert("the last but one");
    await store.insert("the last one");
    await using service = start(store);
    await using window = await open(service.url);
    const { page } = window;
    await page.getByRole("checkbox", { name: "the last one" }).check();
    await page.getByRole("button", { name: "Delete: the last but one" }).click();
    await shows(page, ["(the last one)"]);
    await Bun.sleep(100);
    expect(await (await fetch(`${service.url}/api/todos`)).text()).toBe(
      '[{"id":18446744073709551615,"title":"the last one","done":true}]',
    );
    expect(await page.locator(".todo").getAttribute("data-id")).toBe("18446744073709551615");
  });

  test("needs no mouse", async () => {
    await using service = start(openMemory());
    await using window = await open(service.url);
    const { page } = window;
    const press = async (...keys: readonly string[]) => {
      for (const key of keys) await page.keyboard.press(key);
    };
    await page.getByText("Nothing to do yet.").waitFor();
    await press("Tab", "Tab", "Tab");
    expect(await focused(page)).toBe("title");
    for (const title of ["one", "two", "three"]) {
      await page.keyboard.type(title);
      await press("Enter");
      await page.getByRole("checkbox", { name: title }).waitFor();
      await page.waitForFunction(() => document.querySelector("input")?.value === "");
    }
    // The button, three filters, then the rows.
    await press("Tab", "Tab", "Tab", "Tab", "Tab");
    expect(await focused(page)).toBe("one");
    const outline = await page.evaluate(() => {
      const { outlineStyle, outlineWidth } = getComputedStyle(document.activeElement ?? document.body);
      return `${outlineStyle} ${outlineWidth}`;
    });
    expect(outline).toBe("solid 2px");
    await press("ArrowDown", "Space");
    await shows(page, ["one", "(two)", "three"]);
    for (const modifier of ["Control", "Alt", "Meta"]) {
      await press(`${modifier}+Delete`);
      expect(await page.locator("#announcement").textContent()).not.toContain("Deleted");
      await press(`${modifier}+ArrowDown`);
    }
    expect(await focused(page)).toBe("two");
    await press("Delete");
    await shows(page, ["one", "three"]);
    expect(await focused(page)).toBe("three");
    await press("Tab");
    expect(await focused(page)).toBe("Delete: three");
    await press("Enter");
    await shows(page, ["one"]);
    expect(await focused(page)).toBe("Delete: one");
    await press("Enter");
    await shows(page, []);
    expect(await focused(page)).toBe("title");
    expect(await page.locator("#announcement").textContent()).toBe("Deleted: one");
    expect(window.faults).toEqual([]);
  });

  test("fits a phone", async () => {
    await using service = start(await filled(["one", "x".repeat(120)]));
    await using window = await open(service.url, {
      viewport: { width: 320, height: 568 },
      hasTouch: true,
      isMobile: true,
    });
    const { page } = window;
    await shows(page, ["one", "x".repeat(120)]);
    expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBe(320);
    const boxes = await page
      .locator("button, .todo label, .todo")
      .evaluateAll((all) => all.map((element) => element.getBoundingClientRect().toJSON()));
    for (const { left, right, height } of boxes) {
      expect(left).toBeGreaterThanOrEqual(0);
      expect(right).toBeLessThanOrEqual(320);
      expect(height).toBeGreaterThanOrEqual(44);
    }
    await page.getByText("one", { exact: true }).tap();
    await shows(page, ["(one)", "x".repeat(120)]);
  });

  test("holds 100,000 to-dos", async () => {
    const store = openMemory();
    for (let n = 1; n <= 100_000; n++) await store.insert(`to-do ${n}`);
    await using service = start(store);
    await using window = await open(service.url);
    const { page } = window;
    await page.getByRole("checkbox", { name: "to-do 1", exact: true }).waitFor();
    await page.getByRole("link", { name: "All 100,000" }).waitFor();
    expect(await page.locator(".todo").count()).toBeLessThan(500);
    for (const share of [0.5, 1, 0.25]) {
      await page.evaluate((part) => scrollTo({ top: document.body.scrollHeight * part }), share);
      await page.waitForFunction(() =>
        [...document.querySelectorAll(".todo")].some((row) => {
          const { top } = row.getBoundingClientRect();
          return top > 0 && top < innerHeight;
        }),
      );
      expect(await page.locator(".todo").count()).toBeLessThan(500);
    }
    await page.getByLabel("New to-do").fill("at the end");
    await page.keyboard.press("Enter");
    const last = page.getByRole("checkbox", { name: "at the end" });
    await last.waitFor();
    expect(await last.isVisible()).toBe(true);
    await last.check();
    expect(await page.locator('.todo[aria-posinset="100001"]').getAttribute("aria-setsize")).toBe("100001");
    await store.setDone(1n, true);
    await page.getByRole("link", { name: "Done 2" }).click();
    await shows(page, ["(to-do 1)", "(at the end)"]);
    expect(window.faults).toEqual([]);
  });

  test.each(["light", "dark"] as const)("has no barriers, in %s", async (colorScheme) => {
    await using service = start(await filled([...HOSTILE, "last"], { maxTodos: HOSTILE.length + 1 }));
    await using window = await open(service.url, { colorScheme, reducedMotion: "reduce" });
    const { page } = window;
    await page.getByRole("checkbox", { name: "last" }).check();
    await page.getByLabel("New to-do").fill("one too many");
    await page.keyboard.press("Enter");
    await page.getByText("It could not be added:").first().waitFor();
    expect(await barriers(page)).toEqual([]);
    await page.getByRole("link", { name: "Done" }).click();
    await page.getByRole("button", { name: "Delete: last" }).click();
    await page.getByText("Nothing is done yet.").waitFor();
    expect(await barriers(page)).toEqual([]);
    expect(window.faults).toEqual([]);
  });
});
