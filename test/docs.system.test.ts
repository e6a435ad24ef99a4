import { describe, expect, setDefaultTimeout, test } from "bun:test";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { SQL } from "bun";
import { hashToken, mintToken, randomBase62 } from "../src/credential/token.ts";
import { whyNoBrowser } from "./chromium.ts";
import { run, runTodo, succeed } from "./command.ts";
import { commandsOf, readPage, readPages, runPage } from "./docs.ts";
import { freePort } from "./free-port.ts";
import { useBrowser } from "./page.ts";
import { openDatabases, whyNoDatabase } from "./postgres.ts";
import { skipFor } from "./skip.ts";
import { temporaryFolder } from "./temporary.ts";
import { whyMissing } from "./tools.ts";
import { until } from "./until.ts";

setDefaultTimeout(300_000);

/** test/docs.test.ts runs its commands. */
const README = "README.md";
/** test/reference.test.ts runs its examples, each of which uses the token of an earlier one. */
const HTTP_API = "docs/reference/http-api.md";
const LIVE_PAGE = "docs/how-to/connect-a-web-app.md";
const POSTGRES = "docs/how-to/postgresql.md";
/** release/debian.system.test.ts runs its commands for the package. */
const SERVER = "docs/tutorials/server-with-https.md";

const others = readPages()
  .filter(({ path }) => ![README, HTTP_API, LIVE_PAGE, POSTGRES, SERVER].includes(path))
  .filter(({ blocks }) => blocks.some(({ language }) => language === "sh"))
  .map(({ path }) => path);

describe.skipIf(skipFor(whyMissing("curl")))("the commands work and print what the page shows", () => {
  test.concurrent.each(others)("%s", async (path) => {
    expect(await runPage(readPage(path))).toEqual([]);
  });

  test.skipIf(skipFor(whyNoDatabase))(POSTGRES, async () => {
    await using databases = await openDatabases();
    const url = await databases.newDatabase();
    const changed = (text: string): string =>
      text.replaceAll(/postgres:\/\/(?:todo|owner):PASSWORD@db\.example\.com\/todo/g, url);
    const page = readPage(POSTGRES);
    expect(await runPage(page, { changed })).toEqual([]);
    await using sql = new SQL(url);
    const role = `docs_${crypto.randomUUID().replaceAll("-", "")}`;
    await sql.unsafe(`CREATE ROLE ${role}`);
    const statements = page.blocks.filter(({ language }) => language === "sql");
    expect(statements).not.toEqual([]);
    for (const { text } of statements) await sql.unsafe(text.replaceAll(/\btodo\b/g, role));
    await sql.unsafe(`DROP OWNED BY ${role}; DROP ROLE ${role}`);
  });
});

describe.skipIf(skipFor(whyNoBrowser ?? whyMissing("curl")))("the live page", () => {
  const browser = useBrowser();

  test("has at most 40 lines, shows the to-dos and can change them", async () => {
    const tutorial = readPage(LIVE_PAGE);
    const files = tutorial.blocks.filter(({ language }) => ["html", "js"].includes(language));
    expect(files.flatMap(({ text }) => text.trimEnd().split("\n").slice(1)).length).toBeLessThanOrEqual(40);
    const whileRunning = async (usePorts: (text: string) => string): Promise<void> => {
      const page = await browser.newPage();
      await page.goto(usePorts("http://localhost:5173/"));
      const row = (title: string) => page.locator("li", { hasText: title });
      await row("buy milk").waitFor();
      await page.getByLabel("Title").fill("from <b>the</b> page");
      await page.getByRole("button", { name: "Add" }).click();
      await row("from <b>the</b> page").waitFor();
      await row("buy milk").getByRole("checkbox").check();
      const url = usePorts("http://127.0.0.1:3000/api/todos");
      const isDone = async () => (await (await fetch(`${url}/1`)).text()).includes('"done":true');
      await until(isDone, "the to-do is done");
      await fetch(`${url}/1`, { method: "DELETE" });
      await row("buy milk").waitFor({ state: "detached" });
      await page.close();
    };
    expect(await runPage(tutorial, { whileRunning })).toEqual([]);
  });
});

const folder = temporaryFolder();

const fileIn = (name: string, site: string): string =>
  /<<'END'\n(.*\n)END\n/s.exec(commandsOf(SERVER, name))?.[1]?.replaceAll("todo.example.com", site) ?? "";

test.skipIf(skipFor(whyMissing("curl") ?? whyMissing("caddy")))("the tutorial leads to HTTPS", async () => {
  const site = `localhost:${await freePort()}`;
  const [PASSWORD, TOKEN, clients] = [randomBase62(24), mintToken(), join(folder, "clients")];
  await writeFile(clients, `phone:${hashToken(TOKEN).toString("hex")}\n`);
  const settings = [...fileIn("/etc/todo-service/environment", site).matchAll(/^(\w+)=(.+)$/gm)];
  await using service = runTodo(["serve", "--private", "--port", "0", "--metrics-port", "0"], {
    ...Object.fromEntries(settings.map(([, name = "", value = ""]) => [name, value])),
    TODO_CLIENTS_FILE: clients,
    TODO_ADMIN_USER: "admin",
    TODO_ADMIN_PASSWORD: PASSWORD,
  });
  const { host } = new URL(await service.url);
  const config = join(folder, "Caddyfile");
  const options = "{\nadmin off\nskip_install_trust\nauto_https disable_redirects\n}\n";
  await writeFile(config, options + fileIn("/etc/caddy/Caddyfile", site).replace("127.0.0.1:3000", host));
  const folders = { XDG_DATA_HOME: folder, XDG_CONFIG_HOME: folder };
  await using caddy = run(["caddy", "run", "--adapter", "caddyfile", "--config", config], folders);
  const root = join(folder, "caddy/pki/authorities/local/root.crt");
  const live = ["curl", "-sf", "--cacert", root, `https://${site}/livez`];
  await until(async () => (await run(live).exited) === 0, `Caddy answers: ${caddy.stderr()}`);
  const { blocks } = readPage(SERVER);
  const tried = blocks.findIndex(({ text }) => text.includes("/api/whoami"));
  const script = blocks[tried]?.text.replaceAll("todo.example.com", site) ?? "";
  const variables = { PASSWORD, TOKEN, CURL_CA_BUNDLE: root };
  expect(await succeed(run(["sh", "-c", script.replaceAll("curl ", "curl -s ")], variables))).toBe(
    blocks[tried + 1]?.text ?? "",
  );
});
