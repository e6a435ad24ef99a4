import { describe, expect, test } from "bun:test";
import { ended, runTodo } from "./command.ts";
import { whyNoDatabase } from "./postgres.ts";
import { createTodo } from "./served-todos.ts";
import { serve } from "./server.ts";
import { skipFor } from "./skip.ts";
import { follow } from "./sse.ts";
import { exportOf } from "./store.ts";
import { usePostgres } from "./stores.ts";
import { filesIn } from "./temporary.ts";

const newPath = filesIn();

const MANY = 200_000;
const WITH_KEYS = "--with-keys";

describe.skipIf(skipFor(whyNoDatabase))("a transfer", () => {
  const databases = usePostgres();

  const todo = (store: string, ...args: readonly string[]) => ended(runTodo(args, { TODO_STORE: store }));

  async function exported(store: string, ...args: readonly string[]): Promise<string> {
    const file = newPath();
    expect(await todo(store, "export", file, ...args)).toMatchObject({ code: 0, stderr: "" });
    return Bun.file(file).text();
  }

  test(`of ${MANY} to-dos and their API keys from SQLite to PostgreSQL and back changes nothing`, async () => {
    const [first, second] = [`sqlite:${newPath()}`, `sqlite:${newPath()}`];
    const postgres = await databases.newDatabase();
    expect((await todo(first, "import", newPath(exportOf(MANY)))).code).toBe(0);
    for (const name of ["ci", "backup"]) await todo(first, "keys", "create", name, "--expires", "90d");
    await todo(first, "keys", "rotate", "ci");
    const texts: string[] = [];
    for (const [from, to] of [
      [first, postgres],
      [postgres, second],
    ] as const) {
      const file = newPath();
      expect((await todo(from, "export", file, WITH_KEYS)).code).toBe(0);
      expect(await todo(to, "import", file, WITH_KEYS)).toEqual({
        code: 0,
        stdout: `imported ${MANY} to-dos, the last id is ${MANY * 3}, with 3 API keys\n`,
        stderr: "",
      });
      texts.push(await Bun.file(file).text());
    }
    texts.push(await exported(second, WITH_KEYS));
    expect(texts[0]).toStartWith(`{"todoService":1,"lastId":"${MANY * 3}","todos":${MANY},"keys":3}\n`);
    expect(texts[0]?.split("\n")).toHaveLength(MANY + 5);
    expect(texts.map((text) => text === texts[0])).toEqual([true, true, true]);
    expect(await exported(postgres)).toBe(await exported(first));
  });

  test("into PostgreSQL makes a running server show the new list and send resync to its subscribers", async () => {
    const postgres = await databases.newDatabase();
    await using server = serve([], { TODO_STORE: postgres });
    const url = await server.url;
    const etag = async () => (await fetch(`${url}/api/todos`)).headers.get("etag");
    const before = await etag();
    await using events = await follow(url);
    const [start] = await events.take(1);
    expect((await todo(postgres, "import", newPath(exportOf(25_000)))).code).toBe(0);
    await using reconnected = await follow(url, { since: start?.id ?? "" });
    expect((await reconnected.take(1)).map(({ type }) => type)).toEqual(["resync"]);
    const list = await fetch(`${url}/api/todos?limit=2`);
    expect(await list.text()).toContain('[{"id":2,"title":"to-do 1 ');
    expect(await etag()).not.toBe(before);
    expect((await createTodo(url, "next")).id).toBe(75_001);
  });
});
