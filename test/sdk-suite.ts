import type { Todo, TodoApi, TodoApiError, TodoEvent } from "../src/sdk/client.ts";
import { FAULTS, type Fault } from "./faults.ts";

/** What runs in Bun, in Node and in a browser: the client is handed in, and all it says can be sent as JSON. */
export type Sdk = {
  readonly TodoApi: typeof TodoApi;
  readonly TodoApiError: typeof TodoApiError;
};

/** What a client did, and what it was told: ids as text. */
export interface Storm {
  /** The to-dos that must be there now, as `id title done`. */
  readonly kept: readonly string[];
  /** Those that must not. */
  readonly deleted: readonly string[];
  /** The to-dos as events tell them. */
  readonly followed: readonly string[];
  /** The positions of changes, in the order told. */
  readonly positions: readonly string[];
  readonly connections: number;
  readonly failures: readonly string[];
}

/** Writes through an unreliable network from many sides at once, and follows what it does itself. */
export async function storm(
  { TodoApi }: Sdk,
  baseUrl: string,
  writers: number,
  each: number,
): Promise<Storm> {
  const api = new TodoApi({ baseUrl, timeoutMs: 400, retries: 20 });
  const kept: string[] = [];
  const deleted: string[] = [];
  const failures: string[] = [];
  const followed = new Map<bigint, Todo>();
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
            // A network that sends it twice may answer with the second answer, which is right too.
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

  // What comes late, of requests that were held up, has come by then.
  const end = await api.create("the end");
  kept.push(asText(end));
  while (!followed.has(end.id)) await new Promise((resolve) => setTimeout(resolve, 20));
  leaving.abort();
  await following;
  const shown = [...followed.values()].map(asText);
  return { kept, deleted, followed: shown, positions, connections, failures };
}

const asText = ({ id, title, done }: Todo): string => `${id} ${title} ${done}`;

/** Where the checks find what. */
export interface Places {
  readonly direct: string;
  /** Through a proxy with one fault, which strikes every other request of a kind, from the first; `whoami` always. */
  readonly through: Readonly<Record<Fault, string>>;
  readonly token: string;
}

/** A title that looks like members of a to-do. */
export const TITLE = '{"id":12345678901234567890,"title":"😀\\","done":true},"id":1';
/** Ids of the service that is checked are greater, so that a number cannot hold them. */
export const BEFORE_FIRST_ID = 2n ** 63n;
const ABSENT_ID = BEFORE_FIRST_ID - 1n;

/** What an only try comes to, by fault. */
const CODES: Readonly<Partial<Record<Fault, string>>> = {
  refuse: "network_error",
  lose: "network_error",
  cut: "network_error",
  silent: "timeout",
  stale: "timeout",
  busy: "unexpected_answer",
  throttle: "unexpected_answer",
};

