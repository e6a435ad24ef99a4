import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import type { Browser } from "playwright-core";
import contract from "../openapi.json" with { type: "json" };
import { createFixedUserCheck } from "../src/credential/user.ts";
import { openMemory } from "../src/storage/memory/store.ts";
import { launchBrowser, whyNoBrowser } from "../test/chromium.ts";
import { accessibilityViolations, openWindow } from "../test/page.ts";
import { startService } from "../test/service.ts";
import { skipFor } from "../test/skip.ts";

/**
 * Violations by Swagger UI itself: its editor and its example selectors have no labels, the heading of an operation
 * contains buttons, and the introduction is outside every landmark.
 */
const SWAGGER_UI_VIOLATIONS = ["label", "select-name", "nested-interactive", "region"];

describe.skipIf(skipFor(whyNoBrowser))("API page", () => {
  let browser: Browser;
  beforeAll(async () => {
    browser = await launchBrowser();
  });
  afterAll(() => browser?.close());

  test("shows every operation and every error code, and loads only from the service", async () => {
    await using service = startService();
    await using window = await openWindow(browser, `${service.url}/docs`);
    const { page } = window;
    await page.locator(".opblock").first().waitFor();
    const operations = Object.values(contract.paths).flatMap((item) => Object.keys(item));
    expect(await page.locator(".opblock").count()).toBe(operations.length);
    for (const code of contract.components.schemas.Problem.properties.code.enum) {
      await page.locator(".info").getByText(code, { exact: true }).first().waitFor();
    }
    expect(window.faults).toEqual([]);
    expect([...window.hosts]).toEqual([new URL(service.url).host]);
  });

  test("sends requests", async () => {
    const store = openMemory();
    await store.insert("one");
    await using service = startService({ store, checkUser: createFixedUserCheck("admin", "secret") });
    await using window = await openWindow(browser, `${service.url}/docs`);
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
    await page.locator(".auth-btn-wrapper .authorize").last().click();
    await page.locator(".close-modal").click();
    expect(await send("credentials-greetAdmin")).toContain("Hello, admin!");
    expect(window.faults).toEqual([]);
    expect([...window.hosts]).toEqual([new URL(service.url).host]);
  });

  test.each(["light", "dark"] as const)(
    "has only the known accessibility violations of Swagger UI in the %s theme",
    async (colorScheme) => {
      await using service = startService();
      const url = `${service.url}/docs#/todos/createTodo`;
      await using window = await openWindow(browser, url, { colorScheme, reducedMotion: "reduce" });
      await window.page.locator(".opblock.is-open .execute").waitFor();
      expect(await accessibilityViolations(window.page, SWAGGER_UI_VIOLATIONS)).toEqual([]);
      expect(window.faults).toEqual([]);
    },
  );
});
