import { describe, expect, setDefaultTimeout, test } from "bun:test";
import type { BrowserContextOptions, Page } from "playwright-core";
import { createLink } from "../src/credential/session.ts";
import { openMemory } from "../src/storage/memory/store.ts";
import { startWeb } from "../test/chromium.ts";
import { as, basic, mint } from "../test/credentials.ts";
import { accessibilityViolations, describeInChromium, signIn, useChromium } from "../test/page.ts";
import { startPrivate } from "../test/service.ts";
import { skipFor } from "../test/skip.ts";
import {
  add,
  chooseAction,
  expectTitles,
  storedTodos,
  untilChanges,
  untilStored,
} from "../test/todos-page.ts";
import { until } from "../test/until.ts";
import { launchFirefox, whyNoFirefox } from "../test/webdriver.ts";

setDefaultTimeout(180_000);
const PHONE = { viewport: { width: 390, height: 844 }, serviceWorkers: "allow" } as const;

const ANN = { user: "ann", password: "secret" };
const BOB = { user: "bob", password: "secret" };

const IS_KEPT = "caches.match('/last-list').then(Boolean)";

async function startShared() {
  const store = openMemory();
  await store.insert("mine alone");
  return startPrivate(store, { credentials: { checkUser: (_user, password) => password === "secret" } });
}

const untilSignedIn = (page: Page): Promise<void> =>
  page.locator("#show-devices:not([hidden])").waitFor({ state: "attached" });

