import { beforeAll, beforeEach, describe, expect, test } from "bun:test";
import { mkdtemp, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { version } from "../package.json" with { type: "json" };
import { type Command, run, runIn, succeed } from "./command.ts";
import { expectToConform } from "./conformance.ts";
import { callTool, connectHttpClient, PROTOCOL_VERSIONS, startStdioClient } from "./mcp-client.ts";
import { stop } from "./server.ts";
import { temporaryFolder } from "./temporary.ts";

const parent = temporaryFolder();
const executable = join(parent, "todo");
beforeAll(async () => {
  const built = run(["npm", "run", "build:executable", "--", `--outfile=${executable}`]);
  expect([await built.exited, built.stderr()]).toEqual([0, expect.not.stringContaining("error")]);
});

/** The working directory of the executable, new for each test: some tests leave files that others must not find. */
let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(join(parent, "test-"));
});

/** Runs the executable without PATH and outside the project's folder. */
const todo = (
  args: readonly string[],
  variables: Readonly<Record<string, string>> = {},
  input?: string,
): Command => runIn(folder, ["env", "-i", ...settings(variables), executable, ...args], {}, input);

const settings = (variables: Readonly<Record<string, string>>): string[] =>
  Object.entries(variables).map(([name, value]) => `${name}=${value}`);

describe("the executable", () => {
  test.each(["memory:", "sqlite:"])("conforms on %s", async (engine) => {
    await expectToConform(todo, engine === "sqlite:" ? `sqlite:${join(folder, "conforming.db")}` : engine);
  });

  test("has every command", async () => {
    const store = ["--store", `sqlite:${join(folder, "commands.db")}`];
    const users = join(folder, "users");
    expect(await succeed(todo(["--version"]))).toBe(`${version}\n`);
    expect(
      await succeed(todo(["import", ...store], {}, '{"id":7,"title":"buy milk","done":false}\n')),
    ).toContain("1");
    expect(await succeed(todo(["keys", "create", "ci", ...store]))).toMatch(/^todo_\w{49}\n$/);
    expect(await succeed(todo(["keys", "list", ...store]))).toContain("ci");
    expect(await succeed(todo(["export", ...store]))).toContain('"title":"buy milk"');
    expect(await succeed(todo(["backup", join(folder, "copy.db"), ...store]))).toContain(
      "backed up 1 to-do,",
    );
    expect(
      await succeed(todo(["users", "add", "alice", "--users-file", users], {}, "a long password\n")),
    ).toBeDefined();
    expect(await succeed(todo(["users", "list", "--users-file", users]))).toContain("alice");
  });

  test("serves its pages with all their files", async () => {
    await using server = todo(["serve", "--port", "0"]);
    const url = await server.url;
    const parts = new Set<string>();
    for (const page of ["/", "/docs"]) {
      const html = await (await fetch(url + page, { headers: { Accept: "text/html" } })).text();
      for (const [, path = ""] of html.matchAll(/(?:href|src)="(\/assets\/[^"]+)"/g)) parts.add(path);
    }
    expect(parts.size).toBe(7);
    for (const path of parts) {
      const part = await fetch(url + path);
      expect([path, part.status, (await part.text()).length > 100]).toEqual([path, 200, true]);
    }
  });

  test("serves assistants over stdio and over HTTP", async () => {
    await using server = todo(["serve", "--port", "0", "--mcp"]);
    const url = await server.url;
    for (const version of PROTOCOL_VERSIONS) {
      await using local = await startStdioClient(version, { TODO_URL: url }, [executable, "mcp"]);
      expect((await callTool(local, "add_todos", { todos: [{ title: version }] })).isError).toBe(false);
      await using remote = await connectHttpClient(version, `${url}/mcp`);
      expect(JSON.stringify((await callTool(remote, "find_todos")).structured)).toContain(version);
      expect([await local.server.end(), local.server.stderr()]).toEqual([0, ""]);
    }
    await stop(server);
  });

  test("loads an auth module, and logs the line where it throws", async () => {
    const module = join(folder, "auth.ts");
    await writeFile(
      module,
      `export async function lookupClient(token: string): Promise<{ name: string }> {
         if (token === "boom") throw new Error("boom");
         return { name: token };
       }`,
    );
    await using server = todo(["serve", "--port", "0", "--auth-module", module, "--metrics-port", "0"]);
    const url = await server.url;
    const whoami = (token: string) =>
      fetch(`${url}/api/whoami`, { headers: { Authorization: `Bearer ${token}` } });
    expect(await (await whoami("alice")).text()).toBe("alice");
    expect((await whoami("boom")).status).toBe(503);
    await stop(server);
    expect(server.stdout()).toContain("auth.ts:2");
    expect(server.stdout()).toContain("src/serve/credentials.ts:");
  });

  test("does not read configuration files from the current folder", async () => {
    await writeFile(join(folder, ".env"), "TODO_REALM=x\nTODO_NONSENSE=1\n");
    await writeFile(join(folder, "bunfig.toml"), 'preload = ["./nowhere.ts"]\n');
    const paths = { commander: ["./nowhere.ts"], uqr: ["./nowhere.ts"], "node:fs": ["./nowhere.ts"] };
    await writeFile(join(folder, "tsconfig.json"), JSON.stringify({ compilerOptions: { paths } }));
    expect(await succeed(todo(["--version"]))).toBe(`${version}\n`);
  });
});
