import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import type { Browser } from "playwright-core";
import { launchBrowser, whyNoBrowser } from "../test/chromium.ts";
import { openWindow } from "../test/page.ts";
import { skipFor } from "../test/skip.ts";
import { createStore, start } from "../test/todos-page.ts";

describe.skipIf(skipFor(whyNoBrowser))("to-dos page", () => {
  let browser: Browser;
  beforeAll(async () => {
    browser = await launchBrowser();
  });
  afterAll(() => browser?.close());

  test("can be installed", async () => {
    await using service = start(await createStore(["one"]));
    await using window = await openWindow(browser, service.url);
    const { page } = window;
    const client = await page.context().newCDPSession(page);
    const { url, errors, data } = await client.send("Page.getAppManifest");
    expect(url).toStartWith(`${service.url}/assets/manifest-`);
    expect(errors).toEqual([]);
    expect(JSON.parse(data ?? "").name).toBe("To-dos");
    const { installabilityErrors } = await client.send("Page.getInstallabilityErrors");
    // The tests' windows have profiles of their own, which are not kept.
    expect(installabilityErrors.filter(({ errorId }) => errorId !== "in-incognito")).toEqual([]);
    expect(window.faults).toEqual([]);
  });
});
