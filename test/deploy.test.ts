import { expect, test } from "bun:test";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { startTopology } from "../deploy/topology.ts";
import { SETTINGS } from "../src/cli/config.ts";
import { run } from "./command.ts";
import { whyNoServer } from "./postgres.ts";

const DEPLOY = fileURLToPath(new URL("../deploy", import.meta.url));

const has = (program: string): boolean => {
  if (Bun.which(program) !== null) return true;
  process.stderr.write(`skipped: what needs ${program}, which is not installed\n`);
  return false;
};
const HAS_NGINX = has("nginx");
const HAS_CADDY = has("caddy");
const HAS_SYSTEMD = has("systemd-analyze");

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

test.skipIf(whyNoServer !== undefined || !HAS_NGINX)(
  "three replicas behind nginx are one service",
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
  30_000,
);

test.skipIf(!HAS_CADDY)("the Caddyfile is one", async () => {
  const caddy = run(["caddy", "validate", "--adapter", "caddyfile", "--config", join(DEPLOY, "Caddyfile")]);
  expect([await caddy.exited, caddy.stdout() + caddy.stderr()]).toEqual([
    0,
    expect.stringContaining("Valid configuration"),
  ]);
});

test.skipIf(!HAS_SYSTEMD).each(["todo-service.service", "todo-service@.service"])(
  "the unit %s is one, and hardened",
  async (name) => {
    const folder = await mkdtemp(join(tmpdir(), "todo-unit-"));
    try {
      // What it starts need not be installed here.
      const unit = await readFile(join(DEPLOY, name), "utf8");
      const path = join(folder, name);
      await writeFile(path, unit.replaceAll("/opt/todo-service/node_modules/.bin/bun", "/bin/true"));
      const verified = run(["systemd-analyze", "verify", path]);
      expect([await verified.exited, verified.stderr()]).toEqual([0, ""]);
      const security = run(["systemd-analyze", "security", "--offline=true", "--threshold=20", path]);
      expect(await security.exited).toBe(0);
    } finally {
      await rm(folder, { recursive: true });
    }
  },
);

test("every variable that deploy/ sets is a setting", async () => {
  const known: readonly string[] = Object.values(SETTINGS).flatMap(({ variables }) => [...variables]);
  for (const name of ["Containerfile", "compose.yaml", "todo-service.service", "todo-service@.service"]) {
    const text = await readFile(join(DEPLOY, name), "utf8");
    for (const [variable] of text.matchAll(/\bTODO_[A-Z_]+/g)) expect(known).toContain(variable);
  }
});
