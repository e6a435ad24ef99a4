import { expect, test } from "bun:test";
import { access, copyFile, cp, mkdir, mkdtemp, readdir, readFile, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { startBalancer, startNginx, startTopology } from "../deploy/topology.ts";
import { makeCertificate } from "./certificate.ts";
import { type Command, run, runTodo } from "./command.ts";
import { readPage } from "./docs.ts";
import { freePort } from "./free-port.ts";
import { whyNoServer } from "./postgres.ts";
import { createTodo } from "./served-todos.ts";
import { startService } from "./service.ts";
import { skipFor } from "./skip.ts";
import { follow } from "./sse.ts";
import { temporaryFolder } from "./temporary.ts";
import { whyMissing } from "./tools.ts";
import { until } from "./until.ts";

const folder = temporaryFolder();

const DEPLOY = fileURLToPath(new URL("../deploy", import.meta.url));

const whyNoNginx = whyMissing("nginx");
const whyNoSystemd = whyMissing("systemd-analyze");
const whyNoBuild =
  process.env.TODO_TEST_CONTAINER === undefined
    ? "TODO_TEST_CONTAINER is not set; the container's first stage installs packages"
    : undefined;

const TODO = [process.execPath, "--no-env-file", "src/cli/main.ts"];

const linesOf = async (path: string): Promise<string[]> => (await readFile(path, "utf8")).split("\n");

test.skipIf(skipFor(whyNoServer ?? whyNoNginx))(
  "three replicas behind the nginx of deploy/ return the same list, and their events arrive immediately",
  async () => {
    await using topology = await startTopology();
    const { balancer = "", replicas } = topology;
    const ways = [balancer, ...replicas];
    const ids: number[] = [];
    for (let round = 0; round < 5; round++) {
      ids.push(...(await Promise.all(ways.map(async (way) => (await createTodo(way, `by ${way}`)).id))));
      const lists = await Promise.all(ways.map(async (way) => (await fetch(`${way}/api/todos`)).text()));
      expect(new Set(lists).size).toBe(1);
    }
    expect(ids.toSorted((a, b) => a - b)).toEqual(ids.map((_, index) => index + 1));
    await expectAtOnce(balancer);
  },
);

/** Checks that each change reaches each subscriber behind a proxy before the next change is made. */
async function expectAtOnce(url: string): Promise<void> {
  const readers = [await follow(url), await follow(url)];
  const [[start] = []] = await Promise.all(readers.map((reader) => reader.take(1)));
  readers.push(await follow(url, { since: start?.id ?? "" }));
  for (let turn = 0; turn < 20; turn++) {
    const { id } = await createTodo(url, `${turn}`);
    for (const events of await Promise.all(readers.map((reader) => reader.take(1)))) {
      expect(events.map(({ type, data }) => [type, JSON.parse(data).id])).toEqual([["created", id]]);
    }
  }
  await Promise.all(readers.map((reader) => reader.close()));
}

test.skipIf(skipFor(whyNoNginx))(
  "events arrive immediately through an nginx with only proxy_pass",
  async () => {
    await using stack = new AsyncDisposableStack();
    const service = stack.use(startService());
    const url = await startNginx(
      stack,
      "http",
      (port) => `server { listen 127.0.0.1:${port}; location / { proxy_pass ${service.url}; } }`,
    );
    await expectAtOnce(url);
  },
);

test.skipIf(skipFor(whyNoNginx))(
  "/admin/ behind nginx ignores the forwarding headers of clients",
  async () => {
    await using stack = new AsyncDisposableStack();
    const certificate = makeCertificate();
    const pair = { TODO_ADMIN_USER: "admin", TODO_ADMIN_PASSWORD: "s3cret" };
    const start = async (variables: Readonly<Record<string, string>>) => {
      const server = stack.use(runTodo(["serve", "--port", "0"], { ...pair, ...variables }));
      return Array<string>(3).fill(await server.url);
    };
    const trusting = await start({ TODO_TRUSTED_PROXY: "127.0.0.1" });
    const [secure, plain, stranger] = await Promise.all([
      startBalancer(stack, trusting, { certificate }),
      startBalancer(stack, trusting),
      startBalancer(stack, await start({}), { certificate }),
    ]);
    const inventions = [
      "X-Forwarded-Proto: https",
      "Forwarded: for=127.0.0.1;proto=https",
      "X-Forwarded-Proto: http",
    ];
    for (const said of ["X: ", ...inventions]) {
      const [name = "", value = ""] = said.split(": ");
      const ask = async (url: string): Promise<number> => {
        const headers = { Authorization: `Basic ${btoa("admin:s3cret")}`, [name]: value };
        return (await fetch(`${url}/admin/`, { headers, tls: { ca: certificate.cert } })).status;
      };
      expect([said, await ask(secure), await ask(plain), await ask(stranger)]).toEqual([said, 200, 403, 403]);
    }
  },
);

test.skipIf(skipFor(whyMissing("caddy")))("the Caddyfile is valid", async () => {
  const caddy = run(["caddy", "validate", "--adapter", "caddyfile", "--config", join(DEPLOY, "Caddyfile")]);
  expect([await caddy.exited, caddy.stdout() + caddy.stderr()]).toEqual([
    0,
    expect.stringContaining("Valid configuration"),
  ]);
});

test.skipIf(skipFor(whyNoSystemd)).each(["todo-service.service", "todo-service@.service"])(
  "the unit %s is valid and hardened",
  async (name) => {
    // The program need not be installed on the test machine.
    const unit = await readFile(join(DEPLOY, name), "utf8");
    const path = join(folder, name);
    await writeFile(path, unit.replaceAll("/usr/local/bin/todo", "/bin/true"));
    const verified = run(["systemd-analyze", "verify", path]);
    expect([await verified.exited, verified.stderr()]).toEqual([0, ""]);
    const security = run(["systemd-analyze", "security", "--offline=true", "--threshold=20", path]);
    expect(await security.exited).toBe(0);
  },
);

test.each(["todo-service.service", "todo-service@.service"])(
  "the unit %s restarts the server without a limit, except after an invalid setting",
  async (name) => {
    const settings = (await readFile(join(DEPLOY, name), "utf8")).split("\n");
    const expected = ["Restart=on-failure", "RestartSec=5", "StartLimitIntervalSec=0"];
    expect(settings).toEqual(expect.arrayContaining([...expected, "RestartPreventExitStatus=2"]));
  },
);

test.skipIf(skipFor(whyNoSystemd ?? whyMissing("strace")))(
  "the units allow every system call that the service makes",
  async () => {
    const calls = join(folder, "calls");
    const store = `sqlite:${join(folder, "todos.db")}`;
    const users = join(folder, "users");
    await writeFile(users, `alice:${await Bun.password.hash("secret", { algorithm: "bcrypt", cost: 4 })}\n`);
    await using server = run([
      ...["strace", "-D", "-f", "-c", "-o", calls, ...TODO, "serve", "--port", "0", "--metrics-port", "0"],
      ...["--store", store, "--users-file", users],
    ]);
    const url = await server.url;
    await Promise.all(Array.from({ length: 20 }, (_, index) => createTodo(url, `to-do ${index}`)));
    await (await fetch(`${url}/api/todos`)).text();
    const headers = { Authorization: `Basic ${btoa("alice:secret")}` };
    expect((await fetch(`${url}/admin/`, { headers })).status).toBe(200);
    server.kill("SIGTERM");
    expect(await server.exited).toBe(0);
    const made = (await linesOf(calls)).flatMap((line) => /^ *\d.* (\w+)$/.exec(line)?.[1] ?? []);
    const known = run(["systemd-analyze", "syscall-filter"]);
    await known.exited;
    const members = new Map<string, string[]>();
    let group: string[] = [];
    for (const line of known.stdout().split("\n")) {
      if (line.startsWith("@")) {
        group = [];
        members.set(line.trim(), group);
      } else if (/^ +[@\w]/.test(line)) group.push(line.trim());
    }
    const callsOf = (name: string): string[] =>
      (members.get(name) ?? [name]).flatMap((member) => (member === name ? member : callsOf(member)));
    // SQLite makes this call only as root, and the units do not run as root.
    if (process.getuid?.() === 0) members.set("as root", ["fchown"]);
    const denied = new Set(callsOf("@privileged"));
    const allowed = new Set([
      ...callsOf("@system-service").filter((call) => !denied.has(call)),
      ...callsOf("as root"),
      "total",
    ]);
    expect(made).toEqual(expect.arrayContaining(["fsync", "setpriority"]));
    expect(made.filter((call) => !allowed.has(call))).toEqual([]);
  },
);

/** The parts of a compose file that these tests check. */
interface Compose {
  readonly services: Readonly<
    Record<
      string,
      {
        readonly image?: string;
        readonly environment?: Readonly<Record<string, string>>;
        readonly secrets?: readonly { readonly source: string }[];
        readonly command?: readonly string[];
        readonly volumes?: readonly string[];
      }
    >
  >;
  readonly secrets?: Readonly<Record<string, { readonly file: string }>>;
}

/** Copies deploy/ without secrets to a new folder, and runs `make-secrets` there. Returns the path of the copy. */
async function copyWithSecrets(): Promise<string> {
  const deploy = await mkdtemp(join(folder, "deploy-"));
  await cp(DEPLOY, deploy, {
    recursive: true,
    filter: (path) => !path.startsWith(join(DEPLOY, "secrets")),
  });
  const made = run(["sh", "-c", 'umask 0; exec "$0"', join(deploy, "make-secrets")]);
  expect([await made.exited, made.stderr()]).toEqual([0, ""]);
  return deploy;
}

const modeOf = async (path: string): Promise<string> => ((await stat(path)).mode & 0o777).toString(8);

test("make-secrets creates a private folder of files that the containers' users can read", async () => {
  const deploy = await copyWithSecrets();
  const secrets = join(deploy, "secrets");
  expect(await modeOf(secrets)).toBe("700");
  const names = (await readdir(secrets)).toSorted();
  expect(names).toEqual(["admin_password", "client_token", "clients", "postgres_password", "store_url"]);
  for (const name of names) expect([name, await modeOf(join(secrets, name))]).toEqual([name, "444"]);
  const [password, store] = await Promise.all(
    ["postgres_password", "store_url"].map((name) => readFile(join(secrets, name), "utf8")),
  );
  expect(store?.trim()).toBe(`postgres://todo:${password?.trim()}@postgres/todo`);
});

test("make-secrets does not replace secrets", async () => {
  const deploy = await copyWithSecrets();
  const before = await readFile(join(deploy, "secrets/store_url"), "utf8");
  const again = run([join(deploy, "make-secrets")]);
  expect([await again.exited, again.stderr()]).toEqual([1, expect.stringContaining("remove it")]);
  expect(await readFile(join(deploy, "secrets/store_url"), "utf8")).toBe(before);
});

test("two replicas accept the credentials of make-secrets", async () => {
  const deploy = await copyWithSecrets();
  const secret = async (name: string) => (await readFile(join(deploy, "secrets", name), "utf8")).trim();
  const variables = {
    TODO_CLIENTS_FILE: join(deploy, "secrets/clients"),
    TODO_ADMIN_USER: "admin",
    TODO_ADMIN_PASSWORD_FILE: join(deploy, "secrets/admin_password"),
  };
  await using one = runTodo(["serve", "--port", "0"], variables);
  await using other = runTodo(["serve", "--port", "0"], variables);
  const bearer = `Bearer ${await secret("client_token")}`;
  const basic = `Basic ${btoa(`admin:${await secret("admin_password")}`)}`;
  for (const url of [await one.url, await other.url]) {
    const whoami = await fetch(`${url}/api/whoami`, { headers: { Authorization: bearer } });
    expect([whoami.status, await whoami.text()]).toEqual([200, "client"]);
    const admin = await fetch(`${url}/admin/`, { headers: { Authorization: basic } });
    expect([admin.status, await admin.text()]).toEqual([200, "Hello, admin!"]);
  }
});

test.skipIf(skipFor(whyMissing("docker-compose"))).each(["compose.yaml", "compose.home.yaml"])(
  "%s is valid, uses the created secrets, and pins exact versions of images",
  async (file) => {
    const deploy = await copyWithSecrets();
    const variables = { DOMAIN: "todo.example.com" };
    const compose = run(["docker-compose", "-f", join(deploy, file), "config"], variables);
    expect([await compose.exited, compose.stderr()]).toEqual([0, ""]);
    const config: Compose = JSON.parse(JSON.stringify(Bun.YAML.parse(compose.stdout())));
    for (const secret of Object.values(config.secrets ?? {})) await access(secret.file);
    for (const [name, { image, environment = {}, secrets = [] }] of Object.entries(config.services)) {
      if (image !== undefined) expect([name, image]).toEqual([name, expect.stringMatching(/:\d+\.\d+/)]);
      const used = Object.values(environment).flatMap(
        (value) => /^\/run\/secrets\/(.*)$/.exec(value)?.[1] ?? [],
      );
      expect([name, used.toSorted()]).toEqual([name, secrets.map(({ source }) => source).toSorted()]);
    }
  },
);

test.skipIf(skipFor(whyMissing("docker-compose")))(
  "compose.home.yaml asks for a missing DOMAIN",
  async () => {
    const compose = run(["docker-compose", "-f", join(DEPLOY, "compose.home.yaml"), "config"]);
    expect([await compose.exited, compose.stderr()]).toEqual([
      1,
      expect.stringContaining("into the file .env"),
    ]);
  },
);

test.skipIf(skipFor(whyMissing("docker-compose")))(
  "the files of at-home.md give Caddy the socket of Tailscale",
  async () => {
    const home = await mkdtemp(join(folder, "at-home-"));
    const commands = readPage("docs/how-to/at-home.md").blocks.find(({ text }) => text.includes("git clone"));
    const files = commands?.text.slice(commands.text.indexOf("cat >")) ?? "";
    await copyFile(join(DEPLOY, "compose.home.yaml"), join(home, "compose.home.yaml"));
    const compose = run(["sh", "-ec", `cd "$0"\n${files}docker-compose config`, home]);
    expect([await compose.exited, compose.stderr()]).toEqual([0, ""]);
    const { services }: Compose = JSON.parse(JSON.stringify(Bun.YAML.parse(compose.stdout())));
    expect(services.caddy?.volumes).toContain("/var/run/tailscale:/var/run/tailscale:rw");
    expect(services.todo?.environment).toMatchObject({ TODO_URL: "https://pi.tail1234.ts.net" });
  },
);

/**
 * Runs the services of compose.home.yaml as processes with the settings that the file gives them. Only addresses, ports and
 * the paths of volumes differ.
 */
async function startHome(stack: AsyncDisposableStack) {
  const home = await mkdtemp(join(folder, "home-"));
  const domain = `localhost:${await freePort()}`;
  const text = (await readFile(join(DEPLOY, "compose.home.yaml"), "utf8"))
    .replaceAll(/\$\{DOMAIN[^}]*\}/g, domain)
    .replaceAll("172.31.254.2", "127.0.0.1");
  const { services }: Compose = JSON.parse(JSON.stringify(Bun.YAML.parse(text)));
  const { folders, todo, caddy } = services;
  const inFolder = (value: string): string => value.replaceAll(/\/(?=data|backups)/g, `${home}/`);

  // Docker creates missing folders of volumes.
  for (const { volumes = [] } of [folders ?? {}, todo ?? {}])
    for (const volume of volumes)
      if (volume.startsWith("./")) await mkdir(join(home, volume.split(":")[0] ?? ""), { recursive: true });
  const [shell = "", option = "", command = ""] = folders?.command ?? [];
  const owner = `${process.getuid?.()}:${process.getgid?.()}`;
  const prepare = run([shell, option, inFolder(command).replace("65532:65532", owner)]);
  expect([await prepare.exited, prepare.stderr()]).toEqual([0, ""]);

  const variables = Object.fromEntries(
    Object.entries(todo?.environment ?? {}).map(([name, value]) => [name, inFolder(value)]),
  );
  const runCommand = (...args: readonly string[]): Command => stack.use(runTodo(args, variables));
  const start = async (): Promise<{ readonly url: string; readonly ca: string }> => {
    const server = stack.use(runTodo(["serve"], { ...variables, TODO_PORT: "0" }));
    const { host } = new URL(await server.url);
    const options = "{\nadmin off\nskip_install_trust\nauto_https disable_redirects\n}\n";
    const site = (caddy?.environment?.CADDYFILE ?? "").replace("todo:3000", host);
    const config = join(home, "Caddyfile");
    await writeFile(config, options + site);
    const own = { XDG_DATA_HOME: home, XDG_CONFIG_HOME: home };
    stack.use(run(["caddy", "run", "--adapter", "caddyfile", "--config", config], own));
    const root = join(home, "caddy/pki/authorities/local/root.crt");
    const isReady = async () => {
      if (!(await Bun.file(root).exists())) return false;
      const ca = await readFile(root, "utf8");
      const answer = fetch(`https://${domain}/livez`, { tls: { ca } });
      return (await answer.catch(() => undefined))?.ok === true;
    };
    await until(isReady, "Caddy answers");
    return { url: `https://${domain}`, ca: await readFile(root, "utf8") };
  };
  return { folder: home, runCommand, start };
}

