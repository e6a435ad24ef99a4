import { describe, expect, test } from "bun:test";
import {
  closeSync,
  constants,
  existsSync,
  globSync,
  openSync,
  readFileSync,
  readSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { open } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { callTodo } from "../../../test/call-todo.ts";
import { run, runTodo } from "../../../test/command.ts";
import { createTodo } from "../../../test/served-todos.ts";
import { skipFor, whyNoFile } from "../../../test/skip.ts";
import { decode } from "../../../test/store-contract.ts";
import { storePathsIn, temporaryFolder } from "../../../test/temporary.ts";
import { openTerminal, whyNoTerminal } from "../../../test/terminal.ts";
import { createKey, createKeyLookup, type StoredKey } from "../../credential/key.ts";
import { openSqliteKeys } from "../../storage/sqlite/keys.ts";
import { exportTodos, importTodos } from "../../storage/sqlite/maintenance.ts";
import { openSqlite } from "../../storage/sqlite/store.ts";
import { encodeTodo } from "../../todo.ts";

/** More than SQLite keeps in memory during a transaction. */
const MANY = 150_000;

const ROOT = fileURLToPath(new URL("../../..", import.meta.url));
const folder = temporaryFolder();
const newPath = storePathsIn(folder);

const on = (path: string): readonly string[] => ["--store", `sqlite:${path}`];
const serve = (path: string) => runTodo(["serve", "--port", "0", ...on(path)]);

const ran = (args: readonly string[], input?: string) => callTodo(args, {}, input);

/** Returns the one line on standard error of a command that was called wrongly. */
async function refusal(args: readonly string[], input?: string): Promise<string> {
  const { code, stdout, stderr } = await ran(args, input);
  expect([code, stdout]).toEqual([2, ""]);
  expect(stderr).toMatch(/^todo: .*\n$/);
  return stderr.slice("todo: ".length, -1);
}

const OPTIONS = { signal: new AbortController().signal, onProgress: () => {} };

/** Returns what `todo export` prints, without its process. */
async function exported(path: string): Promise<string> {
  let text = "";
  const write = async (piece: string): Promise<void> => {
    text += piece;
  };
  await exportTodos(path, write, OPTIONS);
  return text;
}

/** Does what `todo import` does, without its process. */
async function fill(path: string, text: string): Promise<void> {
  await importTodos(path, new Blob([text]).stream(), MANY, OPTIONS);
}

/** Returns the suffixes of all files whose path starts with this one, except the lock and the high-water mark of a store. */
const left = (path: string): string[] =>
  globSync(`${path}*`).flatMap((found) =>
    existsSync(path) && [`${path}-lock`, `${path}-mark`].includes(found) ? [] : [found.slice(path.length)],
  );

const line = (id: number | bigint, title = `to-do ${id}`, done = false): string =>
  `${encodeTodo({ id: BigInt(id), title, done })}\n`;
const header = (lastId: number | bigint, todos: number): string =>
  `{"todoService":1,"lastId":"${lastId}","todos":${todos}}\n`;
const upTo = (last: number): string => Array.from({ length: last }, (_, index) => line(index + 1)).join("");

/** Writes an export of this many to-dos to a file. Returns its path. */
function many(count: number): string {
  const file = newPath();
  writeFileSync(file, header(count, count) + upTo(count));
  return file;
}

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

test("an imported export has the same to-dos, ids and counter", async () => {
  const [path, copy] = [newPath(), newPath()];
  const store = await openSqlite(path);
  for (const title of TITLES) await store.insert(title);
  for (const title of ["deleted", "kept", "deleted last"]) await store.insert(title);
  await store.setDone(2n, true);
  for (const id of [9n, 11n]) await store.delete(id);
  const position = await store.position();
  await store.close();

  const { stdout: text } = await ran(["export", ...on(path)]);
  const expected = [...TITLES, "kept"].map((title, index) =>
    line(index === 8 ? 10 : index + 1, title, index === 1),
  );
  expect(text).toBe(header(11, 9) + expected.join(""));
  expect(await ran(["import", ...on(copy)], text)).toEqual({
    code: 0,
    stdout: "imported 9 to-dos, the last id is 11\n",
    stderr: "",
  });
  expect([await exported(copy), left(copy)]).toEqual([text, [""]]);
  const imported = await openSqlite(copy);
  const { epoch, sequence: n } = await imported.position();
  expect([epoch === position.epoch, n]).toEqual([false, 9]);
  expect((await imported.insert("next")).id).toBe(12n);
  await imported.close();
});

test("an import of an export knows the idempotency keys of the last 24 hours", async () => {
  const [path, copy] = [newPath(), newPath()];
  const store = await openSqlite(path);
  for (const title of ["a", "b"]) await store.insert(title, `key of ${title}`);
  await store.delete(2n);
  await store.close();
  expect((await ran(["import", ...on(copy)], await exported(path))).code).toBe(0);

  const moved = await openSqlite(copy);
  expect((await moved.insert("a", "key of a")).id).toBe(1n);
  expect((await moved.insert("b", "key of b")).id).toBe(2n);
  expect([moved.count, (await moved.insert("c")).id]).toEqual([1, 3n]);
  await moved.close();
  expect(await exported(copy)).toContain('"idempotencyRecords":2}\n');
});

describe("todo export", () => {
  test("exports one consistent state of a store while a server writes it", async () => {
    const path = newPath();
    await using server = serve(path);
    const url = await server.url;
    let stopped = false;
    let written = 0;
    const writers = Array.from({ length: 8 }, async () => {
      while (!stopped) {
        await createTodo(url, "x");
        written++;
      }
    });
    while (written < 200) await Bun.sleep(5);
    const before = written;
    const file = newPath();
    const { code, stdout, stderr } = await ran(["export", file, ...on(path)]);
    stopped = true;
    await Promise.all(writers);
    const count = readFileSync(file, "utf8").split("\n").length - 2;
    expect([code, stdout, stderr]).toEqual([0, `exported ${count} to-dos, the last id is ${count}\n`, ""]);
    expect(count).toBeWithin(before, written + 1);
    expect(readFileSync(file, "utf8")).toBe(
      header(count, count) + Array.from({ length: count }, (_, index) => line(index + 1, "x")).join(""),
    );
    expect(left(file)).toEqual([""]);
  });

  test.skipIf(skipFor(whyNoFile("/dev/full")))(
    "fails when its output cannot be written, silently if the reader has closed the pipe",
    async () => {
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
    },
  );
});

describe("todo import", () => {
  test("keeps the API keys of a store, and starts a new epoch", async () => {
    const path = newPath();
    const store = await openSqlite(path);
    const key: StoredKey = {
      id: "k1",
      name: "alice",
      tokenHash: new Uint8Array(32).fill(7),
      scope: "read",
      createdAt: 1,
    };
    await store.keys.insert(key);
    const before = await store.position();
    await store.close();
    expect((await ran(["import", ...on(path)], upTo(2))).stdout).toBe(
      "imported 2 to-dos, the last id is 2\n",
    );
    const imported = await openSqlite(path);
    expect(await imported.keys.find(key.tokenHash)).toEqual(key);
    expect((await imported.position()).epoch).not.toBe(before.epoch);
    const found = await imported.get(2n);
    expect(found === undefined ? undefined : decode(found).title).toBe("to-do 2");
    await imported.close();
  });

  test("reads a file by name, also one that is not a regular file", async () => {
    const [path, file] = [newPath(), many(3)];
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
    expect(left(path)).toEqual([]);
  });

  test("imports at most --max-todos to-dos", async () => {
    const path = newPath();
    expect(await refusal(["import", "--max-todos", "9", ...on(path)], upTo(10))).toBe(
      "the file has more than 9 to-dos: raise the limit with --max-todos or TODO_MAX_TODOS",
    );
    const limited = await callTodo(["import", ...on(path)], { TODO_MAX_TODOS: "9" }, upTo(10));
    expect([limited.code, limited.stderr]).toEqual([
      2,
      "todo: the file has more than 9 to-dos: raise the limit with --max-todos or TODO_MAX_TODOS\n",
    ]);
    expect(await refusal(["import", "--max-todos", "0", ...on(path)])).toStartWith(
      '--max-todos "0": must be',
    );
    expect(left(path)).toEqual([]);
    expect((await ran(["import", "--max-todos", "10", ...on(path)], upTo(10))).code).toBe(0);
  });

  test(`of ${MANY} to-dos that is killed leaves an empty store`, async () => {
    const path = newPath();
    {
      // Standard input stays open, so the command cannot finish before it is killed.
      const command = Bun.spawn(["bin/todo", "import", ...on(path)], {
        cwd: ROOT,
        stdin: "pipe",
        stdout: "pipe",
      });
      command.stdin.write(header(MANY, MANY) + upTo(MANY));
      const written = Promise.resolve(command.stdin.flush()).catch(() => "EPIPE");
      const log = (): number => statSync(`${path}-wal`, { throwIfNoEntry: false })?.size ?? 0;
      while (log() < 1024 * 1024) await Bun.sleep(1);
      command.kill("SIGKILL");
      await Promise.all([command.exited, written]);
      expect([command.signalCode, await command.stdout.text()]).toEqual(["SIGKILL", ""]);
    }
    {
      const store = await openSqlite(path);
      expect([store.count, (await store.position()).sequence]).toEqual([0, 0]);
      await store.close();
    }
    expect((await ran(["import", ...on(path)], upTo(3))).stdout).toBe(
      "imported 3 to-dos, the last id is 3\n",
    );
    expect(await exported(path)).toBe(header(3, 3) + upTo(3));
  });
});

describe("an interrupted command leaves no files:", () => {
  test.each(["SIGTERM", "SIGINT"] as const)(
    "%s during an import that waits for its input",
    async (signal) => {
      const path = newPath();
      const command = Bun.spawn(["bin/todo", "import", ...on(path)], {
        cwd: ROOT,
        stdin: "pipe",
        stderr: "pipe",
      });
      command.stdin.write(upTo(1000));
      command.stdin.flush();
      while (!existsSync(`${path}-wal`)) await Bun.sleep(5);
      await Bun.sleep(100);
      command.kill(signal);
      expect(await command.exited).toBe(130);
      expect(await new Response(command.stderr).text()).toBe("todo: interrupted\n");
      expect(left(path)).toEqual([]);
    },
  );

  test("SIGTERM during an export that waits for its reader", async () => {
    const [path, fifo] = [newPath(), newPath()];
    await fill(path, upTo(20_000));
    expect(await run(["mkfifo", fifo]).exited).toBe(0);
    const reader = openSync(fifo, constants.O_RDWR | constants.O_NONBLOCK);
    try {
      const line = `exec "$0" --no-env-file src/cli/main.ts export --store "sqlite:${path}" > "${fifo}"`;
      await using command = run(["sh", "-c", line, process.execPath]);
      while (!hasBytes(reader)) await Bun.sleep(5);
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
  /** Creates an API key; returns its token. */
  async function addKey(path: string): Promise<string> {
    const { keys, close } = await openSqliteKeys(path, { createIfMissing: true });
    const minted = await createKey(keys, "ci", undefined, Date.now());
    await close();
    return minted?.token ?? "";
  }

  /** Creates a store with one to-do and one API key; returns its path and the token. */
  async function storeWithKey(): Promise<{ path: string; token: string }> {
    const path = newPath();
    await fill(path, line(1));
    return { path, token: await addKey(path) };
  }

  test("transfers API keys, and their tokens are still valid", async () => {
    const { path, token } = await storeWithKey();
    const copy = newPath();
    const { stdout: text, stderr } = await ran(["export", "--with-keys", ...on(path)]);
    expect(stderr).toBe("exported 1 to-do, the last id is 1, with 1 API key\n");
    expect(text).not.toContain(token);
    expect(text).toStartWith('{"todoService":1,"lastId":"1","todos":1,"keys":1}\n');
    expect(await ran(["import", "--with-keys", ...on(copy)], text)).toEqual({
      code: 0,
      stdout: "imported 1 to-do, the last id is 1, with 1 API key\n",
      stderr: "",
    });
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

  test("is off by default", async () => {
    const { path } = await storeWithKey();
    expect(await exported(path)).toBe(header(1, 1) + line(1));
    const { stdout: text } = await ran(["export", "--with-keys", ...on(path)]);
    const copy = newPath();
    expect(await refusal(["import", ...on(copy)], text)).toBe(
      "line 1: the file has API keys: add --with-keys to import them, or export without them",
    );
    expect(left(copy)).toEqual([]);
  });

  test("rejects a store that has API keys", async () => {
    const { path } = await storeWithKey();
    const { stdout: text } = await ran(["export", "--with-keys", ...on(path)]);
    const other = newPath();
    await addKey(other);
    expect(await refusal(["import", "--with-keys", ...on(other)], text)).toBe(
      "the store already has API keys: import into a store without API keys, or export without --with-keys",
    );
    expect(await exported(other)).toBe(header(0, 0));
  });
});

describe.skipIf(skipFor(whyNoTerminal))("on a terminal", () => {
  test("an import shows its progress after the first second", async () => {
    const [path, fifo] = [join(folder, "progress.db"), join(folder, "progress.fifo")];
    await run(["mkfifo", fifo]).exited;
    await using terminal = openTerminal(`bin/todo import --store "sqlite:${path}" < "${fifo}"`);
    const lines = await open(fifo, "w");
    const started = performance.now();
    let last = 0;
    while (!terminal.shown().includes("importing: ")) {
      await lines.write(`{"id":${++last},"title":"a","done":false}\n`);
      await Bun.sleep(20);
    }
    expect(performance.now() - started).toBeGreaterThan(1000);
    await lines.close();
    expect(await terminal.exited).toBe(0);
    expect(terminal.shown()).toMatch(/\rimporting: \d+ to-dos, \d+\/s/);
    expect(terminal.shown()).toEndWith(`\r\x1b[Kimported ${last} to-dos, the last id is ${last}\n`);
  });

  /** Returns all output of a command in a terminal. */
  async function shown(args: readonly string[]): Promise<string> {
    const line = ["exec bin/todo", ...args.map((arg) => `"${arg}"`)].join(" ");
    await using terminal = run(["script", "-qec", line, "/dev/null"]);
    expect(await terminal.exited).toBe(0);
    return terminal.stdout();
  }

  test("export writes its lines to the terminal", async () => {
    const path = newPath();
    await fill(path, upTo(2));
    const lines = (header(2, 2) + upTo(2)).replaceAll("\n", "\r\n");
    expect(await shown(["export", ...on(path)])).toBe(`${lines}exported 2 to-dos, the last id is 2\r\n`);
  });
});
