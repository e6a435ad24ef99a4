import { describe, expect, test } from "bun:test";
import { whyNoBrowser } from "../test/chromium.ts";
import { skipFor } from "../test/skip.ts";
import { add, expectTitles, untilStored, useTodosPage } from "../test/todos-page.ts";

const NOTICE = "Too many windows show this list";

describe.skipIf(skipFor(whyNoBrowser))("to-dos page", () => {
  const { openList } = useTodosPage();

  test("works in seven windows over HTTP/1.1, and shows which windows are not updated", async () => {
    const { page: first, store, service } = await openList(["one"]);
    const pages = [first];
    for (let count = 2; count <= 7; count++) {
      const page = await first.context().newPage();
      await page.goto(service.url);
      await expectTitles(page, ["one"]);
      if (count > 5) await page.getByText(NOTICE).waitFor();
      pages.push(page);
    }
    const [, second, , , , sixth, seventh] = pages;
    if (second === undefined || sixth === undefined || seventh === undefined)
      throw new Error("there are not seven windows");
    expect(await first.getByText(NOTICE).count()).toBe(0);
    await first.getByRole("checkbox", { name: "one" }).check();
    await untilStored(store, ["1 (one)"]);
    await expectTitles(second, ["(one)"]);
    await add(seventh, "two");
    await expectTitles(first, ["(one)", "two"]);
    expect(await sixth.getByText(NOTICE).isVisible()).toBe(true);
    // The windows that wait continue when others close.
    await first.close();
    await second.close();
    for (const page of [sixth, seventh]) {
      await page.getByText(NOTICE).waitFor({ state: "detached" });
      await expectTitles(page, ["(one)", "two"]);
    }
    await store.insert("three");
    await expectTitles(seventh, ["(one)", "two", "three"]);
  });
});
