/**
 * Takes the pictures of docs/pictures from running servers: `bin/bun docs/demo/pictures.ts`. It needs the program chromium.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Browser, BrowserContextOptions } from "playwright-core";
import { launchBrowser } from "../../test/chromium.ts";
import { runTodo } from "../../test/command.ts";

const PICTURES = fileURLToPath(new URL("../pictures", import.meta.url));
const PHONE = {
  viewport: { width: 390, height: 700 },
  deviceScaleFactor: 1.5,
  isMobile: true,
  hasTouch: true,
};
const DESKTOP = { viewport: { width: 900, height: 560 }, deviceScaleFactor: 1 };
const ADMIN = { TODO_ADMIN_USER: "admin", TODO_ADMIN_PASSWORD: "secret" };

/** Opens a page, waits for a text on it, and takes a picture. */
async function take(
  browser: Browser,
  name: string,
  url: string,
  text: string,
  options: BrowserContextOptions,
) {
  const context = await browser.newContext({ reducedMotion: "reduce", ...options });
  const page = await context.newPage();
  await page.goto(url);
  await page.getByText(text).first().waitFor();
  await page.screenshot({ path: join(PICTURES, `${name}.png`) });
  await context.close();
}

const folder = mkdtempSync(join(tmpdir(), "todo-pictures-"));
const browser = await launchBrowser();
try {
  const store = `sqlite:${join(folder, "todos.db")}`;
  for (const name of ["ada", "ben"]) await runTodo(["keys", "create", name, "--store", store]).exited;
  await using server = runTodo(["serve", "--port", "0"], { ...ADMIN, TODO_STORE: store });
  const url = await server.url;
  for (const title of ["Buy milk", "Water the plants", "Call Ada", "Pack for the lake"])
    await fetch(`${url}/api/todos`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ title }),
    });
  await fetch(`${url}/api/todos/1`, {
    method: "PATCH",
    headers: { "Content-Type": "application/json" },
    body: '{"done":true}',
  });
  await take(browser, "phone", url, "Call Ada", { ...PHONE, colorScheme: "dark" });
  await take(browser, "desktop", url, "Call Ada", DESKTOP);
  const httpCredentials = { username: ADMIN.TODO_ADMIN_USER, password: ADMIN.TODO_ADMIN_PASSWORD };
  await take(browser, "keys", `${url}/admin/keys`, "ada", {
    viewport: { width: 900, height: 860 },
    httpCredentials,
  });
  await using priv = runTodo(["serve", "--port", "0", "--private"], ADMIN);
  await take(browser, "sign-in", await priv.url, "Sign in", PHONE);
} finally {
  await browser.close();
  rmSync(folder, { recursive: true });
}
