import { Database } from "bun:sqlite";
import { describe, expect, test } from "bun:test";
import {
  copyFileSync,
  existsSync,
  linkSync,
  readFileSync,
  renameSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { errorOf } from "../../test/rejection.ts";
import { storePathsIn, temporaryFolder } from "../../test/temporary.ts";
import { openKeys, openStore, openStoreAdmin } from "./open.ts";
import { quoteArgument } from "./sqlite/rescue.ts";

const folder = temporaryFolder();
const newPath = storePathsIn(folder);

describe("openStore of a file", () => {
  test("rejects another name of a file in use", async () => {
    const path = newPath();
    const store = await openStore(`sqlite:${path}`, {});
    const link = newPath();
    symlinkSync(path, link);
    expect((await errorOf(openStore(`sqlite:${link}`, {}))).message).toContain("is in use by another server");
    await store.close();
    const again = await openStore(`sqlite:${link}`, {});
    expect((await errorOf(openStore(`sqlite:${path}`, {}))).message).toContain("is in use by another server");
    await again.close();
    expect(existsSync(`${link}-lock`)).toBe(false);
  });

  test("rejects a link to a store that was moved without its WAL or its mark, until both are moved", async () => {
    const [path, real] = [newPath(), newPath()];
    const store = await openStore(`sqlite:${path}`, {});
    for (const title of ["a", "b"]) await store.insert(title);
    const killed = newPath();
    for (const suffix of ["", "-wal", "-mark"]) copyFileSync(path + suffix, killed + suffix);
    await store.close();
    renameSync(killed, real);
    symlinkSync(real, killed);
    const refusal = (await errorOf(openStore(`sqlite:${killed}`, {}))).message;
    const moved = ["-wal", "-mark"].map(
      (suffix) => `mv ${quoteArgument(killed + suffix)} ${quoteArgument(real + suffix)}`,
    );
    expect(refusal).toBe(
      `${killed} is a symbolic link to ${real}, but has ${killed}-wal and ${killed}-mark beside it: if the store was moved without these files, run ${moved.join(" && ")}; otherwise, move these files away`,
    );
    const [, moves = ""] = /run (.*); otherwise/.exec(refusal) ?? [];
    expect(Bun.spawnSync(["sh", "-c", moves]).exitCode).toBe(0);
    const again = await openStore(`sqlite:${killed}`, { onWarning: expect.unreachable });
    expect(again.count).toBe(2);
    await again.close();
  });

  test("rejects a file with a hard link", async () => {
    const path = newPath();
    await (await openStore(`sqlite:${path}`, {})).close();
    linkSync(path, newPath());
    expect((await errorOf(openStore(`sqlite:${path}`, {}))).message).toContain("a hard link");
  });

  test.each<[what: string, url: () => string, message: string]>([
    ["an empty name", () => "sqlite:", "names no file"],
    ["a host, as in other URLs", () => "sqlite://todos.db", "write sqlite:todos.db, or sqlite:/todos.db for"],
    ["a space after the name", () => `sqlite:${newPath()} `, "starts or ends with a blank"],
    ["a folder", () => `sqlite:${folder}`, "is not a file"],
    [
      "a symbolic link to a missing file",
      () => {
        const link = newPath();
        symlinkSync(newPath(), link);
        return `sqlite:${link}`;
      },
      "is a symbolic link to a missing file",
    ],
    [
      "a log without its database",
      () => {
        const path = newPath();
        writeFileSync(`${path}-wal`, "acknowledged");
        return `sqlite:${path}`;
      },
      "it is missing or empty, but",
    ],
    [
      "a lock file with other contents",
      () => {
        const path = newPath();
        writeFileSync(`${path}-lock`, "not a database, ".repeat(100));
        return `sqlite:${path}`;
      },
      "has the contents of another program: remove",
    ],
  ])("rejects %s", async (_what, url, message) => {
    expect((await errorOf(openStore(url(), {}))).message).toContain(message);
  });

  test.each([
    ["todos.db", "the store has no kind: use memory:, sqlite:PATH or postgres://…"],
    ["/srv/hunter2:a.db", "the store has no kind: use"],
    ["host=h password=hunter2", "the store has no kind: use"],
    ["host=h password=hunter2:a", "the store has no kind: use"],
    ["redis://u:hunter2@h", 'there is no store of the kind "redis:": use'],
    ["memory", "did you mean memory:?"],
    ["sqlite", "did you mean sqlite:PATH?"],
    ["postgres", "did you mean postgres://…?"],
    ["POSTGRES://u:hunter2@h/x", "did you mean postgres://…?"],
    ["postgresql+psycopg://u:hunter2@h/x", "did you mean postgres://…?"],
  ])("rejects %s without repeating a password", async (url, message) => {
    const said = (await errorOf(openStore(url, {}))).message;
    expect(said).toContain(message);
    expect(said).not.toContain("hunter2");
  });

  test("rejects another program's database without changing it", async () => {
    const path = newPath();
    const database = new Database(path);
    database.run("CREATE TABLE notes (text)");
    database.close();
    const before = readFileSync(path);
    const url = `sqlite:${path}`;
    expect((await errorOf(openStore(url, {}))).message).toContain("the database of another program");
    expect((await errorOf(openKeys(url, { createIfMissing: true }))).message).toContain(
      "the database of another program",
    );
    const { signal } = new AbortController();
    expect((await errorOf(openStoreAdmin(url).backup(newPath(), { signal }))).message).toContain(
      "the database of another program",
    );
    expect(readFileSync(path)).toEqual(before);
    expect(existsSync(`${path}-wal`)).toBe(false);
  });
});
