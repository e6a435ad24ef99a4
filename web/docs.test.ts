import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import type { Browser } from "playwright-core";
import contract from "../openapi.json" with { type: "json" };
import { checkFixedPair } from "../src/credential/user.ts";
import { openMemory } from "../src/storage/memory.ts";
import { launchBrowser, whyNoBrowser } from "../test/chromium.ts";
import { barriers, openWindow } from "../test/page.ts";
import { startService } from "../test/service.ts";

setDefaultTimeout(60_000);
if (whyNoBrowser !== undefined) process.stderr.write(`skipped: the reference, for ${whyNoBrowser}\n`);

/**
 * What the renderer itself does wrong: its editor and its choices of examples have no labels, a heading that opens an
 * operation has buttons in it, and what it says of the whole lies in no landmark.
 */
const OF_THE_RENDERER = ["label", "select-name", "nested-interactive", "region"];

describe.skipIf(whyNoBrowser !== undefined)("the reference", () => {
  let browser: Browser;
  beforeAll(async () => {
    browser = await launchBrowser();
  }, 40_000);
  afterAll(() => browser?.close());

  test("shows every operation and every problem code, with nothing from elsewhere", async () => {
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
    await using service = startService({ store, checkUser: checkFixedPair("admin", "secret") });
    await using window = await openWindow(browser, `${service.url}/docs`);
    const { page } = window;
    const send = async (id: string): Promise<string> => {
      const operation = page.locator(`#operations-${id}`);
      await operation.locator(".opblock-summary-control").click();
      await operation.getByRole("button", { name: "Execute" }).click();
      const answer = operation.locator(".live-responses-table .highlight-code").first();
      return (await answer.textContent()) ?? "";
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

  test.each(["light", "dark"] as const)("has no barriers of our own, in %s", async (colorScheme) => {
    await using service = startService();
    const url = `${service.url}/docs#/todos/createTodo`;
    await using window = await openWindow(browser, url, { colorScheme, reducedMotion: "reduce" });
    await window.page.locator(".opblock.is-open .execute").waitFor();
    expect(await barriers(window.page, OF_THE_RENDERER)).toEqual([]);
    expect(window.faults).toEqual([]);
  });
});
