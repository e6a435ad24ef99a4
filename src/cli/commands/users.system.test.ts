import { expect, test } from "bun:test";
import { chownSync, mkdtempSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { run, runTodo } from "../../../test/command.ts";
import { skipFor } from "../../../test/skip.ts";
import { temporaryFolder } from "../../../test/temporary.ts";
import { whyMissing } from "../../../test/tools.ts";
import { parseUsers } from "../../credential/user.ts";

const folder = temporaryFolder();

async function users(path: string, args: readonly string[], input?: string) {
  await using command = runTodo(["users", ...args], { TODO_USERS_FILE: path }, input);
  return { code: await command.exited, stdout: command.stdout() };
}

const add = (path: string, name: string, password: string) => users(path, ["add", name], password);

async function passes(path: string, name: string, password: string): Promise<boolean> {
  return Bun.password.verify(password, parseUsers(readFileSync(path, "utf8")).get(name) ?? "");
}

const whyNotRoot = process.getuid?.() === 0 ? undefined : "only root may give a file another owner";
test.skipIf(skipFor(whyNotRoot))("todo users keeps the owner of the file", async () => {
  const path = join(folder, "owned");
  writeFileSync(path, "# empty\n");
  chownSync(path, 1234, 5678);
  await add(path, "alice", "password one");
  const { uid, gid } = statSync(path);
  expect([uid, gid]).toEqual([1234, 5678]);
});

const whyNotLinux =
  process.platform === "linux" ? whyNotRoot : "only on Linux, a store gets the owner of its folder";
test.skipIf(skipFor(whyNotLinux))("a store created by root belongs to the owner of its folder", async () => {
  const todos = join(folder, "todos.ndjson");
  const backup = join(folder, "backup.db");
  writeFileSync(todos, '{"id":1,"title":"a","done":false}\n');
  const newStore = (): { files: string; store: string } => {
    const files = mkdtempSync(join(folder, "owned-"));
    chownSync(files, 1234, 5678);
    return { files, store: `sqlite:${join(files, "todos.db")}` };
  };
  const source = newStore();
  const cases = [
    [source, ["import", todos]],
    [newStore(), ["keys", "create", "ci"]],
    [newStore(), ["restore", backup]],
  ] as const;
  for (const [{ files, store }, args] of cases) {
    expect(await runTodo([...args, "--store", store]).exited).toBe(0);
    expect(readdirSync(files)).toContain("todos.db");
    for (const name of readdirSync(files)) {
      const { uid, gid } = statSync(join(files, name));
      expect([name, uid, gid]).toEqual([name, 1234, 5678]);
    }
    if (store === source.store) expect(await runTodo(["backup", backup, "--store", store]).exited).toBe(0);
  }
});

test.skipIf(skipFor(whyMissing("htpasswd")))("todo users and htpasswd verify shared passwords", async () => {
  const path = join(folder, "shared");
  const passwords = ["password one", `a"b'c\\d $HOME`, "Zoë 😀 2 3", "é".repeat(36)];
  const WRONG = 3;
  const htpasswd = (args: readonly string[]): Promise<number | undefined> =>
    run(["htpasswd", ...args]).exited;
  for (const [index, password] of passwords.entries()) await add(path, `ours${index}`, `${password}\n`);
  for (const [index, password] of passwords.entries()) {
    expect(await htpasswd(["-bBC", "4", path, `theirs${index}`, password])).toBe(0);
  }
  expect((await add(path, "y".repeat(193), "last password")).code).toBe(0);
  for (const [index, password] of passwords.entries()) {
    const verified = [password, `${password.slice(0, -1)}!`].map((tried) =>
      htpasswd(["-vb", path, `ours${index}`, tried]),
    );
    expect(await Promise.all(verified)).toEqual([0, WRONG]);
    expect(await passes(path, `theirs${index}`, password)).toBe(true);
  }
  expect(await htpasswd(["-vb", path, "y".repeat(193), "last password"])).toBe(0);
  expect((await users(path, ["remove", "theirs0"])).code).toBe(0);
  expect((await add(path, "theirs1", "new password")).stdout).toBe("changed the password of theirs1\n");
  expect(await htpasswd(["-vb", path, "theirs1", "new password"])).toBe(0);
  expect(await htpasswd(["-D", path, "ours0"])).toBe(0);
  expect((await users(path, ["list"])).stdout).not.toContain("ours0");
});
