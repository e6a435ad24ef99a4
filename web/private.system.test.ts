import { describe, expect, setDefaultTimeout, test } from "bun:test";
import type { Scope } from "../src/credential/client.ts";
import { createKey, createKeyLookup } from "../src/credential/key.ts";
import { isCurrent } from "../src/credential/session.ts";
import { openMemory } from "../src/storage/memory/store.ts";
import { whyNoBrowser } from "../test/chromium.ts";
import { signIn, useChromium, type Window } from "../test/page.ts";
import { startService } from "../test/service.ts";
import { skipFor } from "../test/skip.ts";
import { chooseAction, expectTitles, untilStored } from "../test/todos-page.ts";

setDefaultTimeout(180_000);

const ANN = { user: "ann", password: "secret" };

/** Starts a private service with one to-do and one API key. Every user has the same password. */
async function startPrivate(scope: Scope = "write") {
  const store = openMemory();
  const { keys } = store;
  let now = Date.now();
  let password = "secret";
  const storedEntry = () => password;
  const minted = await createKey(keys, "phone", 3_600_000, now, scope);
  if (minted === undefined) throw new Error("the key exists");
  await store.insert("mine alone");
  const service = startService({
    store,
    credentials: {
      keys,
      storedEntry,
      lookupClient: createKeyLookup(
        keys,
        () => now,
        (parent) => isCurrent(parent, storedEntry),
      ),
      checkUser: (_user, given) => given === password,
    },
    access: { privateMode: true },
    now: () => now,
    // The service looks for revoked credentials as often as this.
    limits: { heartbeatMs: 500 },
  });
  return {
    ...service,
    store,
    token: minted.token,
    revoke: () => keys.delete(minted.key.id),
    expire: () => {
      now += 3_600_001;
    },
    changePassword: () => {
      password = "another";
    },
  };
}

describe.skipIf(skipFor(whyNoBrowser))("in private mode", () => {
  const { open, use } = useChromium();

  /** Opens the list in a browser that is signed in. */
  async function openSignedIn(url: string, body: Readonly<Record<string, string>>): Promise<Window> {
    const window = await open(url);
    await signIn(window.page, body);
    await window.page.locator("#show-devices:not([hidden])").waitFor({ state: "attached" });
    return window;
  }

  test("the page links to the API keys and the API only for a user", async () => {
    const service = use(await startPrivate());
    const { page } = await open(service.url);
    await page.locator("#secret").waitFor();
    for (const [body, more] of [
      [{ token: service.token }, []],
      [ANN, ["API keys", "API"]],
    ] as const) {
      await signIn(page, body);
      await page.locator("#show-devices:not([hidden])").waitFor({ state: "attached" });
      expect(await page.locator("#menu a").allTextContents()).toEqual([...more]);
    }
  });

  test.each([
    ["revoke", "token"],
    ["expire", "token"],
    ["changePassword", "user"],
  ] as const)("the page shows the form after a %s of its %s", async (change, kind) => {
    const service = use(await startPrivate());
    const { token } = service;
    const { page } = await openSignedIn(service.url, kind === "token" ? { token } : ANN);
    await expectTitles(page, ["mine alone"]);
    await service[change]();
    await page.getByText("This browser was signed out.").waitFor();
    expect(await page.locator("body").textContent()).not.toContain("mine alone");
  });

  test.each(["ann", "bob"] as const)(
    "a change that was not sent before a rejection is sent for the same user only, when %s signs in",
    async (user) => {
      const service = use(await startPrivate());
      const { store } = service;
      const { page } = await openSignedIn(service.url, ANN);
      await expectTitles(page, ["mine alone"]);
      await page.context().setOffline(true);
      await page.getByRole("checkbox", { name: "mine alone" }).check();
      for (const { id } of await store.keys.list()) await store.keys.delete(id);
      await page.context().setOffline(false);
      await page.getByText("This browser was signed out.").waitFor();
      await signIn(page, { ...ANN, user });
      if (user === "bob")
        await page.getByText("Changes of another user were not sent: “mine alone”.").waitFor();
      await expectTitles(page, [user === "ann" ? "(mine alone)" : "mine alone"]);
      await untilStored(store, [user === "ann" ? "1 (mine alone)" : "1 mine alone"]);
    },
  );

  test("the page with an API key of the scope read shows the list without controls that change it", async () => {
    const service = use(await startPrivate("read"));
    const { page } = await openSignedIn(service.url, { token: service.token });
    await expectTitles(page, ["mine alone"]);
    expect(await page.getByRole("checkbox", { name: "mine alone" }).isDisabled()).toBe(true);
    expect(await page.getByRole("button", { name: "Delete: mine alone" }).count()).toBe(0);
    expect(await page.getByLabel("New to-do").isVisible()).toBe(false);
    await page.getByText("You can read this list, but not change it.").waitFor();
    const cursor = "getComputedStyle(document.querySelector('.todo label')).cursor";
    expect(await page.evaluate(cursor)).toBe("default");
    expect(await chooseAction(page, "Mark all done")).toBe(false);
    await service.store.insert("from elsewhere");
    await expectTitles(page, ["mine alone", "from elsewhere"]);
  });
});
