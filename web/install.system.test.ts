import { describe, expect, test } from "bun:test";
import { whyNoBrowser } from "../test/chromium.ts";
import { skipFor } from "../test/skip.ts";
import { useTodosPage } from "../test/todos-page.ts";

describe.skipIf(skipFor(whyNoBrowser))("to-dos page", () => {
  const { openList } = useTodosPage();

  test("can be installed", async () => {
    const { page, service } = await openList(["one"]);
    const client = await page.context().newCDPSession(page);
    const { url, errors, data } = await client.send("Page.getAppManifest");
    expect(url).toStartWith(`${service.url}/assets/manifest-`);
    expect(errors).toEqual([]);
    // A proxy with a login must let the browser read it.
    expect(await page.locator("link[rel=manifest]").getAttribute("crossorigin")).toBe("use-credentials");
    expect(JSON.parse(data ?? "").name).toBe("To-dos");
    const { installabilityErrors } = await client.send("Page.getInstallabilityErrors");
    // The tests' windows have profiles of their own, which are not kept.
    expect(installabilityErrors.filter(({ errorId }) => errorId !== "in-incognito")).toEqual([]);
  });
});
