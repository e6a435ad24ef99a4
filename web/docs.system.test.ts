import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import type { Browser, Route } from "playwright-core";
import contract from "../openapi.json" with { type: "json" };
import { createFixedUserCheck } from "../src/credential/user.ts";
import { openMemory } from "../src/storage/memory/store.ts";
import { launchBrowser, whyNoBrowser } from "../test/chromium.ts";
import { accessibilityViolations, openWindow } from "../test/page.ts";
import { startService } from "../test/service.ts";
import { skipFor } from "../test/skip.ts";

/**
 * Violations by Swagger UI itself: its editor and its example selectors have no labels, the heading of an operation
 * contains buttons, and it has its own main landmark, inside the landmark of the page.
 */
const SWAGGER_UI_VIOLATIONS = [
  "label",
  "select-name",
  "nested-interactive",
  "landmark-main-is-top-level",
  "landmark-no-duplicate-main",
  "landmark-unique",
];

describe.skipIf(skipFor(whyNoBrowser))("API page", () => {
  let browser: Browser;
  beforeAll(async () => {
    browser = await launchBrowser();
  });
  afterAll(() => browser?.close());

  test("lists every operation and explains every error code, without Swagger UI", async () => {
    await using service = startService();
    await using window = await openWindow(browser, `${service.url}/docs`);
    const { page } = window;
    await page.locator(".operations a").first().waitFor();
    const listed = await page.locator(".operations code").allTextContents();
    const technical = ["/", "/docs", "/favicon.ico", "/assets/{name}", "/service-worker.js", "/admin"];
    const expected = Object.entries(contract.paths)
      .filter(([path]) => !technical.includes(path))
      .flatMap(([path, item]) => Object.keys(item).map(() => path));
    expect(listed.toSorted()).toEqual(expected.toSorted());
    // The first operation is on the first screen.
    expect((await page.locator(".operations a").first().boundingBox())?.y).toBeLessThan(800);
    for (const code of contract.components.schemas.Problem.properties.code.enum) {
      await page.locator("#reference").getByText(code, { exact: true }).first().waitFor();
    }
    expect(await page.locator("#example").textContent()).toContain(`curl ${service.url}/api/todos --json`);
    expect(await page.evaluate(() => "SwaggerUIBundle" in window)).toBe(false);
    expect(window.faults).toEqual([]);
    expect([...window.hosts]).toEqual([new URL(service.url).host]);
  });

  test.each([
    [1280, 800],
    [390, 844],
  ])("opens without a layout shift at %d × %d", async (width, height) => {
    await using service = startService();
    await using window = await openWindow(browser, "about:blank", { viewport: { width, height } });
    const { page } = window;
    await page.addInitScript(`globalThis.shifts = [];
      new PerformanceObserver((list) => shifts.push(...list.getEntries())).observe({ type: "layout-shift" })`);
    await page.goto(`${service.url}/docs`);
    await page.waitForFunction(() => performance.getEntriesByName("first-contentful-paint").length > 0);
    await page.evaluate(async () => {
      for (let frame = 0; frame < 10; frame++) await new Promise(requestAnimationFrame);
    });
    expect(await page.evaluate("shifts.length")).toBe(0);
  });

  test("opens the description of an error at the address in its type", async () => {
    await using service = startService();
    const problem = await fetch(`${service.url}/api/todos/1`);
    const { type }: { type: string } = JSON.parse(await problem.text());
    await using window = await openWindow(browser, new URL(type, problem.url).href);
    const code = window.page.getByText("todo_not_found", { exact: true });
    await code.waitFor();
    await window.page.waitForFunction(() => scrollY > 0);
    const box = await code.boundingBox();
    expect(box?.y).toBeWithin(0, window.page.viewportSize()?.height ?? 0);
  });

  test("opens the selected operation, with its errors collapsed", async () => {
    await using service = startService();
    await using window = await openWindow(browser, `${service.url}/docs`);
    const { page } = window;
    await page.getByRole("link", { name: "/api/todos/{id} Get a to-do" }).click();
    const operation = page.locator("#operations-todos-getTodo");
    await operation.locator(".execute").waitFor();
    expect(await operation.locator("details").getAttribute("open")).toBeNull();
    expect(await operation.locator(".responses-table .response-col_status").allTextContents()).toEqual([
      "Code",
      "200",
    ]);
    await operation.getByText(/^Errors \(\d+\)$/).click();
    await operation.getByRole("listitem").filter({ hasText: "404" }).waitFor();
    await operation.getByPlaceholder("id").fill("1");
    await operation.getByRole("button", { name: "Execute" }).click();
    await operation.locator(".live-responses-table").getByText('"todo_not_found"').waitFor();
    expect(window.faults).toEqual([]);
  });

  test("shows the events of the stream", async () => {
    const store = openMemory();
    await using service = startService({ store });
    await using window = await openWindow(browser, `${service.url}/docs#/todos/followTodos`);
    const { page } = window;
    const operation = page.locator("#operations-todos-followTodos");
    await operation.getByRole("button", { name: "Execute" }).click();
    await page.locator("#follow:focus").waitFor();
    await page.getByRole("log").getByText("position").waitFor();
    await store.insert("one");
    await page.getByRole("log").getByText('"title":"one"').waitFor();
    await page.getByRole("button", { name: "Show events" }).click();
    expect(await page.getByRole("button", { name: "Show events" }).getAttribute("aria-pressed")).toBe(
      "false",
    );
    await page.getByRole("button", { name: "Show events" }).click();
    await page.waitForFunction(
      () => document.querySelector("#events")?.textContent?.match(/position/g)?.length === 2,
    );
    await store.insert("two");
    await page.getByRole("log").getByText('"title":"two"').waitFor();
    expect(window.faults).toEqual([]);
  });

  test("reports that the forms of the operations cannot be loaded", async () => {
    await using service = startService();
    await using window = await openWindow(browser, "about:blank");
    const { page } = window;
    for (const [path, fail] of [
      ["**/swagger-ui-*.js", (route: Route) => route.abort()],
      ["**/api/openapi.json", (route: Route) => route.abort()],
      ["**/api/openapi.json", (route: Route) => route.fulfill({ status: 502, body: "<!doctype html>" })],
      ["**/api/openapi.json", (route: Route) => route.fulfill({ body: "[]" })],
    ] as const) {
      await page.route(path, fail, { times: 1 });
      // An address that differs only in its fragment would not load the page again.
      await page.goto("about:blank");
      await page.goto(`${service.url}/docs#/todos/getTodo`);
      await page.getByRole("alert").getByText("The forms of the operations cannot be loaded.").waitFor();
      expect(await page.locator(".operations a").count()).toBeGreaterThan(10);
    }
  });

  test("lists the operations without JavaScript", async () => {
    await using service = startService();
    await using window = await openWindow(browser, `${service.url}/docs`, { javaScriptEnabled: false });
    expect(await window.page.locator(".operations a").count()).toBeGreaterThan(10);
    await window.page.locator("noscript p").waitFor();
  });

  test("sends requests", async () => {
    const store = openMemory();
    await store.insert("one");
    await using service = startService({
      store,
      credentials: { checkUser: createFixedUserCheck("admin", "secret") },
    });
    await using window = await openWindow(browser, `${service.url}/docs#/todos`);
    const { page } = window;
    const send = async (id: string): Promise<string> => {
      const operation = page.locator(`#operations-${id}`);
      await operation.locator(".opblock-summary-control").click();
      await operation.getByRole("button", { name: "Execute" }).click();
      const body = operation.locator(".live-responses-table .highlight-code").first();
      return (await body.textContent()) ?? "";
    };
    expect(await send("todos-createTodo")).toContain('"id": 2');
    expect(await send("todos-listTodos")).toContain('"title": "one"');
    await page.getByRole("button", { name: "Authorize" }).first().click();
    await page.locator("#auth-basic-username, [name=username]").first().fill("admin");
    await page.locator("#auth-basic-password, [name=password]").first().fill("secret");
    const basic = page.locator(".auth-container", { hasText: "(http, Basic)" });
    await basic.locator(".authorize").click();
    await page.locator(".close-modal").click();
    expect(await send("credentials-greetAdmin")).toContain("Hello, admin!");
    expect(window.faults).toEqual([]);
    expect([...window.hosts]).toEqual([new URL(service.url).host]);
  });

  test.each(["light", "dark"] as const)(
    "is accessible and fits each window in the %s theme",
    async (colorScheme) => {
      await using service = startService();
      await using window = await openWindow(browser, `${service.url}/docs`, {
        colorScheme,
        reducedMotion: "reduce",
      });
      const { page } = window;
      await page.locator(".operations a").first().waitFor();
      await page.getByRole("button", { name: "Show events" }).click();
      await page.getByRole("log").getByText("position").waitFor();
      expect(await accessibilityViolations(page)).toEqual([]);
      const expectToFit = async (): Promise<void> => {
        for (const width of [320, 375, 768, 1000, 1280, 1920]) {
          await page.setViewportSize({ width, height: 700 });
          expect([width, await page.evaluate(() => document.documentElement.scrollWidth)]).toEqual([
            width,
            width,
          ]);
        }
      };
      await expectToFit();
      await page.getByRole("link", { name: "/api/todos Create a to-do" }).click();
      await page.locator(".opblock.is-open .execute").waitFor();
      await expectToFit();
      expect(await accessibilityViolations(page, SWAGGER_UI_VIOLATIONS)).toEqual([]);
      expect(window.faults).toEqual([]);
    },
  );
});
