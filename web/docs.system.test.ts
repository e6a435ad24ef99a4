import { describe, expect, test } from "bun:test";
import contract from "../openapi.json" with { type: "json" };
import { createFixedUserCheck } from "../src/credential/user.ts";
import { openMemory } from "../src/storage/memory/store.ts";
import { whyNoBrowser } from "../test/chromium.ts";
import { run } from "../test/command.ts";
import { accessibilityViolations, expectFits, useChromium, WIDTHS } from "../test/page.ts";
import { startService } from "../test/service.ts";
import { skipFor } from "../test/skip.ts";

describe.skipIf(skipFor(whyNoBrowser))("API page", () => {
  const { open, use } = useChromium();

  test.each([true, false])("documents every operation, with JavaScript: %p", async (javaScriptEnabled) => {
    const service = use(startService());
    const { page, hosts } = await open(`${service.url}/docs`, { javaScriptEnabled });
    const operations = Object.entries(contract.paths).flatMap(([path, item]) =>
      Object.entries(item).map(([method, operation]) => ({ path, method, ...operation })),
    );
    const links = page.locator("li a[href^='#']");
    expect((await links.allTextContents()).toSorted()).toEqual(
      operations.map(({ path, method, summary }) => `${method.toUpperCase()} ${path} ${summary}`).toSorted(),
    );
    // The first operation is on the first screen.
    expect((await links.first().boundingBox())?.y).toBeLessThan(800);
    for (const { operationId, responses } of operations) {
      // The text between this heading and the next one of its level, with the closed errors.
      const text = await page.locator(`h3#${operationId}`).evaluate((heading) => {
        const texts: (string | null)[] = [];
        for (let next = heading.nextElementSibling; next && !/^H[23]$/.test(next.tagName); )
          [next] = [next.nextElementSibling, texts.push(next.textContent)];
        return texts.join("\n");
      });
      expect(text).toContain(`${javaScriptEnabled ? service.url : "http://127.0.0.1:3000"}/`);
      for (const status of Object.keys(responses)) expect(text).toContain(status);
    }
    // Every link to a code or a body has its target.
    const targets = await page
      .locator("a[href^='#']")
      .evaluateAll((found) => found.map((a) => a.getAttribute("href")));
    for (const target of new Set(targets))
      expect([target, await page.locator(target ?? "").count()]).toEqual([target, 1]);
    for (const code of contract.components.schemas.Problem.properties.code.enum)
      expect(await page.locator(`#${code}`).count()).toBe(1);
    expect([...hosts]).toEqual([new URL(service.url).host]);
  });

  test("has commands that the service answers as documented", async () => {
    const store = openMemory();
    const service = use(
      startService({
        store,
        credentials: {
          keys: store.keys,
          lookupClient: (token) => (token === "secret" ? { name: "ci" } : undefined),
          checkUser: createFixedUserCheck("admin", "secret"),
        },
      }),
    );
    await store.insert("one");
    const window = await open(`${service.url}/docs`);
    const commands = await window.page.locator(".language-sh").allTextContents();
    const operations = Object.values(contract.paths).flatMap((item) => Object.values(item));
    expect(commands.length).toBe(operations.length);
    for (const [index, command] of commands.entries()) {
      const script = command
        .replace("curl", "curl -s -m 2 -w '\\n%{http_code}'")
        .replace("-O ", "-o /dev/null ")
        .replace("-u admin", "-u admin:secret");
      await using done = run(["sh", "-c", script], { TODO_TOKEN: "secret" });
      await done.exited;
      const status = done.stdout().split("\n").at(-1) ?? "";
      expect([script, Object.keys(operations[index]?.responses ?? {})]).toEqual([
        script,
        expect.arrayContaining([status]),
      ]);
      expect([script, ["400", "408", "413", "415", "422"]]).toEqual([
        script,
        expect.not.arrayContaining([status]),
      ]);
    }
  });

  test("copies a command", async () => {
    const service = use(startService());
    const { page } = await open(`${service.url}/docs`, {
      permissions: ["clipboard-read", "clipboard-write"],
    });
    const button = page.getByRole("button", { name: "Copy" }).nth(1);
    const copied = page.getByRole("button", { name: "Copied" });
    await button.press("Enter");
    await copied.waitFor();
    expect(await page.evaluate(() => navigator.clipboard.readText())).toBe(
      `curl ${service.url}/api/todos \\\n  --json '{"title":"Buy milk"}'`,
    );
  });

  test.each([
    [1280, 800],
    [390, 844],
  ])("opens without a layout shift at %d × %d", async (width, height) => {
    const service = use(startService());
    const { page } = await open("about:blank", { viewport: { width, height } });
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
    const service = use(startService());
    const problem = await fetch(`${service.url}/api/todos/1`);
    const { type }: { type: string } = JSON.parse(await problem.text());
    const window = await open(new URL(type, problem.url).href);
    const code = window.page.locator("#todo_not_found");
    await code.waitFor();
    await window.page.waitForFunction(() => scrollY > 0);
    const box = await code.boundingBox();
    expect(box?.y).toBeWithin(0, window.page.viewportSize()?.height ?? 0);
  });

  test("prints the errors of every operation", async () => {
    const service = use(startService());
    const { page } = await open(`${service.url}/docs`);
    const error = page.locator("details td").first();
    expect(await error.isVisible()).toBe(false);
    await page.emulateMedia({ media: "print" });
    expect(await error.evaluate((cell) => cell.checkVisibility({ contentVisibilityAuto: true }))).toBe(true);
    expect(await page.getByRole("button", { name: "Copy" }).count()).toBe(0);
  });

  test.each(["light", "dark"] as const)("is accessible and fits windows in %s mode", async (colorScheme) => {
    const service = use(startService());
    const { page } = await open(`${service.url}/docs`, { colorScheme });
    await page.getByRole("button", { name: "Copy" }).first().waitFor();
    for (const isOpen of [false, true]) {
      await page.locator("details").evaluateAll((found, open) => {
        for (const element of found) element.toggleAttribute("open", open);
      }, isOpen);
      expect(await accessibilityViolations(page)).toEqual([]);
      for (const width of WIDTHS) {
        await expectFits(page, width);
        if (width === 320) expect(await accessibilityViolations(page)).toEqual([]);
      }
    }
  });
});
