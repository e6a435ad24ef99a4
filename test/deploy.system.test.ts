import { expect, test } from "bun:test";
import { access, cp, mkdtemp, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { startBalancer, startNginx, startTopology } from "../deploy/topology.ts";
import { makeCertificate } from "./certificate.ts";
import { run, runTodo } from "./command.ts";
import { whyNoServer } from "./postgres.ts";
import { startService } from "./service.ts";
import { skipFor } from "./skip.ts";
import { follow } from "./sse.ts";
import { whyMissing } from "./tools.ts";

const DEPLOY = fileURLToPath(new URL("../deploy", import.meta.url));

const whyNoNginx = whyMissing("nginx");
const whyNoSystemd = whyMissing("systemd-analyze");
const whyNoBuild =
  process.env.TODO_TEST_CONTAINER === undefined
    ? "TODO_TEST_CONTAINER is not set; the container's first stage installs packages"
    : undefined;

const TODO = [process.execPath, "--no-env-file", "src/cli/main.ts"];

const linesOf = async (path: string): Promise<string[]> => (await readFile(path, "utf8")).split("\n");

async function post(url: string, title: string): Promise<number> {
  const headers = { "Content-Type": "application/json" };
  const response = await fetch(`${url}/api/todos`, {
    method: "POST",
    headers,
    body: JSON.stringify({ title }),
  });
  expect(response.status).toBe(201);
  const { id }: { readonly id: number } = JSON.parse(await response.text());
  return id;
}

test.skipIf(skipFor(whyNoServer ?? whyNoNginx))(
  "three replicas behind nginx return the same list",
  async () => {
    await using topology = await startTopology();
    const { balancer = "", replicas } = topology;
    const ways = [balancer, ...replicas];
    const ids: number[] = [];
    for (let round = 0; round < 5; round++) {
      ids.push(...(await Promise.all(ways.map((way) => post(way, `by ${way}`)))));
      const lists = await Promise.all(ways.map(async (way) => (await fetch(`${way}/api/todos`)).text()));
      expect(new Set(lists).size).toBe(1);
    }
    expect(ids.toSorted((a, b) => a - b)).toEqual(ids.map((_, index) => index + 1));
  },
);

/** Checks that each change reaches each subscriber behind a proxy before the next change is made. */
async function expectAtOnce(url: string): Promise<void> {
  const readers = [await follow(url), await follow(url)];
  const [[start] = []] = await Promise.all(readers.map((reader) => reader.take(1)));
  readers.push(await follow(url, { since: start?.id ?? "" }));
  for (let turn = 0; turn < 20; turn++) {
    const id = await post(url, `${turn}`);
    for (const events of await Promise.all(readers.map((reader) => reader.take(1)))) {
      expect(events.map(({ type, data }) => [type, JSON.parse(data).id])).toEqual([["created", id]]);
    }
  }
  await Promise.all(readers.map((reader) => reader.close()));
}

test.skipIf(skipFor(whyNoServer ?? whyNoNginx))(
  "events arrive immediately through the nginx of deploy/",
  async () => {
    await using topology = await startTopology();
    await expectAtOnce(topology.balancer ?? "");
  },
);

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
    const folder = await mkdtemp(join(tmpdir(), "todo-unit-"));
    try {
      // The program need not be installed on the test machine.
      const unit = await readFile(join(DEPLOY, name), "utf8");
      const path = join(folder, name);
      await writeFile(path, unit.replaceAll("/usr/local/bin/todo", "/bin/true"));
      const verified = run(["systemd-analyze", "verify", path]);
      expect([await verified.exited, verified.stderr()]).toEqual([0, ""]);
      const security = run(["systemd-analyze", "security", "--offline=true", "--threshold=20", path]);
      expect(await security.exited).toBe(0);
    } finally {
      await rm(folder, { recursive: true });
    }
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
    const folder = await mkdtemp(join(tmpdir(), "todo-calls-"));
    try {
      const calls = join(folder, "calls");
      const store = `sqlite:${join(folder, "todos.db")}`;
      const users = join(folder, "users");
      await writeFile(
        users,
        `alice:${await Bun.password.hash("secret", { algorithm: "bcrypt", cost: 4 })}\n`,
      );
      await using server = run([
        ...["strace", "-D", "-f", "-c", "-o", calls, ...TODO, "serve", "--port", "0", "--metrics-port", "0"],
        ...["--store", store, "--users-file", users],
      ]);
      const url = await server.url;
      await Promise.all(Array.from({ length: 20 }, (_, index) => post(url, `to-do ${index}`)));
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
    } finally {
      await rm(folder, { recursive: true });
    }
  },
);

