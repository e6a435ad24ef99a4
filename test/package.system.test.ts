import { beforeAll, describe, expect, test } from "bun:test";
import { realpathSync } from "node:fs";
import { copyFile, mkdir, readdir, realpath, rm, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { exports as entries, version } from "../package.json" with { type: "json" };
import { type Command, ROOT, run, runIn, succeed } from "./command.ts";
import { callTool, connectHttpClient, startStdioClient } from "./mcp-client.ts";
import { whyNoRegistry } from "./npm-install.ts";
import { skipFor } from "./skip.ts";
import { temporaryFolder } from "./temporary.ts";

const ARE_THE_TYPES_WRONG = "@arethetypeswrong/cli@0.18.5";

/** A program that uses the whole package, in syntax that both module resolutions accept. */
const PROGRAM = `
import { createService } from "todo-service";
import { TodoApi, TodoApiError, type Todo } from "todo-service/client";
import { type LookupClient, createClientLookup, parseClients } from "todo-service/credentials";
import { listen } from "todo-service/listen";
import { createMcpEndpoint } from "todo-service/mcp";
import { openMemory } from "todo-service/memory";
import { parseCertificate } from "todo-service/tls";

const lookupClient: LookupClient = createClientLookup(parseClients(""));
const mcp = createMcpEndpoint({ version: "1" });
const service = createService({
  store: openMemory(),
  credentials: { lookupClient },
  network: { onLoopback: true },
  mcp,
});
const listener = listen(service, { host: "127.0.0.1", port: 0 });
const api = new TodoApi({ baseUrl: listener.url });
const todo: Todo = await api.create("buy milk");
const id: string = todo.id;
// @ts-expect-error: the type is not any
export const number: number = todo.id;
const codes: unknown[] = [];
await api.get(BigInt(id) + 1n).catch((error) => error instanceof TodoApiError && codes.push(error.code));
await listener.stop();
console.log(id, codes, parseCertificate.length);
`;

const CLIENT = `
import { TodoApi } from "todo-service/client";
const [baseUrl, title] = process.argv.slice(2);
const { id, title: made, done } = await new TodoApi({ baseUrl }).create(title);
console.log(typeof id, made, done);
`;

const folder = realpathSync(temporaryFolder());
const tarball = join(folder, `todo-service-${version}.tgz`);
beforeAll(async () => {
  await succeed(run(["npm", "pack", "--silent", "--pack-destination", folder]));
});

/** Writes a `bunfig.toml` and a `tsconfig.json` that would make Bun run `planted.ts` of the same folder. */
async function plantConfiguration(where: string): Promise<void> {
  const paths = { commander: ["./planted.ts"], uqr: ["./planted.ts"] };
  await writeFile(join(where, "planted.ts"), 'console.log("planted"); export default {};');
  await writeFile(join(where, "bunfig.toml"), 'preload = ["./planted.ts"]\n');
  await writeFile(join(where, "tsconfig.json"), JSON.stringify({ compilerOptions: { paths } }));
}

test("the package contains only the needed files", async () => {
  const packed = (await succeed(run(["tar", "-tzf", tarball]))).trimEnd().split("\n");
  const files = packed.map((path) => path.replace("package/", ""));
  const sources = [...new Bun.Glob("src/**/*.{sql,ts}").scanSync(ROOT)].filter(
    (path) => !path.endsWith(".test.ts"),
  );
  const documents = [...new Bun.Glob("*.md").scanSync(ROOT)];
  const pages = [...new Bun.Glob("web/built/*").scanSync(ROOT)];
  expect(files.filter((path) => !/^dist\/types\/.*\.d\.ts$/.test(path)).toSorted()).toEqual(
    [
      ...["LICENSE", "openapi.json", "package.json"],
      ...documents,
      ...["bin/bun", "bin/needs-bun.js", "bin/todo", "bin/todo-service"],
      ...["dist/client.js", "dist/testing.js", ...sources, ...pages],
    ].toSorted(),
  );
  for (const entry of Object.values(entries))
    for (const path of Object.values(entry)) expect(files).toContain(path.replace("./", ""));
});

test("publint finds no problem in the package", async () => {
  expect(await succeed(run(["node_modules/.bin/publint", "--strict", tarball]))).toContain("All good!");
});

// The package is ESM only: every supported Node can require() it, and the mode "node10" does not support "exports".
test.skipIf(skipFor(whyNoRegistry))("the package's types are right for every module resolution", async () => {
  await succeed(runIn(folder, ["npx", "--yes", ARE_THE_TYPES_WRONG, "--profile", "esm-only", tarball]));
});

test.skipIf(skipFor(whyNoRegistry))("npx starts the server from the package, without a command", async () => {
  const where = join(folder, "npx");
  await mkdir(where);
  // npx keeps what it installs in npm's cache.
  const cache = ["--cache", join(folder, "npx-cache")];
  const spec = `file:${tarball}`;
  const serve = [spec, "--port", "0", "--store", "sqlite:todos.db"];
  await using npx = runIn(where, ["npx", "--yes", ...cache, ...serve]);
  expect((await fetch(`${await npx.url}/readyz`)).status).toBe(200);
  // To the server itself, because the shell that npx starts may not forward the signal.
  process.kill(pidOf(npx), "SIGTERM");
  expect(await npx.exited).toBe(0);
  expect(await readdir(where)).toContain("todos.db");
  const help = runIn(where, ["npx", "--yes", ...cache, spec, "--version"]);
  expect(await succeed(help)).toBe(`${version}\n`);
});

/** Installs the package into a folder as npm does, with the dependencies that are already here. */
async function unpack(where: string): Promise<void> {
  const modules = join(where, "node_modules");
  await mkdir(join(modules, "todo-service"), { recursive: true });
  await succeed(run(["tar", "-xzf", tarball, "-C", join(modules, "todo-service"), "--strip-components=1"]));
  for (const name of await readdir(join(ROOT, "node_modules")))
    if (!name.startsWith(".")) await symlink(join(ROOT, "node_modules", name), join(modules, name));
  await mkdir(join(modules, ".bin"));
  await symlink("../todo-service/bin/todo", join(modules, ".bin/todo"));
}

const install =
  (...flags: readonly string[]) =>
  async (where: string): Promise<void> => {
    await succeed(runIn(where, ["npm", "install", "--no-audit", "--no-fund", ...flags, tarball]));
  };

describe.each([
  ["unpacked", undefined, unpack],
  ["installed", whyNoRegistry, install()],
  ["installed without install scripts", whyNoRegistry, install("--ignore-scripts")],
] as const)("the package, %s", (name, whyNot, put) => {
  let home: string;
  beforeAll(async () => {
    if (whyNot !== undefined) return;
    home = join(folder, name);
    await mkdir(home);
    await writeFile(join(home, "package.json"), '{ "private": true, "type": "module" }');
    await put(home);
  });

  test.skipIf(skipFor(whyNot))("npx serves, and the client works in Node and in Bun", async () => {
    await writeFile(join(home, "client.js"), CLIENT);
    await using npx = runIn(home, ["npx", "todo", "serve", "--port", "0"]);
    const url = await npx.url;
    try {
      expect(await succeed(runIn(home, ["node", "client.js", url, "buy milk"]))).toBe(
        "string buy milk false\n",
      );
      expect(await succeed(runIn(home, [process.execPath, "client.js", url, "eat"]))).toBe(
        "string eat false\n",
      );
      const listed = await succeed(runIn(home, ["npx", "todo", "list", "--url", url]));
      expect(listed).toMatch(/ {2}buy milk\n.* {2}eat\n/);
      const docs = await fetch(`${url}/docs`, { headers: { Accept: "text/html" } });
      expect([docs.status, await docs.text()]).toEqual([200, expect.stringContaining("/assets/")]);
    } finally {
      // To the server itself, because the shell that npx starts may not forward the signal.
      process.kill(pidOf(npx), "SIGTERM");
    }
    expect(await npx.exited).toBe(0);
    expect(npx.stdout()).toContain('"msg":"stopped"');
  });

  test.skipIf(skipFor(whyNot))("the command serves assistants", async () => {
    await using server = runIn(home, ["node_modules/.bin/todo", "serve", "--port", "0", "--mcp"]);
    const url = await server.url;
    const command = [join(home, "node_modules/.bin/todo"), "mcp"];
    await using local = await startStdioClient("2025-11-25", { TODO_URL: url }, command);
    expect((await callTool(local, "add_todos", { todos: [{ title: "buy milk" }] })).isError).toBe(false);
    await using remote = await connectHttpClient("2026-07-28", `${url}/mcp`);
    expect(JSON.stringify((await callTool(remote, "find_todos")).structured)).toContain("buy milk");
  });

  test.skipIf(skipFor(whyNot))("the server replaces the command's process, and ends on SIGTERM", async () => {
    await using server = runIn(home, ["node_modules/.bin/todo", "serve", "--port", "0"]);
    await server.url;
    const pid = pidOf(server);
    process.kill(pid, "SIGTERM");
    expect(await server.exited).toBe(0);
    expect(pid).toBe(server.pid);
    const wrong = runIn(home, ["node_modules/.bin/todo", "serve", "--prot", "0"]);
    expect([await wrong.exited, wrong.stderr()]).toEqual([2, expect.stringContaining("--port")]);
  });

  test.skipIf(skipFor(whyNot))("the command runs no code from the current folder", async () => {
    const planted = ["planted.ts", "bunfig.toml", "tsconfig.json"];
    try {
      await plantConfiguration(home);
      expect(await succeed(runIn(home, ["node_modules/.bin/todo", "--version"]))).toBe(`${version}\n`);
    } finally {
      for (const name of planted) await rm(join(home, name));
    }
  });

  test.skipIf(skipFor(whyNot)).each([
    ["ESNext", "bundler"],
    ["NodeNext", "nodenext"],
  ])("has types for module %s with resolution %s, and runs", async (module, resolution) => {
    await writeFile(join(home, "program.ts"), PROGRAM);
    const flags = ["--noEmit", "--strict", "--exactOptionalPropertyTypes", "--target", "es2022"];
    const how = ["--lib", "es2022,dom", "--module", module, "--moduleResolution", resolution];
    const tsc = runIn(home, [join(ROOT, "node_modules/.bin/tsc"), ...flags, ...how, "program.ts"]);
    expect([await tsc.exited, tsc.stdout()]).toEqual([0, ""]);
    expect(await succeed(runIn(home, [process.execPath, "program.ts"]))).toBe('1 [ "todo_not_found" ] 2\n');
  });
});

describe("the command", () => {
  /** Runs the command in a folder with these files. Each of them is a program that prints its own path and arguments. */
  async function todoAmong(where: string, command: string, programs: readonly string[]): Promise<Command> {
    const place = join(folder, where);
    for (const program of [...programs, command])
      await mkdir(join(place, program, ".."), { recursive: true });
    for (const program of programs)
      await writeFile(join(place, program), 'echo "$0"; printf "<%s>" "$@"', { mode: 0o755 });
    await copyFile(join(ROOT, "bin/todo"), join(place, command));
    await copyFile(join(ROOT, "bin/bun"), join(place, command, "../bun"));
    await mkdir(join(place, "bin"));
    await symlink(join("..", command), join(place, "bin/todo"));
    return runIn(place, ["bin/todo", "add", "buy  milk"]);
  }
  const COMMAND = "node_modules/todo-service/bin/todo";
  const MODULES = "node_modules";
  const NESTED = "node_modules/todo-service/node_modules";
  const PLATFORM_BUN = "@oven/bun-any-cpu/bin/bun";

  test.each([
    ["the Bun for this platform rather than the placeholder", COMMAND, MODULES, PLATFORM_BUN, true],
    ["the Bun that the install script put in place", COMMAND, MODULES, "bun/bin/bun.exe", true],
    ["its own Bun rather than the Bun of another package", COMMAND, NESTED, "bun/bin/bun.exe", false],
    ["the Bun of a checkout", "checkout/bin/todo", "checkout/node_modules", "bun/bin/bun.exe", true],
  ])("uses %s", async (name, command, modules, program, alone) => {
    const others = alone ? [] : ["node_modules/bun/bin/bun.exe"];
    const programs = [...new Set([join(modules, "bun/bin/bun.exe"), join(modules, program), ...others])];
    const todo = await todoAmong(name, command, programs);
    const [path = "", args] = (await succeed(todo)).split("\n");
    expect(await realpath(path)).toBe(join(folder, name, modules, program));
    const main = join(folder, name, command, "../../src/cli/main.ts");
    const flags = "<--no-env-file><--config=/dev/null><--tsconfig-override=/dev/null>";
    expect(args).toBe(`${flags}<${main}><add><buy  milk>`);
  });

  test.each([
    ["reports that Bun is missing", [], "cannot find the npm package bun for"],
    [
      "reports that Bun does not support this machine",
      ["node_modules/bun/package.json-of"],
      "has no program for this machine",
    ],
  ])("%s", async (name, files, message) => {
    const todo = await todoAmong(name, COMMAND, files);
    expect([await todo.exited, todo.stderr()]).toEqual([
      1,
      expect.stringMatching(new RegExp(`^todo: .*${message}`)),
    ]);
  });
});

const pidOf = (server: Command): number => Number(/"pid":(\d+)/.exec(server.stdout())?.[1]);
