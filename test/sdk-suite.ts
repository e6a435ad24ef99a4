import type { Todo, TodoApi, TodoApiError, TodoEvent } from "../src/sdk/client.ts";

// `late`: the response is delayed. `refuse`: the connection is closed before the server gets the request. `lose`: it is closed
// instead of sending the response. `cut`: it is closed in the middle of the response. `twice`: the server gets the request twice at
// the same time, and the later response is sent back. `echo`: the response is sent twice. `silent`: the server responds, and no
// byte is sent back. `stale`: no byte is sent back, and the server gets the request much later. `busy`: a 503 although the server
// got the request, so its outcome is unknown. `throttle`: a 429, and the server never gets the request.
export const FAULTS = [
  ...(["pass", "late", "refuse", "lose", "cut", "twice", "echo"] as const),
  ...(["silent", "stale", "busy", "throttle"] as const),
];
export type Fault = (typeof FAULTS)[number];

/** The client under test. This file runs in Bun, in Node and in a browser, and its results can be sent as JSON. */
export type Sdk = {
  readonly TodoApi: typeof TodoApi;
  readonly TodoApiError: typeof TodoApiError;
};

/** What a client did and which events it received. Ids are text. */
export interface Storm {
  /** The to-dos that must exist now, as `id title done`. */
  readonly kept: readonly string[];
  readonly deleted: readonly string[];
  readonly followed: readonly string[];
  /** The positions of the changes, in the order of the events. */
  readonly positions: readonly string[];
  readonly connections: number;
  readonly failures: readonly string[];
}

/** Writes concurrently through an unreliable network, and follows the events of these writes. */
export async function storm(
  { TodoApi }: Sdk,
  baseUrl: string,
  writers: number,
  each: number,
): Promise<Storm> {
  const api = new TodoApi({ baseUrl, timeoutMs: 1000, retries: 20 });
  const kept: string[] = [];
  const deleted: string[] = [];
  const failures: string[] = [];
  const followed = new Map<string, Todo>();
  const positions: string[] = [];
  let connections = 0;
  const leaving = new AbortController();
  const take = (event: TodoEvent): void => {
    if (event.type === "connected") connections++;
    if (event.type === "resync") failures.push("resync");
    if (!("todo" in event || "id" in event)) return;
    positions.push(event.position);
    if ("todo" in event) followed.set(event.todo.id, event.todo);
    else followed.delete(event.id);
  };
  const { position } = await api.list();
  const following = (async () => {
    for await (const event of api.events({ since: position, signal: leaving.signal })) take(event);
  })();

  const write = async (writer: number): Promise<void> => {
    for (let n = 0; n < each; n++) {
      try {
        const todo = await api.create(`${writer}-${n} ${TITLE}`);
        if (n % 3 === 1) {
          await api.delete(todo.id).catch((error) => {
            // A network that sends a request twice may return the second response, which is right too.
            if (error.code !== "todo_not_found") throw error;
          });
          deleted.push(String(todo.id));
        } else kept.push(asText(n % 3 === 2 ? await api.setDone(todo.id, true) : todo));
      } catch (error) {
        failures.push(String(error));
      }
    }
  };
  while (connections === 0) await new Promise((resolve) => setTimeout(resolve, 20));
  await Promise.all(Array.from({ length: writers }, (_, writer) => write(writer)));

  // By then, the delayed requests have arrived too.
  const end = await api.create("the end");
  kept.push(asText(end));
  while (!followed.has(end.id)) await new Promise((resolve) => setTimeout(resolve, 20));
  leaving.abort();
  await following;
  const shown = [...followed.values()].map(asText);
  return { kept, deleted, followed: shown, positions, connections, failures };
}

const asText = ({ id, title, done }: Todo): string => `${id} ${title} ${done}`;

export interface Places {
  readonly direct: string;
  /** Proxies with one fault each. It affects every second request of a kind, starting with the first, and every `whoami`. */
  readonly through: Readonly<Record<Fault, string>>;
  readonly token: string;
}

/** A title that looks like the members of a to-do. */
export const TITLE = '{"id":12345678901234567890,"title":"😀\\","done":true},"id":1';
/** Ids of the tested service are larger, so that a number cannot represent them. */
export const BEFORE_FIRST_ID = 2n ** 63n;
const ABSENT_ID = BEFORE_FIRST_ID - 1n;

/** The error code of a call without retries, by fault. */
const CODES: Readonly<Partial<Record<Fault, string>>> = {
  refuse: "network_error",
  lose: "network_error",
  cut: "network_error",
  silent: "timeout",
  stale: "timeout",
  busy: "unexpected_answer",
  throttle: "unexpected_answer",
};

