/** Sends mutated requests to a service in private mode. */
import { expect, test } from "bun:test";
import { openMemory } from "../src/storage/memory/store.ts";
import { exchange, mutant } from "./fuzzer.ts";
import { capturingLog } from "./log.ts";
import { request } from "./raw-http.ts";
import { startService } from "./service.ts";
import { storedTodos } from "./todos-page.ts";

const REQUESTS = 10_000;
const AT_ONCE = 32;
const TIMEOUT_MS = 300_000;
const TITLE = "read by nobody else";
const JSON_TYPE = "Content-Type: application/json";
const BEARER = "Authorization: Bearer token";
/** Mutations of `BEARER` that the service may accept (RFC 9110 §5.1 and §5.5, RFC 6750 §2.1). No password is valid. */
const AUTHENTICATED = /authorization:[ \t]*bearer +token/i;

/** Any 5xx except 505, which the listener sends for HTTP/2.0 and similar versions. */
const SERVER_ERROR = /HTTP\/1\.[01] 5(?!05)\d\d /;
/** Set FUZZ_SEED to repeat a run. Each request has its own seed. */
const SEED = Number(process.env.FUZZ_SEED ?? Math.floor(Math.random() * 2 ** 31));

type Mutant = ReturnType<typeof mutant>;

/** Requests for 413, 415 and 422, which few mutants cause. About 100 mutants or more cause each other status. */
const EXAMPLES: readonly Mutant[] = [
  request("POST /api/todos", [JSON_TYPE, "Content-Length: 65537"], "x".repeat(65_537)),
  request("POST /api/todos", ["Content-Type: text/plain", "Content-Length: 2"], "{}"),
  request("POST /api/todos", [JSON_TYPE, "Content-Length: 12"], '{"title":""}'),
].map((bytes) => ({ bytes, isWhole: true }));

/** Sends mutated requests to a private service with one to-do, and returns how often each status was received. */
async function send(change: (sent: Mutant) => Mutant | undefined, mayRead: RegExp) {
  const { log, lines } = capturingLog();
  const store = openMemory();
  await store.insert(TITLE);
  await using service = startService({
    store,
    credentials: {
      keys: store.keys,
      lookupClient: (token) => (token === "token" ? { name: "client" } : undefined),
    },
    access: { privateMode: true },
    network: { onLoopback: true },
    log: { ...log, info() {}, warn() {} },
  });
  const statuses = new Map<string, number>();
  const examples = [...EXAMPLES];
  let next = 0;
  const work = async (): Promise<void> => {
    while (next < REQUESTS) {
      const seed = SEED + next;
      const sent = change(examples.pop() ?? mutant(SEED + next++));
      if (sent === undefined) continue;
      const { text, isHung } = await exchange(service.port, sent);
      const status = /^HTTP\/1\.1 (\d{3}) /.exec(text)?.[1] ?? "none";
      statuses.set(status, (statuses.get(status) ?? 0) + 1);
      const isRead = text.includes(TITLE) && !mayRead.test(sent.bytes);
      if (isHung || isRead || SERVER_ERROR.test(text) || lines.length > 0) {
        const bytes = JSON.stringify(sent.bytes.slice(0, 2000));
        throw new Error(
          `FUZZ_SEED=${seed} ${text.slice(0, 500)}: ${JSON.stringify({ isHung, isRead, lines })} after ${bytes}`,
        );
      }
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  return { statuses, todos: await storedTodos(store) };
}

test(
  `${REQUESTS} mutated requests without credentials neither read nor change the list`,
  async () => {
    const { statuses, todos } = await send(
      (sent) => (AUTHENTICATED.test(sent.bytes) ? undefined : sent),
      /(?!)/,
    );
    expect(todos).toEqual([{ id: 1, title: TITLE, done: false }]);
    expect(statuses.get("401")).toBeGreaterThan(REQUESTS / 10);
    expect(statuses.get("201")).toBeUndefined();
  },
  TIMEOUT_MS,
);

test(
  `${REQUESTS} mutated requests with credentials cause no 5xx and no timeout`,
  async () => {
    // The first line ends the request line, so that the token is the first header.
    const { statuses } = await send(
      (sent) => ({ ...sent, bytes: sent.bytes.replace("\r\n", `\r\n${BEARER}\r\n`) }),
      /./,
    );
    // A fuzzer whose requests all fail in the same way tests nothing.
    for (const status of ["200", "201", "204", "400", "401", "404", "405", "413", "415", "422"])
      expect([status, (statuses.get(status) ?? 0) > 0]).toEqual([status, true]);
  },
  TIMEOUT_MS,
);
