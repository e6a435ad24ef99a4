/** Sends mutated requests without credentials to a service in private mode. */
import { expect, test } from "bun:test";
import { openMemory } from "../src/storage/memory/store.ts";
import { fuzz, hasFailed } from "./fuzzer.ts";
import { startPrivate } from "./service.ts";
import { storedTodos } from "./todos-page.ts";

const REQUESTS = 10_000;
const TITLE = "read by nobody else";
/** Credentials that the service accepts, after any mutation (RFC 9110 §5.1 and §5.5, RFC 6750 §2.1). No password is valid. */
const AUTHENTICATED = /authorization:[ \t]*bearer +token/i;

test(`${REQUESTS} mutated requests without credentials neither read nor change the list`, async () => {
  const store = openMemory();
  await store.insert(TITLE);
  const lookupClient = (token: string) => (token === "token" ? { name: "client" } : undefined);
  await using service = startPrivate(store, {
    credentials: { lookupClient, checkUser: () => false },
    network: { onLoopback: true },
  });
  const statuses = await fuzz(service.port, REQUESTS, {
    change: (sent) => (AUTHENTICATED.test(sent.bytes) ? undefined : sent),
    isWrong: (exchanged) => exchanged.text.includes(TITLE) || hasFailed(exchanged),
  });
  expect(service.lines.filter(({ level }) => level === "error")).toEqual([]);
  expect(await storedTodos(store)).toEqual([{ id: 1, title: TITLE, done: false }]);
  expect(statuses.get("401")).toBeGreaterThan(REQUESTS / 10);
  expect(statuses.get("201")).toBeUndefined();
}, 300_000);
