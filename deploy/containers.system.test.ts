import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { chmod, mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { provideBaseImages } from "../test/base-images.ts";
import { launchBrowser } from "../test/chromium.ts";
import { ended } from "../test/command.ts";
import { ContainerEngine } from "../test/container-engine.ts";
import { inOrder, outputOf, whyNoSystem } from "../test/debian.ts";
import { commandsOf } from "../test/docs.ts";
import { skipFor } from "../test/skip.ts";
import { until } from "../test/until.ts";

const BUILD_LIMIT_MS = 600_000;
setDefaultTimeout(BUILD_LIMIT_MS);
/** Caddy signs the certificates of names below .localhost itself. */
const DOMAIN = "todo.localhost";
const HOUSEHOLD = "docs/tutorials/household.md";
const SERVER = "docs/tutorials/server-with-https.md";
const LIST = [{ id: 1, title: "buy milk", done: false }];

describe.skipIf(skipFor(whyNoSystem))("with a container engine,", () => {
  const resources = new AsyncDisposableStack();
  let engine: ContainerEngine;
  /** A repository with the files of this one, also those that are not committed yet. */
  let origin: string;
  let certificate: string;

  beforeAll(async () => {
    const folder = await mkdtemp(join(tmpdir(), "todo-engine-"));
    resources.defer(() => rm(folder, { recursive: true }));
    engine = resources.use(await ContainerEngine.start(folder));
    await provideBaseImages(engine);
    origin = join(engine.folder, "origin/todo-service");
    certificate = join(engine.folder, "root.crt");
    await copyProject();
  }, BUILD_LIMIT_MS);
  afterAll(() => resources.disposeAsync());

  async function copyProject(): Promise<void> {
    const commands = `git clone --quiet . "$0"
      git ls-files -z --cached --others --exclude-standard deploy | xargs -0 cp --parents -t "$0"
      cd "$0"
      # The stand-ins have no digests.
      sed -i 's/@sha256:[0-9a-f]*//' deploy/Containerfile deploy/compose*.yaml
      git add deploy`;
    await outputOf(["sh", "-ec", commands, origin]);
    await commit("Prepare the test");
  }

  async function commit(subject: string): Promise<void> {
    const identity = ["-c", "user.name=test", "-c", "user.email=test@localhost"];
    await outputOf(["git", "-C", origin, ...identity, "commit", "--quiet", "--allow-empty", "-am", subject]);
  }

  /** Runs the commands of a page in a folder, where `docker` and `curl` are those of the engine. Returns what they print. */
  async function runPage(text: string, folder: string): Promise<string> {
    const quote = (words: readonly string[]) => words.map((word) => `'${word}'`).join(" ");
    const docker = engine.system.commandLineFor("FOLDER");
    const functions = `
      docker() { ${quote(docker).replace("FOLDER'", `'"$PWD"`)} docker "$@"; }
      curl() { ${quote(engine.networkCommand())} curl -sS "$@"; }
      sudo() { "$@"; }`;
    const changed = text
      .replaceAll("https://github.com/OWNER/todo-service.git", origin)
      .replaceAll("todo.example.com", DOMAIN);
    return outputOf(["sh", "-ec", `${functions}\ncd "$0"\n${changed}`, folder], {
      CURL_CA_BUNDLE: certificate,
    });
  }

  async function request(url: string, ...options: readonly string[]) {
    const { stdout, stderr } = await ended(
      engine.runInNetwork([
        ...["curl", "-sS", "--max-time", "10", "--cacert", certificate],
        ...["--write-out", "\n%{http_code}", ...options, url],
      ]),
    );
    const [, body = "", status = ""] = /^([\s\S]*)\n(\d+)$/.exec(stdout) ?? [];
    return { status: Number(status), body, error: stderr };
  }

  const statusOf = async (url: string, ...options: readonly string[]): Promise<number> =>
    (await request(url, ...options)).status;
  const inspect = (container: string, format: string): Promise<string> =>
    engine.system.output(["docker", "inspect", "-f", `{{${format}}}`, container]);
  const isHealthy = async (container: string): Promise<boolean> =>
    (await inspect(container, ".State.Health.Status")) === "healthy";
  const killContainer = async (container: string): Promise<string> =>
    engine.system.shell(`kill -KILL ${await inspect(container, ".State.Pid")}`);

  test("the image runs alone, is healthy, and has the labels of its build", async () => {
    const commands = commandsOf(SERVER, "docker run")
      .replace("build", "build --build-arg SOURCE=a --build-arg VERSION=b --build-arg REVISION=c")
      .replace("run", "run --detach --rm --name alone");
    await runPage(commands, origin);
    await until(() => isHealthy("alone"), "the server is healthy");
    expect(await statusOf("http://127.0.0.1:3000/api/todos")).toBe(200);
    const labels = JSON.parse(await inspect("alone", "json .Config.Labels"));
    for (const [name, value] of Object.entries({ source: "a", version: "b", revision: "c" }))
      expect(labels).toMatchObject({ [`org.opencontainers.image.${name}`]: value });
    await engine.system.output(["docker", "stop", "alone"]);
  });

  describe("compose.home.yaml", () => {
    const step = inOrder();
    const url = `https://${DOMAIN}`;
    let home: string;
    let folder: string;
    let cookieOfBen: string;
    const docker = (...args: readonly string[]): Promise<string> =>
      engine.system.output(["docker", ...args], { folder });
    const page = (name: string, part: string, change = (text: string): string => text): Promise<string> =>
      runPage(change(commandsOf(name, part)), folder);
    const as = (name: string): readonly string[] => ["--cookie", join(home, name)];
    const own = ["--header", `Origin: ${url}`, "--header", "Sec-Fetch-Site: same-origin"];
    const listOf = async (name: string): Promise<unknown> => {
      const { status, body } = await request(`${url}/api/todos`, ...as(name));
      return status === 200 ? JSON.parse(body) : status;
    };
    const answers = async (): Promise<boolean> => (await statusOf(`${url}/livez`)) === 200;
    const getsCertificate = async (): Promise<boolean> =>
      (await engine.system.run(
        ["docker", "compose", "cp", "caddy:/data/caddy/pki/authorities/local/root.crt", certificate],
        { folder },
      ).exited) === 0;

    beforeAll(async () => {
      home = join(engine.folder, "home");
      folder = join(home, "todo-service/deploy");
      await mkdir(home);
    });
    afterAll(() => engine.system.run(["docker", "compose", "down", "--volumes"], { folder }).exited);

    step("starts, and answers over HTTPS at its name", async () => {
      await runPage(commandsOf(HOUSEHOLD, "git clone"), home);
      await page(HOUSEHOLD, "docker compose up");
      await until(getsCertificate, "Caddy has its own authority");
      expect(await page(HOUSEHOLD, "/livez")).toBe("ok\n");
      await until(() => isHealthy("deploy-todo-1"), "the server is healthy");
      expect(await statusOf(`${url}/api/todos`)).toBe(401);
      expect(await statusOf(`http://${DOMAIN}/`)).toBe(308);
      const { body } = await request(`${url}/`, "--head");
      expect(body.toLowerCase()).toContain("strict-transport-security: max-age=31536000");
    });

    step("signs in by a link once", async () => {
      const link = (await page(HOUSEHOLD, "keys link ada")).trim();
      expect(link).toStartWith(`${url}/#sign-in=`);
      const code = JSON.stringify({ code: link.split("=")[1] });
      const open = (...options: readonly string[]): Promise<number> =>
        statusOf(`${url}/api/session`, ...own, "--json", code, ...options);
      expect(await open("--cookie-jar", join(home, "ada"))).toBe(201);
      expect(await open()).toBe(401);
      const todo = JSON.stringify({ title: "buy milk" });
      expect(await statusOf(`${url}/api/todos`, ...as("ada"), ...own, "--json", todo)).toBe(201);
      expect(await listOf("ada")).toEqual(LIST);
    });

    step("shows a second person the list in Chromium", async () => {
      const link = (await page(HOUSEHOLD, "keys create ben")).trim();
      const program = join(home, "chromium");
      await writeFile(program, `#!/bin/sh\nexec ${engine.networkCommand().join(" ")} chromium "$@"\n`);
      await chmod(program, 0o755);
      await using browser = await launchBrowser(program);
      const opened = await browser.newPage({ ignoreHTTPSErrors: true });
      await opened.goto(link);
      await opened.getByRole("button", { name: "Sign in as ben" }).click();
      await opened.getByText("buy milk").waitFor();
      const [cookie] = await opened.context().cookies();
      cookieOfBen = `${cookie?.name}=${cookie?.value}`;
      await page(HOUSEHOLD, "keys revoke ben");
    });

    step("keeps its files private, its logs small, and makes a backup", async () => {
      for (const name of ["data", "backups"]) {
        const { mode, uid } = await stat(join(folder, name));
        expect([name, (mode & 0o777).toString(8), uid]).toEqual([name, "700", 65532]);
      }
      const containers = (await docker("compose", "ps", "-aq")).split("\n");
      expect(containers.length).toBe(3);
      for (const id of containers) expect(await inspect(id, ".HostConfig.LogConfig.Type")).toBe("local");
      const hasBackup = async () =>
        (await readdir(join(folder, "backups"))).some((name) => name.endsWith(".db"));
      await until(hasBackup, "the first backup exists");
    });

    step("keeps the list in restarts, when it is killed, and in a power cut", async () => {
      await docker("compose", "restart");
      await until(answers, "the list answers after a restart");
      expect(await listOf("ada")).toEqual(LIST);
      // His key is revoked.
      expect(await statusOf(`${url}/api/todos`, "--cookie", cookieOfBen)).toBe(401);
      await docker("compose", "stop", "todo");
      expect(await inspect("deploy-todo-1", ".State.ExitCode")).toBe("0");
      await docker("compose", "down", "--volumes");
      await docker("compose", "up", "-d");
      await until(
        async () => (await getsCertificate()) && (await answers()),
        "the list answers after a removal",
      );
      expect(await listOf("ada")).toEqual(LIST);
      const started = await inspect("deploy-todo-1", ".State.StartedAt");
      await killContainer("deploy-todo-1");
      const isNew = async () => (await inspect("deploy-todo-1", ".State.StartedAt")) !== started;
      await until(async () => (await isNew()) && (await answers()), "a killed server starts again");
      await engine.stop();
      await engine.start();
      await until(answers, "the list answers after a power cut");
      expect(await listOf("ada")).toEqual(LIST);
    });

    step("restores a backup", async () => {
      await docker("compose", "exec", "todo", "todo", "backup", "/backups/mine.db");
      expect(await statusOf(`${url}/api/todos/1`, ...as("ada"), ...own, "--request", "DELETE")).toBe(204);
      const change = (text: string): string => text.replaceAll("BACKUP", "mine");
      expect(await page(HOUSEHOLD, "todo export", change)).toContain("buy milk");
      await page(HOUSEHOLD, "compose stop todo", change);
      await until(answers, "the list answers after a restore");
      expect(await listOf("ada")).toEqual(LIST);
    });

    step("is upgraded", async () => {
      const file = join(origin, "package.json");
      const text = await readFile(file, "utf8");
      await writeFile(file, text.replace(/"version": ".*"/, '"version": "98.7.6"'));
      await commit("Release 98.7.6");
      await page(HOUSEHOLD, "up -d --build");
      await until(answers, "the list answers after an upgrade");
      expect(await docker("compose", "exec", "todo", "todo", "--version")).toContain("98.7.6");
      expect(await listOf("ada")).toEqual(LIST);
    });

    step("is healthy with a proxy in the environment, as Docker passes it to containers", async () => {
      const proxy = { HTTP_PROXY: "http://192.0.2.9:3128", http_proxy: "http://192.0.2.9:3128" };
      const file = join(folder, "proxy.yaml");
      await writeFile(file, JSON.stringify({ services: { todo: { environment: proxy } } }));
      await docker("compose", "-f", "compose.home.yaml", "-f", "proxy.yaml", "up", "-d");
      await until(() => isHealthy("deploy-todo-1"), "the server is healthy");
      await until(answers, "the list answers");
    });

    test("asks for a missing DOMAIN", async () => {
      const command = ["docker", "compose", "--env-file=/dev/null", "-f", "compose.home.yaml", "config"];
      const { code, stderr } = await ended(engine.system.run(command, { folder }));
      expect([code, stderr]).toEqual([expect.any(Number), expect.stringContaining("into the file .env")]);
      expect(code).not.toBe(0);
    });

    test("gets the socket of Tailscale for Caddy by the files of the guide", async () => {
      const other = join(engine.folder, "at-home");
      await mkdir(other);
      await runPage(commandsOf(HOUSEHOLD, "git clone"), other);
      const deploy = join(other, "todo-service/deploy");
      await runPage(commandsOf(HOUSEHOLD, "compose.tailscale.yaml"), deploy);
      const { services } = await configOf(["docker", "compose"], deploy);
      expect(JSON.stringify(services.caddy?.volumes)).toContain("/var/run/tailscale");
      expect(services.todo?.environment).toMatchObject({ TODO_URL: "https://pi.tail1234.ts.net" });
    });
  });

  async function configOf(compose: readonly string[], folder: string): Promise<Config> {
    return JSON.parse(await engine.system.output([...compose, "config", "--format=json"], { folder }));
  }

  describe("compose.yaml", () => {
    const step = inOrder();
    const url = "http://127.0.0.1:3000";
    const compose = ["docker", "compose", "-f", "deploy/compose.yaml"];
    let folder: string;
    const secret = async (name: string): Promise<string> =>
      (await readFile(join(folder, "deploy/secrets", name), "utf8")).trim();
    const replicas = [1, 2, 3].map((number) => `deploy-replica-${number}`);
    const addressOf = async (container: string): Promise<string> =>
      `http://${await inspect(container, "range .NetworkSettings.Networks}}{{.IPAddress}}{{end")}:3000`;
    const answers = async (): Promise<boolean> => (await statusOf(`${url}/api/todos`)) === 200;
    const titlesAt = async (address: string): Promise<readonly string[]> => {
      const { body } = await request(`${address}/api/todos`, "--header", "Host: localhost");
      return JSON.parse(body).map(({ title }: { readonly title: string }) => title);
    };

    beforeAll(async () => {
      folder = join(engine.folder, "three");
      await outputOf(["git", "clone", "--quiet", origin, folder]);
    });
    afterAll(() => engine.system.run([...compose, "down", "--volumes"], { folder }).exited);

    step("starts three replicas, which share a list and the created secrets", async () => {
      await runPage(commandsOf(SERVER, "make-secrets"), folder);
      await until(answers, "the balancer answers");
      expect(await runPage(commandsOf(SERVER, "client_token"), folder)).toBe("[]\nclient\n");
      for (const title of ["a", "b", "c"])
        expect(await statusOf(`${url}/api/todos`, "--json", JSON.stringify({ title }))).toBe(201);
      const authorization = `Authorization: Bearer ${await secret("client_token")}`;
      for (const replica of replicas) {
        const address = await addressOf(replica);
        expect(await titlesAt(address)).toEqual(["a", "b", "c"]);
        const whoami = await request(`${address}/api/whoami`, "-H", "Host: localhost", "-H", authorization);
        expect(whoami.body).toBe("client");
      }
    });

    step("accepts the password for /admin/ only over HTTPS by the balancer", async () => {
      const admin = ["--user", `admin:${await secret("admin_password")}`];
      const secure = ["--header", "Host: localhost", "--header", "X-Forwarded-Proto: https", ...admin];
      expect(await statusOf(`${url}/admin/`, ...admin)).toBe(403);
      expect(await statusOf(`${url}/admin/`, ...secure)).toBe(403);
      const address = `${await addressOf("deploy-replica-1")}/admin/`;
      expect(await statusOf(address, ...secure)).toBe(403);
      const fromBalancer = ["docker", "exec", "deploy-balancer-1", "curl", "-sS", ...secure, address];
      expect(await engine.system.output(fromBalancer)).toBe("Hello, admin!");
    });

    step("answers every request while the replicas restart, and after one is killed", async () => {
      const statuses = new Set<number>();
      let isRunning = true;
      const client = (async () => {
        while (isRunning) statuses.add(await statusOf(`${url}/api/todos`));
      })();
      for (const replica of replicas) {
        await engine.system.output(["docker", "restart", "--time=15", replica]);
        await until(() => isHealthy(replica), `${replica} is healthy`);
      }
      await killContainer("deploy-replica-2");
      for (let turn = 0; turn < 20; turn++) statuses.add(await statusOf(`${url}/api/todos`));
      isRunning = false;
      await client;
      expect([...statuses]).toEqual([200]);
    });

    step("answers again after a crash of PostgreSQL, and after a power cut", async () => {
      const started = await inspect("deploy-postgres-1", ".State.StartedAt");
      await killContainer("deploy-postgres-1");
      const isNew = async () => (await inspect("deploy-postgres-1", ".State.StartedAt")) !== started;
      await until(async () => (await isNew()) && (await answers()), "the list answers after a crash");
      expect(await titlesAt(url)).toEqual(["a", "b", "c"]);
      await engine.stop();
      await engine.start();
      await until(answers, "the list answers after a power cut");
      expect(await titlesAt(url)).toEqual(["a", "b", "c"]);
    });
  });

  test.each(["compose.yaml", "compose.home.yaml"])(
    "%s names complete images in exact versions, the created secrets, and a rotation of logs",
    async (file) => {
      const folder = join(origin, "deploy");
      await writeFile(join(folder, ".env"), "DOMAIN=todo.example.com\n");
      const { services } = await configOf(["docker", "compose", "-f", file], folder);
      for (const [name, { image, environment = {}, secrets = [], logging, restart }] of Object.entries(
        services,
      )) {
        if (image !== undefined)
          expect([name, image]).toEqual([name, expect.stringMatching(/^docker\.io\/.+:\d+\.\d+/)]);
        const used = Object.values(environment).flatMap(
          (value) => /^\/run\/secrets\/(.*)$/.exec(value)?.[1] ?? [],
        );
        expect([name, used.toSorted()]).toEqual([name, secrets.map(({ source }) => source).toSorted()]);
        expect([name, logging.driver]).toEqual([name, "local"]);
        if (name !== "folders") expect([name, restart]).toEqual([name, "unless-stopped"]);
      }
    },
  );
});

interface Config {
  readonly services: Readonly<
    Record<
      string,
      {
        readonly image?: string;
        readonly environment?: Readonly<Record<string, string>>;
        readonly secrets?: readonly { readonly source: string }[];
        readonly volumes?: readonly unknown[];
        readonly logging: { readonly driver: string };
        readonly restart?: string;
      }
    >
  >;
}