/** What holds wherever the client runs; rejects with what is wrong. */
const CHECKS: Readonly<Record<string, (sdk: Sdk, places: Places) => Promise<void>>> = {
  "a to-do is created, read, changed, listed and deleted": async ({ TodoApi }, { direct }) => {
    const api = new TodoApi({ baseUrl: `${direct}//` });
    const todo = await api.create(TITLE);
    same([todo.title, todo.done, typeof todo.id], [TITLE, false, "bigint"]);
    same(await api.get(todo.id), todo);
    same(await api.setDone(todo.id, true), { ...todo, done: true });
    const { todos } = await api.list({ done: true });
    same(todos, [{ ...todo, done: true }]);
    same(await api.delete(todo.id), undefined);
    same((await api.list({ done: true })).todos, []);
  },
  "an id past 2^53 is exact": async ({ TodoApi }, { direct }) => {
    const { id } = await new TodoApi({ baseUrl: direct }).create(TITLE);
    same(id > BEFORE_FIRST_ID, true);
    const response = await fetch(`${direct}/api/todos`);
    same((await response.text()).includes(`{"id":${id},`), true);
  },
  "pages are all of the list": async ({ TodoApi }, { direct }) => {
    const api = new TodoApi({ baseUrl: direct });
    for (const n of [1, 2, 3, 4, 5]) await api.create(`page ${n}`);
    const whole = await api.list();
    const found = [];
    for await (const { todos } of api.pages({ limit: 2 })) found.push(todos);
    same(found.flat(), whole.todos);
    same(
      found.slice(0, -1).every(({ length }) => length === 2),
      true,
    );
  },
  "the token says who it is": async ({ TodoApi }, { direct, token }) => {
    same(await new TodoApi({ baseUrl: direct, token }).whoami(), "alice");
  },
  "a refusal has code, status and fields": async (sdk, { direct }) => {
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
  "a lost or late answer is an error when there are no retries": async (sdk, { through, token }) => {
    const struck = FAULTS.filter((one) => one in CODES);
    const codes = struck.map(async (fault) => {
      const api = new sdk.TodoApi({ baseUrl: through[fault], token, timeoutMs: 1000, retries: 0 });
      const [code] = await refusal(sdk, api.whoami());
      return [fault, code];
    });
    same(Object.fromEntries(await Promise.all(codes)), CODES);
  },
  "whatever is lost on the way, a to-do is made once": async ({ TodoApi }, { direct, through }) => {
    const made = await Promise.all(
      FAULTS.map((fault) =>
        new TodoApi({ baseUrl: through[fault], timeoutMs: 1000 }).create(`made ${fault}`),
      ),
    );
    const { todos } = await new TodoApi({ baseUrl: direct }).list();
    const found = todos.filter(({ title }) => title.startsWith("made "));
    same(found.map(({ id }) => id).toSorted(), made.map(({ id }) => id).toSorted());
  },
  "a to-do whose deletion is not answered is deleted without an error": async ({ TodoApi }, places) => {
    const { id } = await new TodoApi({ baseUrl: places.direct }).create("gone");
    const api = new TodoApi({ baseUrl: places.through.lose, timeoutMs: 1000 });
    same(await api.delete(id), undefined);
  },
  "an abort rejects with its reason, at once": async ({ TodoApi }, { direct, through }) => {
    const early = new TodoApi({ baseUrl: direct }).list({}, { signal: AbortSignal.abort("early") });
    same(await early.catch((reason) => reason), "early");
    const leaving = new AbortController();
    const waiting = new TodoApi({ baseUrl: through.silent }).list({}, leaving);
    setTimeout(() => leaving.abort("late"), 100);
    same(await waiting.catch((reason) => reason), "late");
    const between = new AbortController();
    const pausing = new TodoApi({ baseUrl: through.busy }).create("between", between);
    setTimeout(() => between.abort("between"), 300);
    same(await pausing.catch((reason) => reason), "between");
  },
  "events are followed, and again where they broke off": async ({ TodoApi }, { direct, through }) => {
    const writer = new TodoApi({ baseUrl: direct });
    const { position: since } = await writer.list();
    const { id } = await writer.create(TITLE);
    const api = new TodoApi({ baseUrl: through.cut });
    const following = follow(api, since, (event) => event.type === "deleted");
    await writer.setDone(id, true);
    await writer.delete(id);
    const events = await following;
    same(
      events.flatMap((event): unknown[] =>
        "todo" in event ? [event.todo] : "id" in event ? [event.id] : [],
      ),
      [{ id, title: TITLE, done: false }, { id, title: TITLE, done: true }, id],
    );
    same(
      events.some(({ type }) => type === "disconnected"),
      true,
    );
  },
  "a position that is lost is told of": async ({ TodoApi }, { direct }) => {
    const api = new TodoApi({ baseUrl: direct });
    const { position } = await api.list();
    const [, resync] = await follow(api, "elsewhere-7", ({ type }) => type === "resync");
    same(resync, { type: "resync", position });
  },
  "events without a position start now": async ({ TodoApi }, { direct }) => {
    const api = new TodoApi({ baseUrl: direct });
    const { position } = await api.list();
    same(await follow(api, undefined, () => true), [{ type: "connected", position }]);
  },
};

/** What went wrong, by check. */
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

/** The events to one that is the last; then it leaves, and they end. */
async function follow(
  api: TodoApi,
  since: string | undefined,
  isLast: (event: TodoEvent) => boolean,
): Promise<TodoEvent[]> {
  const leaving = new AbortController();
  const told: TodoEvent[] = [];
  for await (const event of api.events({ signal: leaving.signal, ...(since !== undefined && { since }) })) {
    told.push(event);
    if (isLast(event)) leaving.abort();
  }
  return told;
}

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