test.skipIf(skipFor(whyMissing("caddy")))(
  "the services of compose.home.yaml let two people join by links, and back up the list",
  async () => {
    await using stack = new AsyncDisposableStack();
    const home = await startHome(stack);
    const invite = async (name: string): Promise<string> => {
      const created = home.runCommand("keys", "create", name, "--link");
      expect([await created.exited, created.stderr()]).toEqual([0, expect.stringContaining(`as ${name}`)]);
      return created.stdout().trim();
    };
    const first = await invite("ada");
    const { url, ca } = await home.start();
    const send = (method: string, path: string, body?: object, cookie?: string): Promise<Response> =>
      fetch(url + path, {
        method,
        ...(body !== undefined && { body: JSON.stringify(body) }),
        headers: {
          "Content-Type": "application/json",
          Origin: url,
          "Sec-Fetch-Site": "same-origin",
          ...(cookie !== undefined && { Cookie: cookie }),
        },
        tls: { ca },
      });
    const open = async (link: string): Promise<string> => {
      const [address, code] = link.split("/#sign-in=");
      expect(address).toBe(url);
      const response = await send("POST", "/api/session", { code });
      expect(response.status).toBe(201);
      return response.headers.get("set-cookie")?.split(";")[0] ?? "";
    };
    const ada = await open(first);
    expect((await send("GET", "/api/todos")).status).toBe(401);
    expect((await send("POST", "/api/todos", { title: "buy milk" }, ada)).status).toBe(201);
    const ben = await open(await invite("ben"));
    expect((await send("PATCH", "/api/todos/1", { done: true }, ben)).status).toBe(200);
    expect(await (await send("GET", "/api/todos", undefined, ada)).json()).toEqual([
      { id: 1, title: "buy milk", done: true },
    ]);

    const revoked = home.runCommand("keys", "revoke", "ben");
    expect(await revoked.exited).toBe(0);
    await until(async () => (await send("GET", "/api/todos", undefined, ben)).status === 401, "ben is out");
    for (const name of ["data", "backups"])
      expect([name, await modeOf(join(home.folder, name))]).toEqual([name, "700"]);
    await until(
      async () => (await readdir(join(home.folder, "backups"))).length > 0,
      "the first backup exists",
    );
  },
);

