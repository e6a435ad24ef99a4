import { describe, expect, test } from "bun:test";
import {
  closeSync,
  constants,
  existsSync,
  openSync,
  readFileSync,
  readSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { Readable } from "node:stream";
import { callTodo, complaintOf, startTodo } from "../../../test/call-todo.ts";
import { ROOT, run } from "../../../test/command.ts";
import { mint } from "../../../test/credentials.ts";
import { skipFor, whyNoFile } from "../../../test/skip.ts";
import { filesAt, storePathsIn, temporaryFolder } from "../../../test/temporary.ts";
import { until } from "../../../test/until.ts";
import { createKeyLookup, type StoredKey } from "../../credential/key.ts";
import { openSqliteKeys } from "../../storage/sqlite/keys.ts";
import { exportTodos, importTodos } from "../../storage/sqlite/maintenance.ts";
import { openSqlite } from "../../storage/sqlite/store.ts";
import { encodeTodo, todoText } from "../../todo.ts";

/** More than SQLite keeps in memory during a transaction. */
const MANY = 150_000;

const folder = temporaryFolder();
const newPath = storePathsIn(folder);

const on = (path: string): readonly string[] => ["--store", `sqlite:${path}`];

const ran = (args: readonly string[], input?: string) => callTodo(args, {}, input);
const refusal = (args: readonly string[], input?: string) => complaintOf(ran(args, input));

const OPTIONS = { signal: new AbortController().signal, onProgress: () => {} };

async function exported(path: string): Promise<string> {
  let text = "";
  const write = async (piece: string): Promise<void> => {
    text += piece;
  };
  await exportTodos(path, write, OPTIONS);
  return text;
}

async function fill(path: string, text: string): Promise<void> {
  await importTodos(path, new Blob([text]).stream(), MANY, OPTIONS);
}

const line = (id: number | bigint, title = `to-do ${id}`, done = false): string =>
  `${encodeTodo({ id: BigInt(id), title, done })}\n`;
const header = (lastId: number | bigint, todos: number): string =>
  `{"todoService":1,"lastId":"${lastId}","todos":${todos}}\n`;
const upTo = (last: number): string => Array.from({ length: last }, (_, index) => line(index + 1)).join("");

const TITLES = [
  "\u0000",
  "'",
  '"\\/\b\n\r\t',
  "a\u2028\u2029",
  "\uFEFF x",
  "😀".repeat(120),
  '","done":true}',
  "a\u0085",
];

test("an imported export has the same to-dos, ids, counter and idempotency keys of the last 24 hours", async () => {
  const [path, copy] = [newPath(), newPath()];
  const store = await openSqlite(path);
  for (const title of TITLES) await store.insert(title);
  for (const title of ["deleted", "kept", "deleted last"]) await store.insert(title, `key of ${title}`);
  await store.setDone(2n, true);
  for (const id of [9n, 11n]) await store.delete(id);
  const position = await store.position();
  await store.close();

  const { stdout: text } = await ran(["export", ...on(path)]);
  const expected = [...TITLES, "kept"].map((title, index) =>
    line(index === 8 ? 10 : index + 1, title, index === 1),
  );
  const records = text.split("\n").slice(10, -1);
  expect(text).toBe(
    `{"todoService":1,"lastId":"11","todos":9,"idempotencyRecords":3}\n${expected.join("")}${records.join("\n")}\n`,
  );
  expect(await ran(["import", ...on(copy)], text)).toEqual({
    code: 0,
    stdout: "imported 9 to-dos, the last id is 11\n",
    stderr: "",
  });
  expect([await exported(copy), filesAt(copy)]).toEqual([text, [""]]);
  const imported = await openSqlite(copy);
  const { epoch, sequence: n } = await imported.position();
  expect([epoch === position.epoch, n]).toEqual([false, 9]);
  expect((await imported.insert("kept", "key of kept")).id).toBe(10n);
  expect((await imported.insert("deleted last", "key of deleted last")).id).toBe(11n);
  expect([imported.count, (await imported.insert("next")).id]).toEqual([9, 12n]);
  await imported.close();
});

describe("todo export", () => {
  test.skipIf(skipFor(whyNoFile("/dev/full")))("fails on write errors, silently on EPIPE", async () => {
    const path = newPath();
    await fill(path, upTo(10_000));
    for (const [output, reported] of [
      ["> /dev/full", /^todo: standard output: ENOSPC.*\n1\n$/],
      ["| true", /^1\n$/],
    ] as const) {
      const line = `{ "$0" --no-env-file src/cli/main.ts export --store "sqlite:${path}"; echo $? >&2; } ${output}`;
      await using shell = run(["sh", "-c", line, process.execPath]);
      await shell.exited;
      expect(shell.stderr()).toMatch(reported);
    }
  });
});

describe("todo import", () => {
  test("keeps the API keys of a store, and starts a new epoch", async () => {
    const path = newPath();
    const store = await openSqlite(path);
    const tokenHash = new Uint8Array(32).fill(7);
    const key: StoredKey = { id: "k1", name: "alice", tokenHash, scope: "read", createdAt: 1 };
    await store.keys.insert(key);
    const before = await store.position();
    await store.close();
    expect((await ran(["import", ...on(path)], upTo(2))).stdout).toBe(
      "imported 2 to-dos, the last id is 2\n",
    );
    const imported = await openSqlite(path);
    expect(await imported.keys.find(tokenHash)).toEqual(key);
    expect((await imported.position()).epoch).not.toBe(before.epoch);
    expect(todoText((await imported.get(2n)) ?? "")).toContain('"to-do 2"');
    await imported.close();
  });

  test("reads a file by name, also one that is not a regular file", async () => {
    const [path, file] = [newPath(), newPath()];
    writeFileSync(file, header(3, 3) + upTo(3));
    const shell = `exec "$0" --no-env-file src/cli/main.ts import /dev/fd/3 --store "sqlite:${path}" 3< "${file}"`;
    await using command = run(["sh", "-c", shell, process.execPath]);
    expect([await command.exited, command.stderr()]).toEqual([0, ""]);
    expect(await exported(path)).toBe(readFileSync(file, "utf8"));
  });

  test("does not leave a new store after a failure", async () => {
    const path = newPath();
    expect(await refusal(["import", ...on(path)], header(9, 2) + line(1))).toBe(
      "the file is incomplete: the header says 2 to-dos, but it has 1",
    );
    expect(await refusal(["import", ...on(path)])).toBe("the file has no to-dos");
    expect(await refusal(["import", newPath(), ...on(path)])).toEndWith(": no such file or folder");
    expect(await refusal(["import", folder, ...on(path)])).toBe(`${folder}: it is a folder, not a file`);
    expect(filesAt(path)).toEqual([]);
  });

  test("imports at most --max-todos to-dos", async () => {
    const path = newPath();
    const tooMany = "the file has more than 9 to-dos: raise the limit with --max-todos or TODO_MAX_TODOS";
    const limited = callTodo(["import", ...on(path)], { TODO_MAX_TODOS: "9" }, upTo(10));
    expect(await complaintOf(limited)).toBe(tooMany);
    expect(await refusal(["import", "--max-todos", "9", ...on(path)], upTo(10))).toBe(tooMany);
    expect(filesAt(path)).toEqual([]);
    expect((await ran(["import", "--max-todos", "10", ...on(path)], upTo(10))).code).toBe(0);
  });

  test(`of ${MANY} to-dos that is killed leaves an empty store`, async () => {
    const path = newPath();
    // Standard input stays open, so the command cannot finish before it is killed.
    const pipes = { cwd: ROOT, stdin: "pipe", stdout: "pipe" } as const;
    const command = Bun.spawn(["bin/todo", "import", ...on(path)], pipes);
    command.stdin.write(header(MANY, MANY) + upTo(MANY));
    const written = Promise.resolve(command.stdin.flush()).catch(() => "EPIPE");
    const log = (): number => statSync(`${path}-wal`, { throwIfNoEntry: false })?.size ?? 0;
    await until(() => log() >= 1024 * 1024, "the import writes to the disk");
    command.kill("SIGKILL");
    await Promise.all([command.exited, written]);
    expect([command.signalCode, await command.stdout.text()]).toEqual(["SIGKILL", ""]);
    const store = await openSqlite(path);
    expect([store.count, (await store.position()).sequence]).toEqual([0, 0]);
    await store.close();
    expect((await ran(["import", ...on(path)], upTo(3))).stdout).toBe(
      "imported 3 to-dos, the last id is 3\n",
    );
    expect(await exported(path)).toBe(header(3, 3) + upTo(3));
  });
});

describe("an interrupted command leaves no files:", () => {
  test("Ctrl-C during an import that waits for its input", async () => {
    const path = newPath();
    const input = new Readable({ read: () => {} });
    input.push(upTo(1000));
    const command = startTodo(["import", ...on(path)], {}, { input });
    await until(() => existsSync(`${path}-wal`) && input.readableLength === 0, "the import waits");
    command.interrupt();
    expect(await command.ended).toEqual({ code: 130, stdout: "", stderr: "todo: interrupted\n" });
    expect(filesAt(path)).toEqual([]);
  });

  test("SIGTERM during an export that waits for its reader", async () => {
    const [path, fifo] = [newPath(), newPath()];
    await fill(path, upTo(20_000));
    expect(await run(["mkfifo", fifo]).exited).toBe(0);
    const reader = openSync(fifo, constants.O_RDWR | constants.O_NONBLOCK);
    try {
      const line = `exec "$0" --no-env-file src/cli/main.ts export --store "sqlite:${path}" > "${fifo}"`;
      await using command = run(["sh", "-c", line, process.execPath]);
      await until(() => hasBytes(reader), "the export writes");
      command.kill("SIGTERM");
      expect([await command.exited, command.stderr()]).toEqual([130, "todo: interrupted\n"]);
    } finally {
      closeSync(reader);
    }
  });
});

/** Returns whether a byte can be read without waiting. */
function hasBytes(descriptor: number): boolean {
  try {
    return readSync(descriptor, new Uint8Array(1)) > 0;
  } catch {
    return false;
  }
}

describe("--with-keys", () => {
  async function storeWithKey(): Promise<{ path: string; token: string }> {
    const path = newPath();
    await fill(path, line(1));
    const { keys, close } = openSqliteKeys(path, { createIfMissing: false });
    const { token } = await mint(keys, "ci");
    await close();
    return { path, token };
  }

  test("transfers API keys, whose tokens are still valid, and is off by default", async () => {
    const { path, token } = await storeWithKey();
    const copy = newPath();
    expect(await exported(path)).toBe(header(1, 1) + line(1));
    const { stdout: text, stderr } = await ran(["export", "--with-keys", ...on(path)]);
    expect(stderr).toBe("exported 1 to-do, the last id is 1, with 1 API key\n");
    expect(text).not.toContain(token);
    expect(text).toStartWith('{"todoService":1,"lastId":"1","todos":1,"keys":1}\n');
    expect(await refusal(["import", ...on(copy)], text)).toBe(
      "line 1: the file has API keys: add --with-keys to import them, or export without them",
    );
    expect(filesAt(copy)).toEqual([]);
    expect((await ran(["import", "--with-keys", ...on(copy)], text)).stdout).toBe(
      "imported 1 to-do, the last id is 1, with 1 API key\n",
    );
    expect((await ran(["export", "--with-keys", ...on(copy)])).stdout).toBe(text);
    for (const options of [[], ["--with-keys"]]) {
      const file = newPath();
      await ran(["export", ...options, file, ...on(copy)]);
      expect(statSync(file).mode & 0o777).toBe(0o600);
    }
    const { keys, close } = openSqliteKeys(copy, { createIfMissing: false });
    expect(await createKeyLookup(keys, Date.now)(token)).toMatchObject({ name: "ci" });
    close();
  });

  test("rejects a store that has API keys", async () => {
    const { path } = await storeWithKey();
    const { stdout: text } = await ran(["export", "--with-keys", ...on(path)]);
    const other = newPath();
    expect((await callTodo(["keys", "create", "other", ...on(other)])).code).toBe(0);
    expect(await refusal(["import", "--with-keys", ...on(other)], text)).toBe(
      "the store already has API keys: import into a store without API keys, or export without --with-keys",
    );
    expect(await exported(other)).toBe(header(0, 0));
  });
});

describe("on a terminal", () => {
  test("an import shows its progress, and then its result", async () => {
    const input = new Readable({ read: () => {} });
    const command = startTodo(["import", ...on(newPath())], {}, { input, columns: 60 });
    let last = 0;
    await until(() => {
      input.push(`{"id":${++last},"title":"a","done":false}\n`);
      return command.stderr().includes("importing: ");
    }, "the progress is shown");
    input.push(null);
    const { code, stdout, stderr } = await command.ended;
    expect([code, stdout]).toEqual([0, `imported ${last} to-dos, the last id is ${last}\n`]);
    expect(stderr).toMatch(/^\rimporting: \d+ to-dos, \d+\/s/);
    expect(stderr).toEndWith("\r\x1b[K");
  });

  test("an export writes its lines to the terminal", async () => {
    const path = newPath();
    await fill(path, upTo(2));
    expect(await startTodo(["export", ...on(path)], {}, { columns: 60 }).ended).toEqual({
      code: 0,
      stdout: header(2, 2) + upTo(2),
      stderr: "exported 2 to-dos, the last id is 2\n",
    });
  });
});
