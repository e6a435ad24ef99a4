import { afterAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { copyWithoutFsync } from "./program.ts";
import { type Call, isCreated, syncs, type Trace, tracePosts, whyUntraceable } from "./strace.ts";

if (whyUntraceable !== undefined)
  process.stderr.write(`skipped: the order of fsync and answer, for it takes strace: ${whyUntraceable}`);

setDefaultTimeout(30_000);
const folder = await mkdtemp(join(tmpdir(), "todo-fsync-"));
afterAll(() => rm(folder, { recursive: true }));
const path = join(folder, "todos.db");

describe.skipIf(whyUntraceable !== undefined)("fsync of the log of writes", () => {
  test("has ended well before each 201 whose to-do is in it", async () => {
    const trace = await tracePosts(path);
    expect(acknowledgedTooSoon(trace, path)).toEqual([]);

    const { calls } = trace;
    const made = calls.find(({ name, args }) => name === "openat" && args.includes(`"${path}-wal"`));
    const named = calls.find((call) => syncs(call, folder) && call.began > (made?.ended ?? Number.NaN));
    expect(named?.ended).toBeLessThan(calls.find(isCreated)?.began ?? Number.NaN);
  });

  test("is missed where there is none", async () => {
    const copy = await copyWithoutFsync(join(folder, "copy"));
    const lax = join(folder, "lax.db");
    const trace = await tracePosts(lax, copy);
    expect(acknowledgedTooSoon(trace, lax).length).toBeGreaterThan(trace.titles.length / 2);
  });
});

/** The titles that a 201 named before an fsync of the transaction with them had ended well. */
function acknowledgedTooSoon({ calls, titles }: Trace, path: string): string[] {
  const writes = calls.filter(({ name, args }) => name === "pwrite64" && args.includes(`<${path}-wal>`));
  const logSyncs = calls.filter((call) => syncs(call, `${path}-wal`));
  const replies = calls.filter(isCreated);
  return titles.filter((title) => {
    const reply = replies.find(({ args }) => args.includes(title));
    const written = writes.findIndex(({ args }) => args.includes(title));
    const commit = writes.find((_, at) => at >= written && isLastOfTransaction(writes[at - 1]));
    if (reply === undefined || written < 0 || commit === undefined) throw new Error(`no trace of ${title}`);
    return !logSyncs.some(({ began, ended }) => began > commit.ended && ended < reply.began);
  });
}

/**
 * Whether a write is the header of the last frame of a transaction: its second number, how many pages the
 * database then has, is 0 in all others (https://www.sqlite.org/fileformat2.html#walformat).
 */
function isLastOfTransaction(write: Call | undefined): boolean {
  const pages = /"[\s\S]{4}([\s\S]{4})[\s\S]{16}", 24, \d+$/.exec(write?.args ?? "")?.[1];
  return pages !== undefined && pages !== "\0\0\0\0";
}