/** The parts of compose.yaml, as docker-compose prints them, that these tests check. */
interface Compose {
  readonly services: Readonly<
    Record<
      string,
      {
        readonly image?: string;
        readonly environment?: Readonly<Record<string, string>>;
        readonly secrets?: readonly { readonly source: string }[];
      }
    >
  >;
  readonly secrets: Readonly<Record<string, { readonly file: string }>>;
}

/** Copies deploy/ without secrets to a new folder, runs `make-secrets` there, and passes the path of the copy. */
async function withSecrets(use: (deploy: string) => Promise<void>): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), "todo-secrets-"));
  try {
    const deploy = join(folder, "deploy");
    await cp(DEPLOY, deploy, {
      recursive: true,
      filter: (path) => !path.startsWith(join(DEPLOY, "secrets")),
    });
    const made = run(["sh", "-c", 'umask 0; exec "$0"', join(deploy, "make-secrets")]);
    expect([await made.exited, made.stderr()]).toEqual([0, ""]);
    await use(deploy);
  } finally {
    await rm(folder, { recursive: true });
  }
}

const modeOf = async (path: string): Promise<string> => ((await stat(path)).mode & 0o777).toString(8);

test("make-secrets creates a private folder of files that the containers' users can read", () =>
  withSecrets(async (deploy) => {
    const secrets = join(deploy, "secrets");
    expect(await modeOf(secrets)).toBe("700");
    const names = (await readdir(secrets)).toSorted();
    expect(names).toEqual(["admin_password", "client_token", "clients", "postgres_password", "store_url"]);
    for (const name of names) expect([name, await modeOf(join(secrets, name))]).toEqual([name, "444"]);
    const [password, store] = await Promise.all(
      ["postgres_password", "store_url"].map((name) => readFile(join(secrets, name), "utf8")),
    );
    expect(store?.trim()).toBe(`postgres://todo:${password?.trim()}@postgres/todo`);
  }));

test("make-secrets does not replace secrets", () =>
  withSecrets(async (deploy) => {
    const before = await readFile(join(deploy, "secrets/store_url"), "utf8");
    const again = run([join(deploy, "make-secrets")]);
    expect([await again.exited, again.stderr()]).toEqual([1, expect.stringContaining("remove it")]);
    expect(await readFile(join(deploy, "secrets/store_url"), "utf8")).toBe(before);
  }));

test("two replicas accept the credentials of make-secrets", () =>
  withSecrets(async (deploy) => {
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
  }));

test.skipIf(skipFor(whyMissing("docker-compose")))(
  "compose.yaml is valid, uses the created secrets, and pins exact versions of images",
  () =>
    withSecrets(async (deploy) => {
      const compose = run(["docker-compose", "-f", join(deploy, "compose.yaml"), "config"]);
      expect([await compose.exited, compose.stderr()]).toEqual([0, ""]);
      const config: Compose = JSON.parse(JSON.stringify(Bun.YAML.parse(compose.stdout())));
      for (const { file } of Object.values(config.secrets)) await access(file);
      for (const [name, { image, environment = {}, secrets = [] }] of Object.entries(config.services)) {
        if (image !== undefined) expect([name, image]).toEqual([name, expect.stringMatching(/:\d+\.\d+/)]);
        const used = Object.values(environment).flatMap(
          (value) => /^\/run\/secrets\/(.*)$/.exec(value)?.[1] ?? [],
        );
        expect([name, used.toSorted()]).toEqual([name, secrets.map(({ source }) => source).toSorted()]);
      }
    }),
);

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
    const folder = await mkdtemp(join(tmpdir(), "todo-container-"));
    try {
      const [first = "", second = ""] = (await readFile(join(DEPLOY, "Containerfile"), "utf8"))
        .split(/^FROM .*$/m)
        .slice(1);
      for (const [, instruction, rest = ""] of first.matchAll(/^(COPY|RUN) (.*)$/gm)) {
        const words = rest.split(" ");
        if (instruction === "RUN") {
          const step = run(["sh", "-c", `cd "$0" && ${rest}`, folder]);
          expect([await step.exited, step.stderr()]).toEqual([0, expect.any(String)]);
        } else {
          const to = words.pop() ?? "";
          for (const from of words)
            await cp(join(DEPLOY, "..", from), join(folder, to.endsWith("/") ? join(to, from) : to), {
              recursive: true,
            });
        }
      }
      const copied = [...second.matchAll(/^COPY --from=build (?:--chown=\S+ )?\/app\/(\S+)/gm)].map(
        ([, from = ""]) => from,
      );
      expect(copied).toEqual(["dist/todo", "data"]);
      for (const from of copied) await access(join(folder, from));
      const version = run([join(folder, "dist/todo"), "--version"]);
      expect(await version.exited).toBe(0);
    } finally {
      await rm(folder, { recursive: true });
    }
  },
  300_000,
);
