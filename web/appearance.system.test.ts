import { expect, test } from "bun:test";
import { describeInChromium, expectFits, WIDTHS } from "../test/page.ts";
import { createStore, numbered, start, useTodosPage } from "../test/todos-page.ts";

describeInChromium("to-dos page", () => {
  const { open, openList, use } = useTodosPage();

  test("fits windows of six widths", async () => {
    const titles = [`(${"W".repeat(120)})`, `(${"many words ".repeat(10)})`, ...Array.from("abcdefghij")];
    const service = use(start(await createStore(titles)));
    for (const path of ["/", "/?show=done", "/?q=nothing"]) {
      const { page } = await open(service.url + path);
      await page.waitForFunction(() => document.title === "10 open · To-dos");
      expect(await page.locator(".no-script").count()).toBe(0);
      for (const width of WIDTHS) await expectFits(page, width);
    }
  });

  test("prints every to-do", async () => {
    const titles = numbered(300);
    const { page } = await openList(titles);
    await page.waitForFunction(() => document.title.startsWith("300 "));
    await page.evaluate(() => {
      addEventListener("beforeprint", () => {
        document.documentElement.dataset.printed = String(document.querySelectorAll(".todo").length);
      });
    });
    const pdf = (await page.pdf({ format: "A4" })).toString("latin1");
    expect(await page.evaluate(() => document.documentElement.dataset.printed)).toBe("300");
    // An A4 page has room for about 20 rows.
    const pages = pdf.match(/\/Type\s*\/Page\b/g)?.length;
    expect(pages).toBeWithin(8, 25);
    expect(await page.locator(".todo").count()).toBeLessThan(150);
  });

  test("shows the current filter in forced colors", async () => {
    for (const colorScheme of ["light", "dark"] as const) {
      const { page } = await openList(["one", "two"], "", { forcedColors: "active", colorScheme });
      const looks = await page.locator(".filter a, .menu button:not([hidden])").evaluateAll((all) =>
        all.map((element) => {
          const { backgroundColor, color } = getComputedStyle(element);
          return { name: element.textContent, look: `${color} on ${backgroundColor}` };
        }),
      );
      const [all, open] = looks;
      const current = looks.filter(({ look }) => look === all?.look).map(({ name }) => name);
      expect(current).toEqual(["All 2", "Oldest first"]);
      expect(open?.look).not.toBe(all?.look ?? "");
    }
  });

  test.each(["disabled", "missing", "too new"])("shows a message if its script is %s", async (cause) => {
    const service = use(start(await createStore(["one"])));
    const { page, faults } = await open("about:blank", { javaScriptEnabled: cause !== "disabled" });
    await page.route("**/*.js", (route) =>
      cause === "missing"
        ? route.abort()
        : route.fulfill({ contentType: "text/javascript", body: "new syntax" }),
    );
    await page.goto(service.url);
    await page.locator(".no-script").waitFor();
    expect(await page.locator("form, input, button").filter({ visible: true }).count()).toBe(0);
    expect(await page.getByText("Loading…").isVisible()).toBe(false);
    await page.locator(".no-script a").click();
    expect(await page.textContent("body")).toBe('[{"id":1,"title":"one","done":false}]');
    expect(faults.splice(0)).toHaveLength(cause === "too new" ? 1 : 0);
  });

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
