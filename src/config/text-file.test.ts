import { describe, expect, test } from "bun:test";
import { chmodSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { callTodo } from "../../test/call-todo.ts";
import { filesIn, temporaryFolder } from "../../test/temporary.ts";
import { NOOP_LOG } from "../http/observability/log.ts";
import { openCredentials } from "../serve/credentials.ts";
import { seedStore } from "../serve/seed.ts";
import { openMemory } from "../storage/memory/store.ts";
import { readConfig } from "./config.ts";
import { readLogin } from "./stored-login.ts";

const folder = temporaryFolder();
const write = filesIn(folder);

const FILES: Readonly<Record<string, [text: string, read: (path: string) => unknown, found: unknown]>> = {
  "a password": [
    "pässword\n",
    (path) => readConfig({ adminUser: "a", adminPasswordFile: path }, {}).credentials.adminPassword,
    "pässword",
  ],
  "the URL of a store": [
    "sqlite:café.db\n",
    (path) => readConfig({ storeFile: path }, {}).store.url.value,
    "sqlite:café.db",
  ],
  users: [
    "zoë:$2y$05$7IL2tOezyab7maxiTsBLY..4UosIOyqFIABzRuFkcvoNXI.tP//cK\n",
    async (path) => {
      const { code, stdout, stderr } = await callTodo(["users", "list", "--users-file", path]);
      if (code !== 0) throw new Error(stderr);
      return stdout;
    },
    "zoë\n",
  ],
  clients: [
    `zoë:${"0".repeat(64)}\n# all\n`,
    async (path) => {
      const config = readConfig({ clientsFile: path }, {});
      const { accepted } = await openCredentials(config, openMemory().keys, NOOP_LOG, () => {});
      return accepted.storedEntry?.("client", "zoë") !== undefined;
    },
    true,
  ],
  "to-dos as lines": ["\n- [x] café\n", seed, [{ id: 1, title: "café", done: true }]],
  "an export": [
    '\n{"todoService":1,"lastId":"1","todos":1}\n{"id":1,"title":"café","done":true}\n',
    seed,
    [{ id: 1, title: "café", done: true }],
  ],
};

async function seed(path: string): Promise<unknown> {
  const store = openMemory();
  await seedStore(store, readConfig({ seed: path }, {}).store, async () => store);
  return JSON.parse(await new Response((await store.list({})).json as Blob).text());
}

const utf16 = (text: string): Buffer => Buffer.from(text, "utf16le");

describe.each(Object.entries(FILES))("a file with %s", (_what, [text, read, found]) => {
  test.each([
    ["a byte order mark", `\uFEFF${text}`],
    ["CRLF", text.replaceAll("\n", "\r\n")],
    ["a byte order mark and CRLF", `\uFEFF${text.replaceAll("\n", "\r\n")}`],
  ])("may have %s", async (_what, bytes) => {
    expect(await read(write(bytes))).toEqual(found);
  });

  test.each([
    ["Latin-1", Buffer.from(text, "latin1")],
    ["UTF-16 with a byte order mark", utf16(`\uFEFF${text}`)],
    ["big-endian UTF-16", utf16(`\uFEFF${text}`).swap16()],
    ["UTF-16 without a byte order mark", utf16(text.replaceAll(/[äéë]/g, "a"))],
  ])("is rejected in %s with its name and the remedy", async (_what, bytes) => {
    const path = write(bytes);
    const message = await (async () => read(path))().catch(String);
    expect(message).toContain(path);
    expect(message).toContain("convert it to UTF-8");
  });
});

test("the file of todo login may have a byte order mark and CRLF", () => {
  mkdirSync(join(folder, "todo-service"));
  const path = join(folder, "todo-service/login");
  writeFileSync(path, "\uFEFFhttp://127.0.0.1:1\r\nt0ken\r\n");
  chmodSync(path, 0o600);
  expect(readLogin({ XDG_CONFIG_HOME: folder })).toEqual({ url: "http://127.0.0.1:1", token: "t0ken" });
});
