import { describe, expect, test } from "bun:test";
import { callRoute } from "../../../test/call-route.ts";
import { as, mint } from "../../../test/credentials.ts";
import { startService } from "../../../test/service.ts";
import { FOREIGN_THENABLES } from "../../../test/thenables.ts";
import { createClientLookup } from "../../credential/client.ts";
import { createKeyLookup } from "../../credential/key.ts";
import { hashToken } from "../../credential/token.ts";
import { openMemory } from "../../storage/memory/store.ts";
import { createService } from "../service.ts";

const TOKEN = "s3cret/token+~.==";
const NAME = "Zoë 😀";
const AUTHORIZED = as(`Bearer ${TOKEN}`);

const lookupClient = createClientLookup([{ client: { name: NAME }, tokenHash: hashToken(TOKEN) }]);

test("GET /api/whoami returns only the client's name as text", async () => {
  await using service = startService({ credentials: { lookupClient } });
  const response = await service.send("GET", "/api/whoami", AUTHORIZED);
  expect(response.status).toBe(200);
  expect(response.headers.get("content-type")).toBe("text/plain; charset=utf-8");
  expect(await response.text()).toBe(NAME);
  expect(service.lines).toEqual([]);
});

test("GET /api/whoami responds with 401, never with 429, after any number of rejections", async () => {
  await using service = startService({ credentials: { lookupClient }, access: { basicFailures: 1 } });
  for (let attempt = 0; attempt < 10; attempt++)
    expect(await service.outcome("GET /api/whoami", as("Bearer unknown"))).toBe("401 unauthorized");
  expect((await service.send("GET", "/api/whoami", AUTHORIZED)).status).toBe(200);
});

describe("the lookup of a token", () => {
  test("may be asynchronous", async () => {
    const waiting: (() => void)[] = [];
    const lookupClient = async (token: string) => {
      const { promise, resolve } = Promise.withResolvers<void>();
      if (waiting.push(resolve) === 20) for (const end of waiting.toReversed()) end();
      await promise;
      return token.endsWith("7") ? undefined : { name: `client of ${token}` };
    };
    await using service = startService({ credentials: { lookupClient } });
    const answers = Array.from({ length: 20 }, async (_, index) => {
      const response = await service.send("GET", "/api/whoami", as(`Bearer token-${index}`));
      return response.status === 200 ? response.text() : response.status;
    });
    expect(await Promise.all(answers)).toEqual(
      answers.map((_, index) => (index % 10 === 7 ? 401 : `client of token-${index}`)),
    );
  });

  test("receives only the token, and is not called without one", async () => {
    const calls: unknown[][] = [];
    const lookupClient = (...call: unknown[]) => void calls.push(call);
    await using service = startService({ credentials: { lookupClient } });
    await service.send("GET", "/api/whoami");
    for (const header of ["Bearer", "Bearer a b", "Basic eDp5", "Bearer a,b", "bearer  x=y"])
      await service.send("GET", "/api/whoami", as(header));
    expect(calls).toEqual([["x=y"]]);
  });
});

test("a lookup may return a promise of another library", async () => {
  const thenable = FOREIGN_THENABLES["an object with then and a client's name"];
  if (thenable === undefined) throw new Error("there is no such promise");
  for (const [settle, expected] of [
    [async () => null, "401 unauthorized"],
    [async () => ({}), "401 unauthorized"],
    [() => Promise.reject(new Error("s3cret")), "503 credentials_unavailable"],
    [async () => ({ name: "alice" }), "200"],
  ] as const) {
    const lookupClient = Object.assign(() => thenable(settle));
    await using service = startService({ credentials: { lookupClient } });
    expect(await service.outcome("GET /api/whoami", AUTHORIZED)).toBe(expected);
  }
});

test("the bearer guard returns no promise if the lookup returns none, as for a key of a synchronous store", async () => {
  const { keys } = openMemory();
  const { token } = await mint(keys, "ci", { now: 0 });
  for (const [lookup, sent, status] of [
    [lookupClient, TOKEN, 200],
    [lookupClient, "unknown", 401],
    [createKeyLookup(keys, () => 0), token, 200],
  ] as const) {
    const service = createService({ store: openMemory(), credentials: { lookupClient: lookup } });
    const response = callRoute(service, "/api/whoami", as(`Bearer ${sent}`));
    expect(response).toBeInstanceOf(Response);
    if (!(response instanceof Response)) continue;
    expect([response.status, response.headers.get("cache-control")]).toEqual([status, "no-store"]);
  }
});

test("the log of rejected tokens has one line per network and reason, and a summary that counts the rest", async () => {
  await using service = startService({
    credentials: { lookupClient },
    network: { trustedProxies: ["127.0.0.1"] },
  });
  for (const [token, address] of [
    ["x", "192.0.2.7"],
    ["x x", "192.0.2.7"],
    ["x", "2001:db8::1"],
    ["x", "2001:db8::2"],
  ] as const)
    for (const _ of [1, 2])
      await service.send("GET", "/api/whoami", as(`Bearer ${token}`, { "X-Forwarded-For": address }));
  service.close();
  expect(service.lines.map(({ fields }) => [fields.reason, fields.address, fields.times])).toEqual([
    ["unknown", "192.0.2.7", undefined],
    ["malformed", "192.0.2.7", undefined],
    ["unknown", "2001:db8::1", undefined],
    ["unknown", "192.0.2.7", 1],
    ["malformed", "192.0.2.7", 1],
    ["unknown", "2001:db8::2", 3],
  ]);
});