test("the build of the Containerfile passes source, version and revision to the labels of the image", async () => {
  const [, image = ""] = (await readFile(join(DEPLOY, "Containerfile"), "utf8")).split(
    "/base-debian12:nonroot",
  );
  for (const name of ["source", "version", "revision"]) {
    const argument = name.toUpperCase();
    expect(image).toMatch(new RegExp(`^ARG ${argument}=[^]*image\\.${name}="\\$${argument}"`, "m"));
  }
});

test(".dockerignore allows exactly the files that the Containerfile copies", async () => {
  const [ignored, containerfile] = await Promise.all([
    linesOf(join(DEPLOY, "../.dockerignore")),
    readFile(join(DEPLOY, "Containerfile"), "utf8"),
  ]);
  expect(ignored.filter((line) => line !== "" && !/^[#!]/.test(line))).toEqual(["*"]);
  const sent = ignored.filter((line) => line.startsWith("!")).map((line) => line.slice(1));
  const copied = [...containerfile.matchAll(/^COPY (?!--from)(.*) \S+$/gm)].flatMap(([, sources = ""]) =>
    sources.split(" "),
  );
  expect(sent.toSorted()).toEqual(copied.toSorted());
});

test.skipIf(skipFor(whyNoBuild))(
  "the first stage of the Containerfile builds the executable that its second stage copies",
  async () => {
    const root = join(folder, "container");
    await mkdir(root);
    const [first = "", second = ""] = (await readFile(join(DEPLOY, "Containerfile"), "utf8"))
      .split(/^FROM .*$/m)
      .slice(1);
    for (const [, instruction, rest = ""] of first.matchAll(/^(COPY|RUN) (.*)$/gm)) {
      const words = rest.split(" ");
      if (instruction === "RUN") {
        const step = run(["sh", "-c", `cd "$0" && ${rest}`, root]);
        expect([await step.exited, step.stderr()]).toEqual([0, expect.any(String)]);
      } else {
        const to = words.pop() ?? "";
        for (const from of words)
          await cp(join(DEPLOY, "..", from), join(root, to.endsWith("/") ? join(to, from) : to), {
            recursive: true,
          });
      }
    }
    const copied = [...second.matchAll(/^COPY --from=build (?:--chown=\S+ )?\/app\/(\S+)/gm)].map(
      ([, from = ""]) => from,
    );
    expect(copied).toEqual(["dist/todo", "data"]);
    for (const from of copied) await access(join(root, from));
    const version = run([join(root, "dist/todo"), "--version"]);
    expect(await version.exited).toBe(0);
  },
  300_000,
);
