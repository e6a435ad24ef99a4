import { expect, test } from "bun:test";
import { cp, mkdtemp, readdir, readFile, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { startBalancer, startTopology } from "../deploy/topology.ts";
import { makeCertificate } from "./certificate.ts";
import { run } from "./command.ts";
import { whyNoDatabase } from "./postgres.ts";
import { createTodo } from "./served-todos.ts";
import { serve } from "./server.ts";
import { skipFor } from "./skip.ts";
import { follow } from "./sse.ts";
import { temporaryFolder } from "./temporary.ts";
import { whyMissing } from "./tools.ts";

const folder = temporaryFolder();

const DEPLOY = fileURLToPath(new URL("../deploy", import.meta.url));

const whyNoNginx = whyMissing("nginx");
const whyNoSystemd = whyMissing("systemd-analyze");

test.skipIf(skipFor(whyNoDatabase ?? whyNoNginx))(
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

test.skipIf(skipFor(whyNoNginx))("/admin/ behind nginx ignores forwarding headers of clients", async () => {
  await using stack = new AsyncDisposableStack();
  const certificate = makeCertificate();
  const pair = { TODO_ADMIN_USER: "admin", TODO_ADMIN_PASSWORD: "s3cret" };
  const start = async (variables: Readonly<Record<string, string>>) => {
    const server = stack.use(serve([], { ...pair, ...variables }));
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
