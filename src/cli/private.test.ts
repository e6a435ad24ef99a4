import { describe, expect, test } from "bun:test";
import { join } from "node:path";
import { type Command, runTodo } from "../../test/command.ts";
import { skipFor } from "../../test/skip.ts";
import { temporaryFolder } from "../../test/temporary.ts";
import { openTerminal, whyNoTerminal } from "../../test/terminal.ts";
import { createKey as mintKey } from "../credential/key.ts";
import { openSqliteKeys } from "../storage/sqlite/keys.ts";

const folder = temporaryFolder();

const serve = (...args: readonly string[]): Command =>
  runTodo(["serve", "--port", "0", ...args], { TODO_PRIVATE: "on" });

async function complaint(...args: readonly string[]): Promise<string> {
  await using command = serve(...args);
  expect(await command.exited).not.toBe(0);
  expect(command.stdout()).not.toContain("listening");
  return command.stderr();
}

async function createKey(store: string): Promise<string> {
  await using command = runTodo(["keys", "create", "phone", "--store", store]);
  expect(await command.exited).toBe(0);
  return /todo_\w{49}/.exec(command.stdout())?.[0] ?? "";
}

const statusOf = async (url: string, authorization: string): Promise<number> =>
  (await fetch(`${url}/api/todos`, { headers: { Authorization: authorization } })).status;

test("a server in private mode does not start without credentials, and names the commands", async () => {
  const stderr = await complaint();
  expect(stderr).toStartWith(
    "todo: private mode has no valid credentials: store the to-dos with --store sqlite:FILE",
  );
  for (const command of [
    "todo keys create NAME --store sqlite:FILE",
    "todo users add NAME --users-file FILE",
  ])
    expect(stderr).toContain(command);

  const store = `sqlite:${join(folder, "empty.db")}`;
  expect(await complaint("--store", store)).toStartWith(
    "todo: private mode has no valid credentials: create an API key with: todo keys create NAME, with the same store.",
  );
  const { keys, close } = openSqliteKeys(store.replace("sqlite:", ""), { createIfMissing: true });
  await mintKey(keys, "phone", 1, Date.now() - 1000);
  close();
  expect(await complaint("--store", store)).toContain("no valid credentials");
});

test("a server in private mode accepts an API key and shows no demo credentials", async () => {
  const store = `sqlite:${join(folder, "todos.db")}`;
  const token = await createKey(store);
  await using server = serve("--store", store);
  const url = await server.url;
  expect((await fetch(`${url}/api/todos`)).status).toBe(401);
  expect((await fetch(`${url}/livez`)).status).toBe(200);
  expect(await statusOf(url, `Bearer ${token}`)).toBe(200);
  expect(await statusOf(url, `Basic ${btoa(`me:${token}`)}`)).toBe(200);
  expect(server.stderr()).not.toContain("demo");
  await using list = runTodo(["list", "--url", url], { TODO_TOKEN: token });
  expect(await list.exited).toBe(0);
});

describe.skipIf(skipFor(whyNoTerminal))("on a terminal, a server in private mode without credentials", () => {
  const open = (store: string, host = "127.0.0.1") =>
    openTerminal(`bin/todo serve --private --host ${host} --port 0`, {
      TODO_STORE: `sqlite:${join(folder, store)}`,
    });

  test("offers to create the first API key, and shows its token once with the address", async () => {
    await using terminal = open("first.db");
    await terminal.shows("[y/N]");
    expect(terminal.shown()).not.toContain("listening");
    terminal.type("y\r");
    await terminal.shows("Sign in with the token.");
    const url = /Open (http:\/\/\S+) in a browser/.exec(terminal.shown())?.[1] ?? "";
    const tokens = terminal.shown().match(/todo_\w{49}/g) ?? [];
    expect(tokens).toHaveLength(1);
    expect(await statusOf(url, `Basic ${btoa(`me:${tokens[0]}`)}`)).toBe(200);
    expect((await fetch(`${url}/api/todos`)).status).toBe(401);
  });

  test("shows an address that works on this machine if it listens on all addresses", async () => {
    await using terminal = open("everywhere.db", "0.0.0.0");
    await terminal.shows("[y/N]");
    terminal.type("y\r");
    await terminal.shows("Sign in with the token.");
    const advice =
      /Open (http:\/\/127\.0\.0\.1:\d+) in a browser on this machine\. Other machines need HTTPS\./;
    const url = advice.exec(terminal.shown())?.[1] ?? "";
    const token = /todo_\w{49}/.exec(terminal.shown())?.[0];
    expect(await statusOf(url, `Basic ${btoa(`me:${token}`)}`)).toBe(200);
  });

  test.each([
    ["n", "n\r"],
    ["Ctrl-C", "\x03"],
  ])("does not start after %s", async (_what, typed) => {
    await using terminal = open("refused.db");
    await terminal.shows("[y/N]");
    terminal.type(typed);
    expect(await terminal.exited).not.toBe(0);
    expect(terminal.shown()).not.toMatch(/listening|todo_\w{49}/);
  });
});
