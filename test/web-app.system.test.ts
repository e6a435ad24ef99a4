/** The app and the Vitest file of the guides, in fresh projects with the packed tarballs and packages from the registry. */
import { beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { realpathSync } from "node:fs";
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import type { Page } from "playwright-core";
import { startTodoService, type TestServiceOptions } from "../src/testing.ts";
import { whyNoBrowser } from "./chromium.ts";
import { ROOT, runIn, succeed } from "./command.ts";
import { readPage } from "./docs.ts";
import { freePort } from "./free-port.ts";
import { REGISTRY_VARIABLES, whyNoRegistry } from "./npm-install.ts";
import { useBrowser } from "./page.ts";
import { skipFor } from "./skip.ts";
import { temporaryFolder } from "./temporary.ts";
import { until } from "./until.ts";

setDefaultTimeout(300_000);

const CREATE_VITE = "vite@9.3.0";
const VITEST = "vitest@5.1.1";
const GUIDE = readPage("docs/how-to/connect-a-web-app.md");

const folder = realpathSync(temporaryFolder());
beforeAll(async () => {
  if (whyNoRegistry === undefined) await sh(ROOT, `npm pack --silent --pack-destination '${folder}'`);
});

const sh = (where: string, commands: string): Promise<string> =>
  succeed(
    runIn(where, ["sh", "-ec", commands], {
      ...REGISTRY_VARIABLES,
      npm_config_audit: "false",
      npm_config_fund: "false",
    }),
  );

async function writeFiles(page: typeof GUIDE, where: string): Promise<void> {
  for (const { text } of page.blocks) {
    const [, path] = /^\/\/ (\S+\.tsx?)\n/.exec(text) ?? [];
    if (path !== undefined) await Bun.write(join(where, path), text);
  }
}

test.skipIf(skipFor(whyNoRegistry))("the Vitest file starts a server for each test", async () => {
  const project = join(folder, "vitest");
  await mkdir(project);
  await Bun.write(join(project, "package.json"), '{ "private": true, "type": "module" }');
  await sh(project, `npm install ${VITEST} ../todo-service-[0-9]*.tgz`);
  await writeFiles(readPage("docs/how-to/use-it-in-tests.md"), project);
  expect(await sh(project, "npx vitest run todos.test.ts")).toMatch(/2 passed/);
});

describe.skipIf(skipFor(whyNoRegistry ?? whyNoBrowser))("the React app", () => {
  const app = (): string => join(folder, "web");
  const browser = useBrowser();
  beforeAll(async () => {
    const create = GUIDE.blocks.find(({ text }) => text.includes("npm create"))?.text ?? "";
    const clone = join(folder, "todo-service");
    await mkdir(clone);
    await sh(clone, create.replace("vite@latest", CREATE_VITE));
    await writeFiles(GUIDE, app());
  });

  async function open(options: TestServiceOptions) {
    await using stack = new AsyncDisposableStack();
    const service = await startTodoService(options);
    stack.defer(service.stop);
    const port = await freePort();
    const config = await Bun.file(join(app(), "vite.config.ts")).text();
    const name = `vite-${port}.config.ts`;
    await Bun.write(join(app(), name), config.replace("http://127.0.0.1:3000", service.url));
    const vite = ["node_modules/vite/bin/vite.js", "--config", name, "--port", `${port}`, "--strictPort"];
    stack.use(runIn(app(), ["node", ...vite]));
    const url = `http://localhost:${port}/`;
    await until(
      () =>
        fetch(url).then(
          ({ ok }) => ok,
          () => false,
        ),
      "Vite serves the app",
    );
    const page = await browser.newPage();
    stack.defer(() => page.close());
    await page.goto(url);
    const rest = stack.move();
    return { page, service, [Symbol.asyncDispose]: () => rest.disposeAsync() };
  }

  const row = (page: Page, title: string) => page.locator("li", { hasText: title });
  async function add(page: Page, title: string): Promise<void> {
    await page.getByLabel("Title").fill(title);
    await page.getByRole("button", { name: "Add" }).click();
  }

  test("compiles with strict types, and is built", async () => {
    await sh(app(), "npx tsc --noEmit --strict -p tsconfig.app.json\nnpm run build");
  });

  test("signs in to a private service through Vite's proxy, and shows changes live", async () => {
    await using opened = await open({ private: true, todos: ["buy milk"] });
    const { page, service } = opened;
    await page.getByLabel("Token").fill("wrong");
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.getByRole("alert").filter({ hasText: /\S/ }).waitFor();
    const { promise: isCleared, resolve: cleared } = Promise.withResolvers<void>();
    await page.route("**/api/session", (route) => isCleared.then(() => route.continue()));
    await page.getByLabel("Token").fill(service.token);
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.getByRole("alert").filter({ hasNotText: /\S/ }).waitFor({ state: "attached" });
    cleared();
    await row(page, "buy milk").getByRole("checkbox").check();
    await add(page, "walk the dog");
    await row(page, "walk the dog").waitFor();
    const headers = { Authorization: `Bearer ${service.token}`, "Content-Type": "application/json" };
    const titles = async () => (await fetch(`${service.url}/api/todos`, { headers })).text();
    await until(async () => (await titles()).includes("walk the dog"), "the service has the to-do");
    expect(await titles()).toContain('"title":"buy milk","done":true');
    await fetch(`${service.url}/api/todos`, { method: "POST", headers, body: '{"title":"from elsewhere"}' });
    await row(page, "from elsewhere").waitFor();
  });

  test("shows a write at once while a slow service answers, and is offline without a service", async () => {
    await using opened = await open({ simulate: "latency=5s" });
    const { page, service } = opened;
    await page.locator("ul[aria-busy=false]").waitFor({ state: "attached" });
    const start = performance.now();
    await add(page, "buy milk");
    await row(page, "buy milk").waitFor();
    expect(performance.now() - start).toBeLessThan(5000);
    await service.stop();
    await page.getByRole("status").filter({ hasText: "The list is disconnected" }).waitFor();
  });

  test("takes a write back that a failing service rejects, says so, and returns the title to the form", async () => {
    await using opened = await open({ todos: ["buy milk"], args: ["--max-todos", "1"] });
    const { page } = opened;
    await row(page, "buy milk").waitFor();
    await add(page, "walk the dog");
    await page.getByRole("alert").filter({ hasText: /\S/ }).waitFor();
    await row(page, "walk the dog").waitFor({ state: "detached" });
    expect(await page.getByLabel("Title").inputValue()).toBe("walk the dog");
  });
});
