/** Sends mutated requests to a service in private mode. */
import { expect, test } from "bun:test";
import { openMemory } from "../src/storage/memory/store.ts";
import { fuzz, hasFailed } from "./fuzzer.ts";
import { capturingLog } from "./log.ts";
import { request } from "./raw-http.ts";
import { startService } from "./service.ts";
import { storedTodos } from "./todos-page.ts";

const REQUESTS = 10_000;
const TIMEOUT_MS = 300_000;
const TITLE = "read by nobody else";
const JSON_TYPE = "Content-Type: application/json";
const BEARER = "Authorization: Bearer token";
/** Mutations of `BEARER` that the service may accept (RFC 9110 §5.1 and §5.5, RFC 6750 §2.1). No password is valid. */
const AUTHENTICATED = /authorization:[ \t]*bearer +token/i;

/** Requests for 413, 415 and 422, which few mutants cause. About 100 mutants or more cause each other status. */
const EXAMPLES = [
  request("POST /api/todos", [JSON_TYPE, "Content-Length: 65537"], "x".repeat(65_537)),
  request("POST /api/todos", ["Content-Type: text/plain", "Content-Length: 2"], "{}"),
  request("POST /api/todos", [JSON_TYPE, "Content-Length: 12"], '{"title":""}'),
].map((bytes) => ({ bytes, isWhole: true }));

type Change = NonNullable<Parameters<typeof fuzz>[2]["change"]>;

/** Sends mutated requests to a private service with one to-do, and returns how often each status was received. */
async function send(change: Change, mayRead: RegExp) {
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
  const statuses = await fuzz(service.port, REQUESTS, {
    examples: EXAMPLES,
    change,
    isWrong: (exchanged) => {
      if (lines.length > 0) throw new Error(JSON.stringify(lines));
      const isRead = exchanged.text.includes(TITLE) && !mayRead.test(exchanged.sent.bytes);
      return isRead || hasFailed(exchanged);
    },
  });
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
    const expected = "200 201 204 400 401 404 405 413 415 422".split(" ");
    expect([...statuses.keys()]).toEqual(expect.arrayContaining(expected));
  },
  TIMEOUT_MS,
);
