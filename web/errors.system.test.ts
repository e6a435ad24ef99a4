import { describe, expect, test } from "bun:test";
import { createFixedUserCheck } from "../src/credential/user.ts";
import { openMemory } from "../src/storage/memory/store.ts";
import { whyNoBrowser } from "../test/chromium.ts";
import { accessibilityViolations, expectFits, useChromium, WIDTHS } from "../test/page.ts";
import { startService } from "../test/service.ts";
import { skipFor } from "../test/skip.ts";

function start() {
  const store = openMemory();
  return startService({
    store,
    credentials: { keys: store.keys, checkUser: createFixedUserCheck("admin", "secret") },
    network: { onLoopback: true },
  });
}

describe.skipIf(skipFor(whyNoBrowser))("error page", () => {
  const { open, use } = useChromium();

  test.each(["light", "dark"] as const)("is accessible and fits windows in %s mode", async (colorScheme) => {
    const service = use(start());
    const { url } = service;
    for (const path of ["/nothing", "/sign-in", "/insecure"]) {
      const { page } = await open(url, { colorScheme });
      // Without a user, Chromium shows the body of a 401 only after its own dialog, which no test can dismiss.
      await page.route(/\/(?:sign-in|insecure)$/, async (route) => {
        // The header of a proxy that is not trusted: the connection does not count as secure.
        const proxied = route.request().url().endsWith("/insecure") ? { "X-Real-IP": "192.0.2.1" } : {};
        const response = await fetch(`${url}/admin/keys`, { headers: { Accept: "text/html", ...proxied } });
        expect(response.status).toBe(path === "/insecure" ? 403 : 401);
        const csp = response.headers.get("content-security-policy") ?? "";
        const headers = { "Content-Type": "text/html; charset=utf-8", "Content-Security-Policy": csp };
        await route.fulfill({ status: response.status, body: await response.text(), headers });
      });
      await page.goto(url + path);
      for (const width of WIDTHS) await expectFits(page, width);
      const background = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
      expect(background).toBe(colorScheme === "light" ? "rgb(246, 245, 241)" : "rgb(20, 22, 21)");
      expect(await page.evaluate(() => document.querySelector("img")?.naturalWidth)).toBeGreaterThan(0);
      expect(await accessibilityViolations(page)).toEqual([]);
    }
  });

  test("links to the to-dos, and after a 401 to the same page", async () => {
    const service = use(start());
    const { page } = await open(`${service.url}/nothing?x=1`);
    await page.getByRole("heading", { name: "Page not found" }).waitFor();
    await page.getByRole("link", { name: "Open the to-dos" }).click();
    await page.getByRole("heading", { name: "To-dos", exact: true }).waitFor();
    const html = await (
      await fetch(`${service.url}/admin/keys`, { headers: { Accept: "text/html" } })
    ).text();
    await page.route(
      "**/admin/keys?x=1",
      (route) => route.fulfill({ body: html, contentType: "text/html" }),
      {
        times: 1,
      },
    );
    await page.goto(`${service.url}/admin/keys?x=1`);
    await page.route("**/admin/keys?x=1", (route) => route.fulfill({ body: "again" }));
    await page.getByRole("link", { name: "Try again" }).click();
    await page.getByText("again", { exact: true }).waitFor();
  });

  test("has the header of the other pages", async () => {
    const service = use(start());
    const options = { httpCredentials: { username: "admin", password: "secret" } };
    for (const [path, current] of [
      ["/admin/keys", "API keys"],
      ["/docs", "API"],
      ["/nothing", undefined],
    ] as const) {
      const window = await open(service.url + path, options);
      const header = window.page.getByRole("banner");
      const links = await header.getByRole("link").allTextContents();
      expect(links).toEqual(["To-do service", "To-dos", "API keys", "API"]);
      const shown = await header.locator("[aria-current=page]").allTextContents();
      expect(shown).toEqual(current === undefined ? [] : [current]);
      await header.locator("img").evaluate((image: HTMLImageElement) => image.decode());
    }
  });
});