describeInChromium("a signed-in browser", () => {
  const { open, use } = useChromium(PHONE);

  async function openService(options: BrowserContextOptions = {}) {
    const service = use(await startShared());
    return { service, ...(await open(service.url, options)) };
  }

  async function openAs(person: typeof ANN, options: BrowserContextOptions = {}) {
    const opened = await openService(options);
    await signIn(opened.page, person);
    return opened;
  }

  async function openDevices(page: Page): Promise<void> {
    await untilSignedIn(page);
    await page.getByRole("button", { name: "List actions" }).click();
    await page.getByRole("button", { name: "Your devices" }).click();
    await page.locator("#device-list").getByText("This browser").waitFor();
  }

  async function signOut(page: Page): Promise<void> {
    await openDevices(page);
    await page.getByRole("button", { name: "Sign out this browser" }).click();
    await page.getByText("This list is private.").waitFor();
  }

  test("signs in by password, adds a device by a link, reads offline, revokes the device and signs out", async () => {
    const { page, service } = await openService();
    await page.locator("#secret:focus").waitFor();
    expect(await page.locator("#focus-title").isVisible()).toBe(false);
    expect(await accessibilityViolations(page)).toEqual([]);
    await page.getByText("Use a user name and a password").click();
    await page.getByLabel("User name").fill("ann");
    await page.getByLabel("Password").fill("wrong");
    const submit = page.getByRole("button", { name: "Sign in with the password" });
    await submit.click();
    await page.getByText("The user name or the password is wrong.").waitFor();
    expect(await accessibilityViolations(page)).toEqual([]);
    await page.getByLabel("Password").fill("secret");
    await submit.click();
    // The page loads again, which expectTitles does not survive.
    await page.locator(".todo").waitFor();
    await expectTitles(page, ["mine alone"]);
    expect(await page.evaluate("document.cookie")).toBe("");
    await untilSignedIn(page);
    expect(await page.locator("#menu a").allTextContents()).toEqual(["API keys", "API"]);

    await openDevices(page);
    await page.getByRole("button", { name: "Add a device" }).click();
    const linkText = page.locator("#device-link code").getByText("#sign-in=");
    await linkText.waitFor();
    expect(await accessibilityViolations(page)).toEqual([]);
    const link = (await linkText.textContent()) ?? "";
    await page.getByText("This link signs in as ann.").waitFor();

    const { page: other } = await open(link);
    // Opening the link changes nothing: the person decides.
    await other.getByText("This link signs in this browser as ann.").waitFor();
    expect(other.url()).toBe(`${service.url}/`);
    expect(await other.context().cookies()).toEqual([]);
    await other.getByRole("button", { name: "Sign in as ann" }).click();
    await other.locator(".todo").waitFor();
    await expectTitles(other, ["mine alone"]);
    await page.getByText("The link was used.").waitFor();
    expect(await page.locator(".qr-code").isVisible()).toBe(false);
    expect(await page.locator("#device-list li").count()).toBe(2);

    await until(async () => (await page.evaluate(IS_KEPT)) === true, "the list is kept");
    await page.reload();
    await page.context().setOffline(true);
    await page.reload();
    await expectTitles(page, ["mine alone"]);
    await page.context().setOffline(false);

    await openDevices(page);
    await page.getByRole("button", { name: /^Sign out Chrome/ }).click();
    await other.getByText("This browser was signed out.").waitFor();
    expect(await other.locator("body").textContent()).not.toContain("mine alone");
    await until(async () => (await other.evaluate(IS_KEPT)) === false, "the list is not kept");

    await page.getByRole("button", { name: "Sign out this browser" }).click();
    await page.getByText("This list is private.").waitFor();
    expect(await page.evaluate(IS_KEPT)).toBe(false);
    expect(await page.context().cookies()).toEqual([]);
    // Neither the back-forward cache nor the service worker shows the list again.
    await page.goto(`${service.url}/docs`);
    await page.goBack();
    await page.getByRole("heading", { name: "Sign in" }).waitFor();
    expect(await page.locator("body").textContent()).not.toContain("mine alone");
  });

  test("a sign-out sends the changes that wait, and asks before it deletes those that it cannot send", async () => {
    // Some versions of Chromium do not let Playwright abort a request that passes a service worker.
    const { page, service } = await openAs(ANN, { serviceWorkers: "block" });
    await page.getByRole("checkbox", { name: "mine alone" }).press("Space");
    await signOut(page);
    await untilStored(service.store, ["1 (mine alone)"]);
    expect(await page.evaluate("localStorage.getItem('todo-service.owner')")).toBeNull();

    await signIn(page, ANN);
    await openDevices(page);
    await page.locator("#close-devices").click();
    await page.route("**/api/todos/*", (route) => route.abort());
    await page.getByRole("checkbox", { name: "mine alone" }).press("Space");
    for (const answer of ["Close", "Sign out and delete it"]) {
      await openDevices(page);
      await page.getByRole("button", { name: "Sign out this browser" }).dblclick();
      await page.locator("#devices [role=alert]").getByText("1 change is not sent.").waitFor();
      const loaded = page.waitForResponse("**/api/session");
      await page.evaluate("dispatchEvent(new Event('focus'))");
      await loaded;
      expect(await accessibilityViolations(page)).toEqual([]);
      await page.getByRole("button", { name: answer, exact: true }).click();
    }
    await page.getByText("This list is private.").waitFor();
    await untilStored(service.store, ["1 (mine alone)"]);
  });

  test("a sign-out that waits for changes ends when its dialog is closed, also if that is opened again", async () => {
    const { page, service } = await openAs(ANN, { serviceWorkers: "block" });
    await openDevices(page);
    await page.locator("#close-devices").click();
    const held = Promise.withResolvers<void>();
    await page.route("**/api/todos/*", async (route) => {
      await held.promise;
      await route.continue();
    });
    await page.getByRole("checkbox", { name: "mine alone" }).press("Space");
    await openDevices(page);
    await page.getByRole("button", { name: "Sign out this browser" }).click();
    await page.locator("#close-devices").click();
    await openDevices(page);
    held.resolve();
    await untilStored(service.store, ["1 (mine alone)"]);
    await untilChanges(page, 0);
    // Longer than the sign-out waits before it looks again.
    await page.evaluate("new Promise((resolve) => setTimeout(resolve, 300))");
    expect(await page.locator("#devices").isVisible()).toBe(true);
    expect(await page.context().cookies()).toHaveLength(1);
  });

  async function openBeside(page: Page, script = ""): Promise<Page> {
    const other = await page.context().newPage();
    await other.setViewportSize({ width: 1000, height: 800 });
    await other.addInitScript(script);
    await other.goto(page.url());
    await untilSignedIn(other);
    await expectTitles(other, ["mine alone"]);
    return other;
  }

  test("a sign-out reaches the other windows, which show and store nothing any more", async () => {
    const { page, service } = await openAs(ANN);
    const other = await openBeside(page);
    await until(async () => (await other.evaluate(IS_KEPT)) === true, "the list is kept");
    await add(other, "by ann");
    await expectTitles(other, ["mine alone", "by ann"]);
    await untilStored(service.store, ["1 mine alone", "2 by ann"]);
    // The window would store the last change two seconds later.
    await service.store.insert("the latest");
    await expectTitles(other, ["mine alone", "by ann", "the latest"]);
    // Only this window knows the deletion. Nothing of it may stay in the browser, although the window closes late.
    await other.evaluate(`{
      const deleteCache = CacheStorage.prototype.delete;
      CacheStorage.prototype.delete = async function (name) {
        await new Promise((resolve) => setTimeout(resolve, 1000));
        return deleteCache.call(this, name);
      };
    }`);
    await other.getByRole("button", { name: "Delete: by ann" }).press("Enter");
    await expectTitles(other, ["mine alone", "the latest"]);
    await signOut(page);
    await other.getByText("This list is private.").waitFor();
    expect(await other.locator("body").textContent()).not.toMatch(/mine alone|by ann|the latest/);
    await untilChanges(other, 0);
    expect(await other.evaluate("Object.keys(localStorage).join()")).not.toContain("change");
    await other.evaluate("new Promise((resolve) => setTimeout(resolve, 2500))");
    expect(await other.evaluate(IS_KEPT)).toBe(false);
    // The next person signs in once.
    await signIn(page, BOB);
    await expectTitles(other, ["mine alone", "by ann", "the latest"]);
    expect(await other.locator(".toast").filter({ visible: true }).count()).toBe(0);
  });

  test("text from the share sheet waits for a sign-in that has become necessary", async () => {
    const { page, service } = await openAs(ANN);
    await until(async () => (await page.evaluate(IS_KEPT)) === true, "the list is kept");
    await page.context().clearCookies();
    await page.goto(`${service.url}/?text=soup`);
    await page.getByRole("heading", { name: "Sign in" }).waitFor();
    await signIn(page, ANN);
    await page.locator(".todo").waitFor();
    await until(async () => (await page.locator("#title").inputValue()) === "soup", "the field has the text");
  });

  test("a window that misses a sign-out sends nothing as the next person, and reports its changes", async () => {
    const { page, service } = await openAs(ANN);
    // As if this window was frozen meanwhile.
    const deaf = `for (const type of ["storage", "message"])
        addEventListener(type, (event) => event.stopImmediatePropagation(), { capture: true });`;
    const other = await openBeside(page, deaf);
    await signOut(page);
    await signIn(page, BOB);
    await untilSignedIn(page);
    await add(other, "by ann");
    await other.getByText("Changes of another user were not sent: “by ann”.").waitFor();
    await expectTitles(other, ["mine alone"]);
    await expectTitles(page, ["mine alone"]);
    expect(await storedTodos(service.store)).toHaveLength(1);
  });

  test("a window whose cookie becomes that of someone else while it is offline sends nothing", async () => {
    const { page, service } = await openAs(ANN);
    await expectTitles(page, ["mine alone"]);
    await untilSignedIn(page);
    const context = page.context();
    const [own] = await context.cookies();
    const signedIn = await service.sendJson("POST", "/api/session", BOB);
    const value = /=(\w+);/.exec(signedIn.headers.get("set-cookie") ?? "")?.[1] ?? "";
    await context.setOffline(true);
    await add(page, "by ann");
    await expectTitles(page, ["mine alone", "by ann"]);
    // Another port of the same host name can replace the cookie.
    if (own !== undefined) await context.addCookies([{ ...own, value }]);
    await context.setOffline(false);
    await page.getByText("Changes of another user were not sent: “by ann”.").waitFor();
    await expectTitles(page, ["mine alone"]);
    expect(await storedTodos(service.store)).toHaveLength(1);
  });

  test("sends changes from a browser that cannot store data", async () => {
    const service = use(await startShared());
    const { page } = await open("about:blank");
    const refused = Promise.withResolvers<void>();
    await page.exposeFunction("onPut", () => refused.resolve());
    await page.addInitScript(`
        Cache.prototype.put = async () => {
          await onPut();
          throw new DOMException("The quota has been exceeded.", "QuotaExceededError");
        };
        Object.defineProperty(globalThis, "localStorage", {
          get: () => { throw new DOMException("blocked", "SecurityError"); },
        });
      `);
    await page.goto(service.url);
    await signIn(page, ANN);
    await expectTitles(page, ["mine alone"]);
    await untilSignedIn(page);
    await refused.promise;
    await add(page, "milk");
    await until(async () => (await storedTodos(service.store)).length === 2, "the to-do is stored");
    await expectTitles(page, ["milk", "mine alone"]);
  });

  test("a sign-in behind a proxy with a login names the header that the proxy must remove", async () => {
    const service = use(await startShared());
    const login = basic("proxy", "of the proxy");
    const proxy = use(
      startWeb(({ method, headers, url, body }) => {
        const challenge = { "WWW-Authenticate": 'Basic realm="proxy"' };
        if (headers.get("authorization") !== login)
          return new Response("<h1>401</h1>", { status: 401, headers: challenge });
        headers.set("accept-encoding", "identity");
        const { pathname, search } = new URL(url);
        return fetch(service.url + pathname + search, { method, headers, body });
      }),
    );
    const { page } = await open(proxy.url, {
      httpCredentials: { username: "proxy", password: "of the proxy" },
    });
    await page.getByText("Use a user name and a password").click();
    await page.getByLabel("User name").fill("ann");
    await page.getByLabel("Password", { exact: true }).fill("secret");
    await page.getByRole("button", { name: "Sign in with the password" }).click();
    await page.getByText("it must remove its Authorization header").waitFor();
  });

  test("cancels a link, which the history of the browser keeps", async () => {
    const service = use(await startShared());
    const made = await service.send("POST", "/api/session/links", as(basic(ANN.user, ANN.password)));
    const { link } = JSON.parse(await made.text());
    const { page } = await open(link);
    const cancelled = page.waitForResponse("**/api/session/link/cancel");
    await page.getByRole("button", { name: "Cancel" }).click();
    expect((await cancelled).status()).toBe(204);
    await page.goto(`${service.url}/docs`);
    await page.goto(link);
    await page.getByText("The link was used, has expired or was revoked.").waitFor();
  });

  test.each(["ann", "bob"] as const)("an unsent change is sent for its own user only: %s", async (user) => {
    const { page, service } = await openAs(ANN);
    const { store } = service;
    await untilSignedIn(page);
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
  });

  test("an API key of the scope read shows the list without controls that change it, and no pages for users", async () => {
    const { page, service } = await openService();
    const { token } = await mint(service.store.keys, "phone", { scope: "read" });
    await signIn(page, { token });
    await expectTitles(page, ["mine alone"]);
    await page.getByText("You can read this list, but not change it.").waitFor();
    expect(await page.getByRole("checkbox", { name: "mine alone" }).isDisabled()).toBe(true);
    expect(await page.getByRole("button", { name: "Delete: mine alone" }).count()).toBe(0);
    expect(await page.getByLabel("New to-do").isVisible()).toBe(false);
    expect(await page.locator("#menu a").count()).toBe(0);
    const cursor = "getComputedStyle(document.querySelector('.todo label')).cursor";
    expect(await page.evaluate(cursor)).toBe("default");
    expect(await chooseAction(page, "Mark all done")).toBe(false);
    await service.store.insert("from elsewhere");
    await expectTitles(page, ["mine alone", "from elsewhere"]);
  });

  test("signs in with one field, a link after a question or a token, and does not send a form that lacks something", async () => {
    const { page, service } = await openService();
    const { key, token } = await mint(service.store.keys, "ben");
    const link = await createLink(service.store.keys, { kind: "key", id: key.id }, key.scope, Date.now());
    let sent = 0;
    await page.route("**/api/session", (route) => {
      if (route.request().method() === "POST") sent++;
      return route.continue();
    });
    await page.getByRole("button", { name: "Sign in", exact: true }).click();
    await page.getByText("Paste a link or a token.").waitFor();
    await page.getByText("Use a user name and a password").click();
    const submit = page.getByRole("button", { name: "Sign in with the password" });
    await page.getByLabel("Password").fill("secret");
    await submit.click();
    await page.getByText("Enter the user name.").waitFor();
    await page.getByLabel("User name").fill("ann");
    expect(await page.locator("#user-error").textContent()).toBe("");
    await page.getByLabel("Password").fill("");
    await submit.click();
    await page.getByText("Enter the password.").waitFor();
    expect(sent).toBe(0);
    const field = page.getByLabel("Paste your link or your token");
    for (const [secret, answer] of [
      ["secret", "This is neither a link nor a valid token."],
      ["https://elsewhere.example/#sign-in=expired", "Ask the person who sent it for a new one."],
      [`See https://a.example/#sign-in=${link?.code}. From ann`, "This link signs in this browser as ben."],
    ] as const) {
      await field.fill(secret);
      await field.press("Enter");
      await page.getByText(answer).waitFor();
    }
    await page.getByRole("button", { name: "Sign in as ben" }).click();
    await page.locator(".todo").waitFor();
    await page.context().clearCookies();
    await page.reload();
    await field.fill(` ${token} `);
    await field.press("Enter");
    await page.locator(".todo").waitFor();
  });

  test("a person renames a device, and sees what is wrong with a name", async () => {
    const service = use(await startShared());
    // The name of a device begins with 60 characters of this one.
    const { token } = await mint(service.store.keys, "x".repeat(61));
    const person = { token };
    const { page } = await open(service.url);
    await service.sendJson("POST", "/api/session", person);
    await signIn(page, person);
    await openDevices(page);
    await page.getByRole("button", { name: /^Rename Chrome/ }).click();
    const field = page.getByLabel("Name of the device");
    expect(await field.inputValue()).toStartWith("Chrome on ");
    await field.fill("x".repeat(38));
    await page.getByRole("button", { name: "Save" }).click();
    await page.getByText("The name must be at most 37 characters.").waitFor();
    expect(await accessibilityViolations(page)).toEqual([]);
    await field.fill("Kitchen tablet");
    // A device that signs in meanwhile does not discard what is typed.
    await service.sendJson("POST", "/api/session", person);
    await page.evaluate("dispatchEvent(new Event('focus'))");
    await page.getByRole("button", { name: "Save" }).click();
    await page.getByRole("button", { name: "Rename Kitchen tablet" }).click();
    await page.keyboard.press("Escape");
    await openDevices(page);
    await page.getByRole("button", { name: "Rename Kitchen tablet" }).click();
    const names = (await service.store.keys.list()).map(({ name }) => name);
    expect(names).toContain(`${"x".repeat(60)} · Kitchen tablet`);
    await page.getByRole("button", { name: "Cancel" }).click();
    expect(await page.locator("#device-list li").count()).toBe(3);
  });

  test("the dialog of the devices follows them, fits a phone, and says that a link was copied", async () => {
    const { page, service } = await openAs(ANN);
    const devices = page.locator("#device-list li");
    await openDevices(page);
    for (let count = 0; count < 12; count++) await service.sendJson("POST", "/api/session", ANN);
    await page.evaluate("dispatchEvent(new Event('focus'))");
    await devices.nth(12).waitFor();
    for (const [width, height] of [
      [390, 844],
      [844, 390],
    ] as const) {
      await page.setViewportSize({ width, height });
      await page.getByRole("button", { name: "Add a device" }).click();
      await page.waitForFunction(() => {
        const parts = [...document.querySelectorAll(".qr-code, #device-link button")];
        const boxes = parts.map((part) => part.getBoundingClientRect());
        const end = document.querySelector("#devices > .dialog-buttons")?.getBoundingClientRect().top ?? 0;
        return boxes.length >= 2 && boxes.every(({ top, bottom }) => top >= 0 && bottom <= end);
      });
    }
    await page.getByRole("button", { name: "Copy", exact: true }).click();
    await page.getByRole("status").getByText("Copied.").waitFor();
    await service.sendJson("POST", "/api/session", ANN);
    await devices.nth(13).waitFor();
  });
});

describe.skipIf(skipFor(whyNoFirefox))("in Firefox", () => {
  test("a browser signs in by password and out again", async () => {
    await using service = await startShared();
    await using firefox = await launchFirefox();
    const page = await firefox.open(service.url);
    const shows = (selector: string) =>
      until(
        async () =>
          (await page.evaluate(`Boolean(document.querySelector('${selector}'))`).catch(() => false)) === true,
        `the page has ${selector}`,
      );
    await shows("#sign-in:not([hidden])");
    await page.evaluate(`document.querySelector("#user").value = "ann";
        document.querySelector("#password").value = "secret";
        document.querySelector("#password-form button").click()`);
    await shows(".todo");
    await shows("#show-devices:not([hidden])");
    await page.evaluate(`document.querySelector("#show-devices").click()`);
    await shows("#device-list button:last-child");
    await page.evaluate(`document.querySelector("#device-list button:last-child").click()`);
    await shows("#sign-in:not([hidden])");
  });
});
