import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { globSync } from "node:fs";
import { join } from "node:path";
import { SQL } from "bun";
import type { Browser } from "playwright-core";
import { buildDebianPackage } from "../release/debian.ts";
import { launchBrowser, whyNoBrowser } from "./chromium.ts";
import { run } from "./command.ts";
import { readPage, readPages, runPage } from "./docs.ts";
import { freePort } from "./free-port.ts";
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
  let browser: Browser;
  beforeAll(async () => {
    browser = await launchBrowser();
  });
  afterAll(() => browser.close());

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

/** Stand-ins for systemd, the system's users and ssh: plain processes of this user, with all files below $SERVER_ROOT. */
const ONE_MACHINE = `
mkdir -p "$SERVER_ROOT"/{etc/caddy,etc/prometheus,root,run}
PATH="$SERVER_ROOT/usr/bin:$PATH"
export CURL_CA_BUNDLE="$SERVER_ROOT/caddy/caddy/pki/authorities/local/root.crt"
export NODE_EXTRA_CA_CERTS="$CURL_CA_BUNDLE"
npm() { [ "$*" = "run release -- --platforms linux-x64" ]; }
scp() { mv "$SERVER_ROOT"/todo-service_*.deb "$SERVER_ROOT/root/" && cd "$SERVER_ROOT/root"; }
apt() {
  [ "$1" = install ] || return 0
  dpkg-deb --extract "\${!#}" "$SERVER_ROOT"
  # The command of the package is that of a whole system.
  printf '%s\\n' '#!/bin/sh' 'set -a' ". '$SERVER_ROOT/etc/todo-service/environment'" \\
    "exec '$SERVER_ROOT/usr/lib/todo-service/todo' \\"\\$@\\"" >"$SERVER_ROOT/usr/bin/todo"
  mkdir -p "$SERVER_ROOT/var/lib/todo-service/backups"
  : >"$SERVER_ROOT/var/lib/todo-service/users"
  sed -i "s#/var/#$SERVER_ROOT/var/#" "$SERVER_ROOT/etc/todo-service/environment"
}
end() {
  local group
  [ -e "$1" ] || return 0
  group=$(cat "$1")
  kill -TERM -- "-$group" 2>/dev/null || true
  wait "$group" 2>/dev/null || true
  rm "$1"
}
start() {
  local name=$1
  shift
  end "$SERVER_ROOT/run/$name"
  "$@" >"$SERVER_ROOT/$name.log" 2>&1 </dev/null &
  echo "$!" >"$SERVER_ROOT/run/$name"
}
systemctl() {
  case "$*" in
  "enable --now todo-service")
    start todo-service env $(grep -v '^#' "$SERVER_ROOT/etc/todo-service/environment") \\
      $(sed -n "s#/usr/lib#$SERVER_ROOT&#; s/^ExecStart=//p" "$SERVER_ROOT/lib/systemd/system/todo-service.service")
    ;;
  "reload caddy")
    printf '{\\nadmin off\\nskip_install_trust\\nauto_https disable_redirects\\n}\\n' |
      cat - "$SERVER_ROOT/etc/caddy/Caddyfile" >"$SERVER_ROOT/Caddyfile"
    start caddy env XDG_DATA_HOME="$SERVER_ROOT/caddy" XDG_CONFIG_HOME="$SERVER_ROOT/caddy" \\
      caddy run --adapter caddyfile --config "$SERVER_ROOT/Caddyfile"
    until command curl -s -o /dev/null "https://$SITE/livez"; do
      kill -0 "$(cat "$SERVER_ROOT/run/caddy")" || { cat "$SERVER_ROOT/caddy.log" >&2; return 1; }
      sleep 0.1
    done
    ;;
  "restart prometheus prometheus-alertmanager")
    start prometheus prometheus --config.file="$SERVER_ROOT/etc/prometheus/prometheus.yml" \\
      --storage.tsdb.path="$SERVER_ROOT/prometheus" --web.listen-address=127.0.0.1:9090
    ;;
  *) echo "systemctl $*: this test does not know it" >&2; return 1 ;;
  esac
}
trap 'for each in "$SERVER_ROOT"/run/*; do end "$each"; done' EXIT
`;

const whyNotRoot = process.getuid?.() === 0 ? undefined : "only root can install a Debian package";
const whyNoMachine =
  whyNotRoot ??
  whyMissing("dpkg") ??
  whyMissing("curl") ??
  whyMissing("caddy") ??
  whyMissing("promtool") ??
  whyMissing("openssl");

const root = temporaryFolder();

test.skipIf(skipFor(whyNoMachine))("the tutorial leads from an empty server to HTTPS", async () => {
  const executable = join(root, "executable");
  await using build = run(["npm", "run", "build:executable", "--", `--outfile=${executable}`]);
  expect([await build.exited, build.stderr()]).toEqual([0, expect.any(String)]);
  const architecture = process.arch === "arm64" ? "arm64" : "amd64";
  buildDebianPackage({ executable, architecture, file: join(root, "todo-service_1.0.0.deb") });
  const site = `localhost:${await freePort()}`;
  const changed = (text: string): string =>
    text
      .replaceAll(/(?<![\w.])\/(?=(?:usr\/share|etc|var\/lib)\/)/g, `${root}/`)
      .replaceAll("todo.example.com", site);
  const whileRunning = async (): Promise<void> => {
    const backups = join(root, "var/lib/todo-service/backups/todos-*.db");
    await until(() => globSync(backups).length > 0, "the first backup exists");
  };
  const variables = { SERVER_ROOT: root, SITE: site };
  const options = { changed, prelude: ONE_MACHINE, variables, whileRunning };
  expect(await runPage(readPage(SERVER), options)).toEqual([]);
});
