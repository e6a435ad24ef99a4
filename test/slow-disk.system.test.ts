import { expect, test } from "bun:test";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { openSqlite } from "../src/storage/sqlite/store.ts";
import { skipFor } from "./skip.ts";
import { serveTraced, whyUntraceable } from "./strace.ts";

const SYNCS = "fsync,fdatasync";
/** Longer than the reads take on a busy machine. */
const FSYNC_SECONDS = 12;
/** The third fsync of the log by a thread is slow. The first commit, which creates the log, makes two. */
const SLOWLY = `inject=${SYNCS}:delay_exit=${FSYNC_SECONDS * 1_000_000}:when=3`;
/** After this time, a write is waiting for the disk. */
const UNDER_WAY_MS = 200;

test.skipIf(skipFor(whyUntraceable))(
  "a write that waits for the disk does not delay other requests",
  async () => {
    const folder = await mkdtemp(join(tmpdir(), "todo-slow-"));
    const path = join(folder, "todos.db");
    try {
      // The start would also sync the log of a new store.
      await (await openSqlite(path)).close();
      const options = ["-o", "/dev/null", "-P", `${path}-wal`, "-e", `trace=${SYNCS}`, "-e", SLOWLY];
      await using server = serveTraced(path, options);
      const url = await server.url;
      const post = async (title: string): Promise<number> => {
        const headers = { "Content-Type": "application/json" };
        const body = JSON.stringify({ title });
        return (await fetch(`${url}/api/todos`, { method: "POST", headers, body })).status;
      };
      expect(await post("quick")).toBe(201);

      const answers: [what: string, status: number][] = [];
      const waiting = ["the disk", "the write before it"].map(async (what) => {
        answers.push([what, await post(what)]);
      });
      await Bun.sleep(UNDER_WAY_MS);
      const reads = ["/api/todos/1", "/api/todos", "/api/todos?limit=1", "/api/whoami", "/readyz"];
      for (const read of reads) {
        // A token, because the server looks it up in the file.
        const response = await fetch(url + read, { headers: { Authorization: "Bearer unknown" } });
        await response.arrayBuffer();
        answers.push([read, response.status]);
      }
      await Promise.all(waiting);
      expect(answers.map(([what]) => what).slice(0, reads.length)).toEqual(reads);
      expect(answers.map(([, status]) => status)).toEqual([200, 200, 200, 401, 200, 201, 201]);
    } finally {
      await rm(folder, { recursive: true });
    }
  },
);