const CHECKS: Readonly<Record<string, (sdk: Sdk, places: Places) => Promise<void>>> = {
  "a to-do is created, read, changed, listed and deleted": async ({ TodoApi }, { direct }) => {
    const api = new TodoApi({ baseUrl: `${direct}//` });
    const todo = await api.create(TITLE);
    same([todo.title, todo.done, typeof todo.id], [TITLE, false, "string"]);
    same(await api.get(todo.id), todo);
    same(await api.setDone(todo.id, true), { ...todo, done: true });
    const { todos } = await api.list({ done: true });
    same(todos, [{ ...todo, done: true }]);
    same(await api.delete(todo.id), undefined);
    same((await api.list({ done: true })).todos, []);
  },
  "an id above 2^53 is exact": async ({ TodoApi }, { direct }) => {
    const api = new TodoApi({ baseUrl: direct });
    const { id } = await api.create(TITLE);
    same(BigInt(id) > BEFORE_FIRST_ID, true);
    same((await api.get(BigInt(id))).id, id);
    same(
      (await api.list({ after: BigInt(id) - 1n })).todos.map((todo) => todo.id),
      [id],
    );
    const response = await fetch(`${direct}/api/todos`);
    same((await response.text()).includes(`{"id":${id},`), true);
  },
  "an error has code, status and fields": async (sdk, { direct }) => {
    const api = new sdk.TodoApi({ baseUrl: direct });
    same(await refusal(sdk, api.get(ABSENT_ID)), ["todo_not_found", 404, []]);
    same(await refusal(sdk, api.whoami()), ["unauthorized", 401, []]);
    same(await refusal(sdk, api.delete(ABSENT_ID)), ["todo_not_found", 404, []]);
    same(await refusal(sdk, api.create(" ".repeat(121))), [
      "validation_failed",
      422,
      [
        { field: "title", message: "must not be empty" },
        { field: "title", message: "must be at most 120 characters" },
      ],
    ]);
    await api.create("once", { idempotencyKey: 'a "key" \\' });
    same(await refusal(sdk, api.create("other", { idempotencyKey: 'a "key" \\' })), [
      "idempotency_key_reused",
      422,
      [],
    ]);
  },
  "a lost or late response is an error without retries": async (sdk, { through, token }) => {
    const struck = FAULTS.filter((one) => one in CODES);
    const codes = struck.map(async (fault) => {
      // Only a response that never comes may take longer than the timeout, also on a busy machine.
      const timeoutMs = CODES[fault] === "timeout" ? 1000 : 60_000;
      const api = new sdk.TodoApi({ baseUrl: through[fault], token, timeoutMs, retries: 0 });
      const [code] = await refusal(sdk, api.whoami());
      return [fault, code];
    });
    same(Object.fromEntries(await Promise.all(codes)), CODES);
  },
  "an abort rejects immediately with its reason": async ({ TodoApi }, { direct, through, token }) => {
    const early = new TodoApi({ baseUrl: direct }).list({}, { signal: AbortSignal.abort("early") });
    same(await early.catch((reason) => reason), "early");
    const leaving = new AbortController();
    // The fault affects every whoami, so no call can succeed before the abort.
    const waiting = new TodoApi({ baseUrl: through.silent, token, fetch: abortAfterSending(leaving) });
    same(await waiting.whoami(leaving).catch((reason) => reason), "sent");
  },
  "a live list shows changes of others, also after lost connections": async (
    { TodoApi },
    { direct, through },
  ) => {
    const writer = new TodoApi({ baseUrl: direct });
    const { id } = await writer.create("live");
    let isChanged = false;
    for await (const { todos, status } of new TodoApi({ baseUrl: through.cut }).follow()) {
      const todo = todos.find((one) => one.id === id);
      if (todo?.done && status === "connected") break;
      if (todo !== undefined && !isChanged) await writer.setDone(id, true);
      isChanged = todo !== undefined;
    }
    await writer.delete(id);
  },
};

/** Runs all checks. Returns the result of each: "holds" or what is wrong. */
export async function runChecks(sdk: Sdk, places: Places): Promise<Record<string, string>> {
  const outcomes: Record<string, string> = {};
  for (const [name, check] of Object.entries(CHECKS)) {
    try {
      await check(sdk, places);
      outcomes[name] = "holds";
    } catch (error) {
      outcomes[name] = String(error);
    }
  }
  return outcomes;
}

/** Returns a `fetch` that aborts a call after its first request was sent. */
const abortAfterSending = (controller: AbortController): typeof fetch =>
  Object.assign((...args: Parameters<typeof fetch>) => {
    // The caller continues first: it waits for the answer.
    setTimeout(() => controller.abort("sent"));
    return fetch(...args);
  }, fetch);

async function refusal({ TodoApiError }: Sdk, call: Promise<unknown>): Promise<unknown[]> {
  try {
    return [await call];
  } catch (error) {
    if (!(error instanceof TodoApiError)) throw error;
    return [error.code, error.status, error.fields];
  }
}

function same(actual: unknown, expected: unknown): void {
  const [got, wanted] = [actual, expected].map((value) =>
    JSON.stringify(value, (_key, one) => (typeof one === "bigint" ? `${one}n` : one)),
  );
  if (got !== wanted) throw new Error(`${got} is not ${wanted}`);
}
