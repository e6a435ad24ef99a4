import { expect, test } from "bun:test";
import { countRequests } from "../../test/observer.ts";
import { statusAndCode } from "../../test/problem.ts";
import { openSocket, request, sendRaw, statusOf } from "../../test/raw-http.ts";
import { startService, type TestService } from "../../test/service.ts";
import { until } from "../../test/until.ts";
import { openMemory } from "../storage/memory/store.ts";

const HOUR = 60 * 60 * 1000;
const KEY = '"8e03978e-40d5-43dd-bc93-6894a57f9324"';

const post = ({ sendJson }: TestService, title: unknown, key = KEY): Promise<Response> =>
  sendJson("POST", "/api/todos", { title }, { headers: { "Idempotency-Key": key } });

async function whole(response: Response) {
  return [response.status, response.headers.get("location"), await response.text()];
}

const idsIn = async ({ send }: TestService): Promise<number[]> => {
  const todos: readonly { readonly id: number }[] = JSON.parse(
    await (await send("GET", "/api/todos")).text(),
  );
  return todos.map(({ id }) => id);
};

test("an Idempotency-Key repeats the response and creates no second to-do", async () => {
  const store = openMemory();
  await using service = startService({ store });
  const first = await whole(await post(service, "\0 Zoë 😀"));
  expect(first).toEqual([201, "todos/1", '{"id":1,"title":"\\u0000 Zoë 😀","done":false}']);
  expect(await whole(await post(service, "\0 Zoë 😀"))).toEqual(first);
  await service.sendJson("PATCH", "/api/todos/1", { done: true });
  expect(await whole(await post(service, "\0 Zoë 😀"))).toEqual(first);
  await service.send("DELETE", "/api/todos/1");
  expect(await whole(await post(service, "\0 Zoë 😀"))).toEqual(first);
  expect(await idsIn(service)).toEqual([]);
  // No id was used, and only the update and the deletion changed the position.
  expect((await whole(await post(service, "next", '"another"')))[1]).toBe("todos/2");
  expect((await store.position()).sequence).toBe(4);
});

const LONG_KEY = "k".repeat(254);
test.each([
  ["case", "Key", "key"],
  ["the last of 255 characters", `${LONG_KEY}1`, `${LONG_KEY}2`],
])("Idempotency-Keys that differ in %s are different, and so are titles", async (_what, one, other) => {
  await using service = startService();
  expect((await whole(await post(service, "a", one)))[1]).toBe("todos/1");
  expect((await whole(await post(service, "a", other)))[1]).toBe("todos/2");
  for (const title of ["A", "a "]) expect((await post(service, title, one)).status).toBe(422);
});

test("an Idempotency-Key is not stored with a rejected request", async () => {
  const store = openMemory({ maxTodos: 1 });
  await using service = startService({ store });
  expect(await statusAndCode(await post(service, ""))).toEqual([422, "validation_failed"]);
  expect((await service.sendJson("POST", "/api/todos", { title: "in the way" })).status).toBe(201);
  expect(await statusAndCode(await post(service, "a"))).toEqual([507, "store_full"]);
  await service.send("DELETE", "/api/todos/1");
  expect((await post(service, "a")).status).toBe(201);
  expect((await post(service, "a")).status).toBe(201);
  expect(await idsIn(service)).toEqual([2]);
});

test("an Idempotency-Key is stored for 24 hours", async () => {
  let now = 1_000_000;
  await using service = startService({ store: openMemory({ now: () => now }) });
  const idOf = async (title: string) => JSON.parse(await (await post(service, title)).text()).id;
  expect(await idOf("a")).toBe(1);
  now += 24 * HOUR - 1;
  expect(await idOf("a")).toBe(1);
  now += 1;
  expect([await idOf("b"), await idOf("b")]).toEqual([2, 2]);
});

test("an Idempotency-Key expires on time even if another key was stored while the clock was ahead", async () => {
  let now = 1_000_000 + 1000 * HOUR;
  const store = openMemory({ now: () => now });
  await store.insert("a", "ahead");
  now = 1_000_000;
  await store.insert("a", "key");
  now += 24 * HOUR;
  expect((await store.insert("b", "key")).id).toBe(3n);
});

test("an Idempotency-Key can be used while the upload of a body is stalled", async () => {
  const requests = countRequests();
  await using service = startService({ observer: requests.observer });
  const head = ["Content-Type: application/json", `Idempotency-Key: ${KEY}`, "Content-Length: 100"];
  const socket = await openSocket(service.port, request("POST /api/todos", head, '{"title":'));
  await until(() => requests.waiting() === 1, "the request has arrived");
  for (const _ of [1, 2]) expect((await whole(await post(service, "a")))[1]).toBe("todos/1");
  socket.destroy();
});

const long = "x".repeat(255);
test.each<[what: string, spelling: string, other: string]>([
  ["the same key with and without quotes", '"abc"', "abc"],
  ["escaped quotes and backslashes", '"a\\"b\\\\c"', '"a\\"b\\\\c"'],
  ["255 characters", `"${long}"`, long],
  ["255 escaped characters", `"${'\\"'.repeat(255)}"`, `"${'\\"'.repeat(255)}"`],
  ["any visible character", '"!#$%&\'()*+,-./:;<=>?@[]^_`{|}~ x"', '"!#$%&\'()*+,-./:;<=>?@[]^_`{|}~ x"'],
  ["surrounding spaces", `  ${KEY}  `, KEY],
  ["the names of object properties", "__proto__", '"__proto__"'],
])("the header Idempotency-Key accepts %s", async (_what, spelling, other) => {
  await using service = startService();
  for (const key of [spelling, other])
    expect((await whole(await post(service, "a", key)))[1]).toBe("todos/1");
});

test.each([
  ...["", '""', '"', '"abc', "a b", '"a", "b"', "a, a", "a\\b", '"a\\b"', "é", "a\tb", "x".repeat(256)],
])("the header Idempotency-Key rejects %j", async (key) => {
  await using service = startService();
  const headers = ["Content-Type: application/json", "Content-Length: 13", `Idempotency-Key: ${key}`];
  const { text } = await sendRaw(service.port, request("POST /api/todos", headers, '{"title":"a"}'));
  expect(statusOf(text)).toBe(400);
  expect(text).toContain('"code":"invalid_idempotency_key"');
  expect(await idsIn(service)).toEqual([]);
});
