import { expect, test } from "bun:test";
import type { BrowserContextOptions, Page, Route } from "playwright-core";
import { createKey } from "../src/credential/key.ts";
import { createFixedUserCheck } from "../src/credential/user.ts";
import { openMemory } from "../src/storage/memory/store.ts";
import { mint } from "../test/credentials.ts";
import {
  accessibilityViolations,
  describeInChromium,
  expectFits,
  useChromium,
  WIDTHS,
} from "../test/page.ts";
import { startPrivate } from "../test/service.ts";
import { until } from "../test/until.ts";

const DAY = 24 * 60 * 60 * 1000;
const ADMIN = { httpCredentials: { username: "admin", password: "secret" } };

function start(privateMode = false) {
  const service = startPrivate(openMemory(), {
    credentials: { checkUser: createFixedUserCheck("admin", "secret") },
    access: { privateMode },
    network: { onLoopback: true },
  });
  const whoami = async (token: string): Promise<string> =>
    (await service.send("GET", "/api/whoami", { headers: { Authorization: `Bearer ${token}` } })).text();
  return { ...service, keys: service.store.keys, whoami };
}

describeInChromium("API keys page", () => {
  const { open, use } = useChromium();

  async function openKeys(names: readonly string[] = [], options: BrowserContextOptions = {}) {
    const service = use(start());
    const keys = await Array.fromAsync(names, (name) => mint(service.keys, name));
    return { ...(await open(`${service.url}/admin/keys`, { ...ADMIN, ...options })), service, keys };
  }

  const fill = (page: Page, name: string): Promise<void> =>
    page.getByLabel("Name", { exact: true }).fill(name);
  const create = (page: Page): Promise<void> => page.getByRole("button", { name: "Create key" }).click();

  const readToken = async (page: Page): Promise<string> =>
    (await page.locator("#invite-content code").last().textContent()) ?? "";
  /** The dialog forgets its content in the event after it has closed. */
  const untilForgotten = (page: Page, token: string): Promise<void> =>
    until(async () => !(await page.content()).includes(token), "the page forgets the token");

  async function createOn(page: Page, name: string): Promise<void> {
    await fill(page, name);
    await create(page);
    await page.getByRole("heading", { name: `Token for ${name}` }).waitFor();
  }

  test("creates a key, shows its token once, and asks before it closes without a copy of the token", async () => {
    const { page, service, hosts } = await openKeys([], {
      permissions: ["clipboard-read", "clipboard-write"],
    });
    const questions: string[] = [];
    page.on("dialog", async (dialog) => {
      questions.push(dialog.type());
      await dialog.dismiss();
    });
    const leave = () => page.evaluate(() => void setTimeout(() => location.reload()));
    await page.getByText("No keys yet.").waitFor();
    await fill(page, "ci <b>");
    await page.getByLabel("Scope").selectOption("Read only");
    await create(page);
    await page.getByRole("heading", { name: "Token for ci <b>" }).waitFor();
    await page.locator("#invite-heading:focus").waitFor();
    const token = await readToken(page);
    expect(token).toMatch(/^todo_\w{49}$/);
    expect(await service.whoami(token)).toBe("ci <b>");
    const row = page.getByRole("row", { name: "ci <b>" });
    await row.waitFor();
    await leave();
    await until(() => questions.length === 1, "the browser asks");
    expect(questions).toEqual(["beforeunload"]);
    await page.getByRole("button", { name: "Copy" }).click();
    await page.getByText("Copied.").waitFor();
    expect(await page.evaluate(() => navigator.clipboard.readText())).toBe(token);
    const [key] = await service.keys.list();
    expect((key?.expiresAt ?? 0) - (key?.createdAt ?? 0)).toBe(90 * DAY);
    expect(await page.getByLabel("Expires after").inputValue()).toBe("90d");
    expect(key?.scope).toBe("read");
    expect(await row.locator('[data-label="Scope"]').textContent()).toBe("read");
    expect(await row.locator("code").textContent()).toBe(key?.id ?? "");
    expect(await row.locator('[data-label="Created"] time, [data-label="Expires"] time').count()).toBe(2);
    await page.getByRole("button", { name: "Done" }).click();
    await page.getByRole("button", { name: "Create key" }).and(page.locator(":focus")).waitFor();
    await untilForgotten(page, token);
    await createOn(page, "second");
    await page.getByRole("rowheader", { name: "second" }).waitFor();
    await page.getByRole("button", { name: "Copy" }).click();
    await page.getByText("Copied.").waitFor();
    const reloaded = page.waitForEvent("load");
    await leave();
    await reloaded;
    expect(questions).toHaveLength(1);
    await createOn(page, "third");
    await page.evaluate(() => {
      Object.defineProperty(navigator, "clipboard", { value: undefined });
      document.execCommand = () => false;
    });
    await page.getByRole("button", { name: "Copy" }).click();
    await page.getByText("The browser forbids copying.").waitFor();
    await page.getByRole("button", { name: "Done" }).click();
    await page.locator("#invite-content:empty").waitFor({ state: "attached" });
    await page.reload();
    await row.waitFor();
    expect(await page.getByRole("rowheader").allTextContents()).toEqual(["third", "second", "ci <b>"]);
    expect(await page.content()).not.toContain(token);
    expect([...hosts]).toEqual([new URL(service.url).host]);
  });

  test("invites a person by a link, and lists their browsers under their key", async () => {
    const service = use(start(true));
    await mint(service.keys, "ada");
    const { page } = await open(`${service.url}/admin/keys`, ADMIN);
    const link = page.locator("#invite-content code").first();
    await fill(page, "ben");
    await create(page);
    await page.getByRole("heading", { name: "Invite ben" }).waitFor();
    await page.getByRole("img", { name: "QR code of the link" }).waitFor();
    expect(await readToken(page)).toMatch(/^todo_\w{49}$/);
    expect(await accessibilityViolations(page)).toEqual([]);
    for (const width of [320, 390, 1280]) {
      await expectFits(page, width);
      const done = await page.getByRole("button", { name: "Done" }).boundingBox();
      expect((done?.y ?? 700) + (done?.height ?? 0)).toBeLessThanOrEqual(700);
    }
    const signIn = async (): Promise<void> => {
      const other = await open((await link.textContent()) ?? "");
      await other.page.getByRole("button", { name: "Sign in as ben" }).click();
      await other.page.locator("#show-devices:not([hidden])").waitFor({ state: "attached" });
    };
    await signIn();
    await page.getByRole("button", { name: "Done" }).click();

    // The first link was used, and the token stays valid.
    await page.getByRole("button", { name: "Invite ben" }).click();
    await link.waitFor();
    expect(await page.locator("#invite-content code").count()).toBe(1);
    await signIn();
    await page.keyboard.press("Escape");
    await page.getByRole("button", { name: "Invite ben" }).and(page.locator(":focus")).waitFor();
    await page.reload();
    await page.getByText("Browser of ben").first().waitFor();
    expect(await page.getByRole("rowheader").allTextContents()).toEqual([
      "ben",
      expect.stringMatching(/^ben · Chrome on .* 2 Browser of ben$/),
      expect.stringMatching(/^ben · Chrome on .* Browser of ben$/),
      "ada",
    ]);
    for (const width of [320, 1280]) await expectFits(page, width);
  });

  test("shows validation errors at their fields", async () => {
    const { page, service } = await openKeys(["ci"]);
    await page.getByLabel("Expires after").selectOption("Other");
    await page.locator("#expires:focus").waitFor();
    await page.getByLabel("Other duration").fill("soon");
    await create(page);
    await page.getByText("It must not be empty.").waitFor();
    await page.getByText("It must be a duration such as 90d").waitFor();
    await page.locator("#name:focus").waitFor();
    await fill(page, "ci");
    await create(page);
    await page.locator("#expires:focus").waitFor();
    await page.getByLabel("Other duration").fill("");
    await create(page);
    await page.getByText("It must be a duration such as 90d").waitFor();
    await page.getByLabel("Expires after").selectOption("1 year");
    expect(await page.getByLabel("Other duration").isVisible()).toBe(false);
    await create(page);
    await page.getByText("It is already in use: rotate or revoke the key of this name").waitFor();
    await page.locator("#name:focus").waitFor();
    await fill(page, "other");
    await page.getByLabel("Expires after").selectOption("Other");
    await page.getByLabel("Other duration").fill("2w");
    await create(page);
    await page.getByRole("heading", { name: "Token for other" }).waitFor();
    const key = (await service.keys.list()).find(({ name }) => name === "other");
    expect((key?.expiresAt ?? 0) - (key?.createdAt ?? 0)).toBe(14 * DAY);
    expect(await page.getByLabel("Other duration").isVisible()).toBe(false);
  });

  test("shows changes made elsewhere within ten seconds, keeps the focus, and hides the token of a revoked key", async () => {
    const { page, service, keys } = await openKeys(["ci", "phone"]);
    await page.clock.install();
    await page.reload();
    const ci = page.getByRole("button", { name: "Rotate ci" });
    await ci.focus();
    await mint(service.keys, "laptop");
    await service.keys.delete(keys[1]?.key.id ?? "");
    await page.clock.fastForward(10_000);
    await page.getByRole("rowheader", { name: "laptop" }).waitFor();
    expect(await page.getByRole("rowheader").allTextContents()).toEqual(["laptop", "ci"]);
    expect(await ci.evaluate((element) => element === document.activeElement)).toBe(true);
    // A lost connection is shown, and the next read recovers.
    await page.route("**/admin/keys", (route) => route.abort(), { times: 1 });
    await page.clock.fastForward(10_000);
    await page.getByText("The keys cannot be loaded. The service cannot be reached.").waitFor();
    expect(await page.getByRole("rowheader").count()).toBe(2);
    await page.route("**/admin/keys", (route) => route.fulfill({ json: {} }), { times: 1 });
    await page.clock.fastForward(10_000);
    await page
      .getByText("The keys cannot be loaded. The response is not from the service (status 200).")
      .waitFor();
    await page.clock.fastForward(10_000);
    await page.getByText("The keys cannot be loaded").waitFor({ state: "detached" });
    // As if the clock of the device was wrong.
    await page.clock.setSystemTime(Date.now() + 100 * DAY);
    await createOn(page, "new");
    const token = await readToken(page);
    await page.getByRole("row", { name: "new" }).getByText("Expired").waitFor();
    await page.keyboard.press("Escape");
    expect(await page.locator("#invite").isVisible()).toBe(true);
    for (const { id } of await service.keys.list()) await service.keys.delete(id);
    await page.clock.fastForward(10_000);
    await untilForgotten(page, token);
    expect(await page.locator("#invite").isVisible()).toBe(false);
  });

  test("lets nothing else be used while an action runs, also after its dialog was closed", async () => {
    const { page } = await openKeys(["other"]);
    const held: Route[] = [];
    await page.route("**/admin/keys**", (route) =>
      /POST|DELETE/.test(route.request().method()) ? held.push(route) : route.fallback(),
    );
    const whileInert = async (action: string): Promise<void> => {
      await until(() => held.length === 1, action);
      expect(
        await page
          .locator("section")
          .first()
          .evaluate((element) => element.matches("[inert] *")),
      ).toBe(true);
      await held.pop()?.continue();
    };
    await fill(page, "first");
    await page.keyboard.press("Enter");
    await whileInert("creates");
    await page.getByRole("heading", { name: "Token for first" }).waitFor();
    await page.getByRole("button", { name: "Done" }).click();
    await page.getByRole("button", { name: "Revoke other" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Revoke" }).click();
    await page.keyboard.press("Escape");
    await whileInert("revokes");
    await page.getByText("Revoked: other").waitFor();
    await page.locator("#keys-heading:focus").waitFor();
    await page.getByRole("button", { name: "Rename first" }).click();
    await page.getByRole("heading", { name: "Rename this key?" }).waitFor();
  });

  test("reports that a key may exist if the response with its token is lost", async () => {
    const { page } = await openKeys();
    await page.getByText("No keys yet.").waitFor();
    const loseResponse = async (route: Route): Promise<void> => {
      if (route.request().method() !== "POST") return route.fallback();
      await route.fetch();
      return route.abort("connectionreset");
    };
    await page.route("**/admin/keys", loseResponse);
    await fill(page, "ci");
    await create(page);
    const toast = page.getByRole("alert");
    await toast.getByText("If there is a new key, revoke it or rotate it").waitFor();
    await page.getByRole("button", { name: "Create key" }).and(page.locator(":focus")).waitFor();
    await toast.getByRole("button", { name: "Dismiss" }).click();
    await page.getByRole("rowheader", { name: "ci" }).waitFor();
    await page.route("**/rotate", loseResponse);
    await page.getByRole("button", { name: "Rotate ci" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Rotate" }).click();
    await toast.getByText("If there is a new key, revoke it or rotate it").waitFor();
    await page.getByText("Old token, valid until").waitFor();
    expect(await page.getByRole("rowheader").allTextContents()).toEqual([
      "ci",
      expect.stringContaining("ci Old token, valid until "),
    ]);
  });

  test("rotates and revokes a key after confirmation", async () => {
    const { page, service, keys } = await openKeys(["ci"]);
    const oldToken = keys[0]?.token ?? "";
    const dialog = page.getByRole("dialog");
    const overlap = dialog.getByLabel("The old token works for");
    await page.getByRole("button", { name: "Rotate ci" }).click();
    await page.keyboard.press("Escape");
    expect(await service.whoami(oldToken)).toBe("ci");
    await page.getByRole("button", { name: "Rotate ci" }).click();
    await overlap.fill("a while");
    await dialog.getByRole("button", { name: "Rotate" }).click();
    await dialog.getByText("It must be a duration").waitFor();
    await page.locator("#confirm-value:focus").waitFor();
    await dialog.getByRole("button", { name: "Cancel" }).click();
    await page.getByRole("button", { name: "Rotate ci" }).click();
    expect(await overlap.inputValue()).toBe("24h");
    expect(await page.locator("#confirm-value-error").textContent()).toBe("");
    await overlap.fill("0");
    await dialog.getByRole("button", { name: "Rotate" }).dblclick();
    await page.getByRole("heading", { name: "Token for ci" }).waitFor();
    await page.locator("#invite-heading:focus").waitFor();
    expect(await service.keys.list()).toHaveLength(2);
    const token = await readToken(page);
    expect(await service.whoami(token)).toBe("ci");
    expect(await service.whoami(oldToken)).toContain('"unauthorized"');
    await page.getByRole("button", { name: "Done" }).click();
    await page.getByRole("button", { name: "Revoke ci" }).click();
    await dialog.getByRole("button", { name: "Cancel" }).click();
    expect(await service.whoami(token)).toBe("ci");
    await page.getByRole("button", { name: "Revoke ci" }).click();
    await dialog.getByRole("button", { name: "Revoke" }).click();
    await page.getByText("Revoked: ci").waitFor();
    await page.getByRole("button", { name: "Revoke ci" }).waitFor({ state: "detached" });
    await page.locator("#keys-heading:focus").waitFor();
    expect(await service.whoami(token)).toContain('"unauthorized"');
    // The list still contains the key that expired at its rotation.
    await page.getByRole("button", { name: "Remove ci" }).click();
    await dialog.getByRole("button", { name: "Remove" }).click();
    await page.getByText("Removed: ci").waitFor();
    await page.getByText("No keys yet.").waitFor();
    await page.locator("#keys-heading:focus").waitFor();
  });

  test("renames a key, and shows what is wrong with a name", async () => {
    const { page, service, keys } = await openKeys(["build", "ci"]);
    const dialog = page.getByRole("dialog");
    const name = dialog.getByLabel("New name");
    await page.getByRole("button", { name: "Rename ci" }).click();
    expect(await name.inputValue()).toBe("ci");
    await name.fill(" ");
    await dialog.getByRole("button", { name: "Rename", exact: true }).click();
    await dialog.getByText("It must not be empty.").waitFor();
    await name.fill("build");
    await name.press("Enter");
    await dialog.getByText("It is already in use").waitFor();
    expect(await accessibilityViolations(page)).toEqual([]);
    await name.fill("release");
    await name.press("Enter");
    await page.getByRole("rowheader", { name: "release" }).waitFor();
    await page.getByRole("button", { name: "Rename release" }).and(page.locator(":focus")).waitFor();
    expect(await service.whoami(keys[1]?.token ?? "")).toBe("release");
  });

  test.each(["light", "dark"] as const)("is accessible and fits windows in %s mode", async (colorScheme) => {
    const service = use(start());
    await createKey(service.keys, "a client with quite a long name, and mo".repeat(2), 90 * DAY, Date.now());
    await createKey(service.keys, "W".repeat(100), DAY, Date.now() - 3 * DAY);
    const { page } = await open(`${service.url}/admin/keys`, { ...ADMIN, colorScheme });
    await page.getByRole("row", { name: "WW" }).getByText("Expired").waitFor();
    expect(await page.getByText("Expired").count()).toBe(1);
    await page.getByLabel("Expires after").selectOption("Other");
    await create(page);
    await page.getByText("It must not be empty.").waitFor();
    await page.getByLabel("Expires after").selectOption("30 days");
    await createOn(page, "ci");
    expect(await accessibilityViolations(page)).toEqual([]);
    await page.getByRole("button", { name: "Done" }).click();
    await page.getByRole("button", { name: "Rotate ci" }).waitFor();
    for (const width of WIDTHS) {
      await expectFits(page, width);
      const rights = await page
        .locator("button, td, th, code")
        .filter({ visible: true })
        .evaluateAll((all) => all.map((element) => element.getBoundingClientRect().right));
      expect(Math.max(...rights)).toBeLessThanOrEqual(width);
      if (width === 320 || width === 1280) expect(await accessibilityViolations(page)).toEqual([]);
    }
    await page.getByRole("button", { name: "Rotate ci" }).click();
    expect(await accessibilityViolations(page)).toEqual([]);
  });
});
