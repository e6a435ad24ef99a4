import { expect, test } from "bun:test";
import { callRoute } from "../../../test/call-route.ts";
import { as, basic, mint } from "../../../test/credentials.ts";
import { pathVariants } from "../../../test/path-variants.ts";
import { statusAndCode } from "../../../test/problem.ts";
import { request, sendRaw, statusOf } from "../../../test/raw-http.ts";
import { ANN, AS_ANN, startService, startPrivate as startWith } from "../../../test/service.ts";
import { storeOfOnly } from "../../../test/store.ts";
import { createKeyLookup } from "../../credential/key.ts";
import { mintToken } from "../../credential/token.ts";
import { openMemory } from "../../storage/memory/store.ts";
import type { TodoStore } from "../../todo.ts";
import { Metrics } from "../observability/metrics.ts";
import { createService, type ServiceOptions } from "../service.ts";

const BEARER = 'Bearer realm="todo"';
const BOTH = `Basic realm="todo", charset="UTF-8", ${BEARER}`;
const INVALID = ', error="invalid_token"';
const CANARY = "canary-title";

async function startPrivate(options: Partial<ServiceOptions> = {}) {
  const service = startWith(openMemory(), options);
  return { ...service, key: await mint(service.store.keys, "phone") };
}

function forbiddenStore(calls: string[]): TodoStore {
  return storeOfOnly((operation) => () => {
    calls.push(operation);
    throw new Error(`${operation} was called`);
  });
}

const PATHS = [
  "/api",
  "/api/",
  "/api/todos",
  "/api/todos/1",
  "/api/todos/1/x",
  "/api/events",
  "/api/events/x",
  "/api/nowhere",
  "/api/openapi.json/x",
  "/api/whoami",
  "/api/whoami/x",
  "/admin/",
  "/admin/keys",
];

test("private mode rejects 900 variants of path, method and headers", async () => {
  const calls: string[] = [];
  await using service = startService({
    store: forbiddenStore(calls),
    access: { privateMode: true, basicFailures: 0 },
    credentials: { checkUser: () => false },
    network: { onLoopback: true },
  });
  const headers: readonly (readonly string[])[] = [
    [],
    ["Authorization: Bearer"],
    ["Authorization: Bearer undefined"],
    [`Authorization: Bearer ${mintToken()}`],
    ["Authorization: Basic"],
    ["Authorization: Basic Og=="],
    [`Authorization: ${basic("ann", mintToken())}`],
    [`Authorization: Bearer x`, `Authorization: ${basic("", "")}`],
    ["Authorization: Negotiate YII="],
    ["Origin: http://localhost:5173", "Access-Control-Request-Headers: authorization"],
    ["X-Original-URL: /livez", "X-Rewrite-URL: /livez", "X-Forwarded-Path: /livez"],
    ["X-HTTP-Method-Override: OPTIONS", "Sec-Fetch-Mode: navigate"],
    ["X-Remote-User: ann", "Remote-User: ann"],
    ["If-None-Match: *", "Range: bytes=0-9"],
    ["Cookie: Authorization=Bearer x", "Proxy-Authorization: Bearer x"],
    ["Upgrade: websocket", "Accept: text/html"],
  ];
  const methods = ["GET", "HEAD", "POST", "OPTIONS", "PATCH", "DELETE", "PUT", "TRACE"];
  const nearHealth = ["/livez/", "/readyz/x", "/LIVEZ", "/livez%2f", "/livez;", "/livez//", "/x/livez"];
  const targets = [...new Set([...PATHS.flatMap(pathVariants), ...nearHealth])];
  const variants = targets.map((target, index) => ({
    target,
    line: `${methods[index % methods.length]} ${target}`,
    sent: headers[index % headers.length] ?? [],
  }));
  expect(variants.length).toBeGreaterThan(900);

  const passed: unknown[] = [];
  const attempt = async ({ target, line, sent }: (typeof variants)[number]): Promise<void> => {
    const { text } = await sendRaw(service.port, request(line, sent));
    const status = statusOf(text);
    // The runtime itself rejects what is not HTTP, before any route.
    const isRejected = status === undefined || [400, 401, 403, 404, 421, 505].includes(status);
    if (!isRejected) passed.push([line, sent, text.slice(0, 200)]);
    if (PATHS.includes(target) && status !== 401 && status !== 403) passed.push([line, sent, status]);
  };
  for (let at = 0; at < variants.length; at += 32) {
    await Promise.all(variants.slice(at, at + 32).map(attempt));
  }
  expect(passed).toEqual([]);
  expect(calls).toEqual([]);
}, 120_000);

test.each<[what: string, authorization: string | undefined, error: string]>([
  ["no credential", undefined, ""],
  ["another scheme", "Digest username=ann", ""],
  ["an unknown token", `Bearer ${mintToken()}`, INVALID],
  ["a malformed token", "Bearer a b", INVALID],
  ["an unknown token as a password", basic("ann", mintToken()), INVALID],
  ["malformed Basic credentials", "Basic ???", INVALID],
  ["a wrong password", basic("ann", "wrong"), ""],
  ["an unknown user", basic("bob", ANN.password), ""],
])("private mode rejects %s with challenges that the client can use", async (_what, authorization, error) => {
  await using service = await startPrivate();
  const headers: Record<string, string> = authorization === undefined ? {} : { Authorization: authorization };
  for (const [sent, challenge] of [
    [{}, BOTH],
    [{ "Sec-Fetch-Mode": "navigate" }, BEARER],
    [{ "Sec-Fetch-Mode": "cors" }, BEARER],
  ] as const) {
    for (const path of ["/api/todos", "/api/nowhere"]) {
      const response = await service.send("GET", path, { headers: { ...headers, ...sent } });
      expect(response.headers.get("www-authenticate")).toBe(challenge + error);
      expect(response.headers.get("vary")).toBe("Origin, Sec-Fetch-Mode");
      expect(response.headers.get("cache-control")).toBe("no-store");
      expect(await statusAndCode(response)).toEqual([401, "unauthorized"]);
    }
  }
});

test("private mode checks no password and counts no failed login for a token", async () => {
  let checks = 0;
  const checkUser = () => ++checks > 0;
  await using service = await startPrivate({ credentials: { checkUser }, access: { basicFailures: 2 } });
  for (const token of [mintToken(), service.key.token, mintToken()])
    for (const path of ["/admin/", "/admin/keys", ...(token === service.key.token ? [] : ["/api/todos"])])
      expect(await service.outcome(`GET ${path}`, as(basic("ann", token)))).toBe("401 unauthorized");
  expect(checks).toBe(0);
  expect(await service.outcome("GET /admin/", as(AS_ANN))).toBe("200");
});

test("private mode counts failed logins of all paths together", async () => {
  await using service = await startPrivate({ access: { basicFailures: 3 } });
  const signIn = (body: object) => service.outcome("POST /api/session", {}, body);
  for (const path of ["/api/todos", "/admin/"])
    expect(await service.outcome(`GET ${path}`, as(basic("ann", "wrong")))).toBe("401 unauthorized");
  expect(await signIn({ ...ANN, password: "wrong" })).toBe("401 unauthorized");
  for (const path of ["/api/todos", "/api/nowhere", "/admin/"])
    expect(await service.outcome(`GET ${path}`, as(AS_ANN))).toBe("429 too_many_failures");
  expect(await signIn(ANN)).toBe("429 too_many_failures");
  expect(await service.outcome("GET /api/todos", as(basic("ann", service.key.token)))).toBe("200");
  expect(await signIn({ token: service.key.token })).toBe("201");
});
test("private mode accepts credentials over HTTPS or from this machine only", async () => {
  const store = openMemory();
  const { token } = await mint(store.keys, "ci");
  const serve = (options: Partial<ServiceOptions> = {}) =>
    createService({
      store,
      credentials: {
        lookupClient: createKeyLookup(store.keys, Date.now),
        checkUser: (_user, password) => password === ANN.password,
      },
      ...options,
      access: { privateMode: true, ...options.access },
    });
  const [service, lenient] = [serve(), serve({ access: { allowBasicOverHttp: true } })];
  const bearer = `Bearer ${token}`;
  const remote = { address: "192.0.2.1" };
  for (const { headers } of [as(bearer), as(basic("x", token)), as(AS_ANN), { headers: {} }]) {
    const proxied = { headers: { ...headers, "X-Forwarded-For": "192.0.2.1" } };
    for (const path of ["/api/todos", "/api/*", "/api"])
      for (const from of [{ ...remote, headers }, proxied]) {
        const response = await callRoute(service, path, from);
        expect(response.headers.get("www-authenticate")).toBeNull();
        expect(response.headers.get("cache-control")).toBe("no-store");
        expect(await statusAndCode(response)).toEqual([403, "https_required"]);
      }
    if (Object.keys(headers).length === 0) continue;
    expect((await callRoute(service, "/api/todos", { headers })).status).toBe(200);
    expect((await callRoute(lenient, "/api/todos", { ...remote, headers })).status).toBe(200);
  }
  const whoami = await callRoute(service, "/api/whoami", { ...remote, ...as(bearer) });
  expect(await statusAndCode(whoami)).toEqual([403, "https_required"]);
  expect((await callRoute(service, "/livez", remote)).status).toBe(200);
});
test("private mode responds to preflights of listed origins without a credential, and does not reveal the methods of each path", async () => {
  await using service = await startPrivate({ network: { corsOrigins: ["https://app.example"] } });
  const preflight = (origin: string) => ({
    headers: { Origin: origin, "Access-Control-Request-Method": "DELETE" },
  });
  for (const path of ["/api/todos", "/api/nowhere"]) {
    const { status, headers } = await service.send("OPTIONS", path, preflight("https://app.example"));
    expect(status).toBe(204);
    expect(headers.get("access-control-allow-methods")).toBe("GET, HEAD, POST, PATCH, DELETE, OPTIONS");
    expect((await service.send("OPTIONS", path, preflight("https://other.example"))).status).toBe(401);
  }
});

test("private mode checks the origin of a write with Basic credentials", async () => {
  await using service = await startPrivate({
    network: { corsOrigins: ["https://app.example"], onLoopback: true },
  });
  for (const [headers, isAccepted] of [
    [{}, true],
    [{ Origin: "https://app.example", "Sec-Fetch-Site": "cross-site" }, true],
    [{ Origin: "https://evil.example", "Sec-Fetch-Site": "cross-site" }, false],
  ] as const)
    for (const init of [as(AS_ANN, headers), as(basic("x", service.key.token), headers)]) {
      const { id } = await service.store.insert(CANARY);
      for (const [line, json] of [
        ["POST /api/todos", { title: CANARY }],
        [`PATCH /api/todos/${id}`, { done: true }],
        [`DELETE /api/todos/${id}`],
      ] as const)
        expect(await service.outcome(line, init, json)).toMatch(isAccepted ? /^20/ : "403 cross_site_write");
      expect((await service.store.get(id)) === undefined).toBe(isAccepted);
    }
});
test("private mode allows only reads with a token of the scope read, and writes without a scope", async () => {
  // Plain JavaScript may return any scope.
  for (const scope of ["read", "readonly", undefined]) {
    const client = JSON.parse(JSON.stringify({ name: "viewer", scope }));
    await using service = await startPrivate({ credentials: { lookupClient: () => client } });
    await service.store.insert(CANARY);
    for (const init of [as("Bearer viewer"), as(basic("x", mintToken()))]) {
      for (const line of ["GET /api/todos", "HEAD /api/todos", "OPTIONS /api/todos", "GET /api/events"])
        expect([line, await service.outcome(line, init)]).toEqual([line, expect.stringMatching(/^20/)]);
      if (scope === undefined) {
        expect(await service.outcome("POST /api/todos", init, { title: CANARY })).toBe("201");
        continue;
      }
      for (const line of [
        ...["POST /api/todos", "PATCH /api/todos/1", "DELETE /api/todos/1", "DELETE /api/nowhere"],
        "PUT /api/todos",
      ])
        expect([line, await service.outcome(line, init)]).toEqual([line, "403 insufficient_scope"]);
      const { headers } = await service.send("POST", "/api/todos", init);
      const challenge = 'Bearer realm="todo", error="insufficient_scope", scope="write"';
      expect(headers.get("www-authenticate")).toBe(challenge);
    }
    expect(await service.outcome("GET /api/whoami", as("Bearer viewer"))).toBe("200");
    expect(service.store.count).toBe(scope === undefined ? 3 : 1);
  }
});
test("private mode keeps responses out of all caches, and responds with 304 only to authenticated requests", async () => {
  await using service = await startPrivate();
  const bearer = `Bearer ${service.key.token}`;
  await service.store.insert(CANARY);
  for (const path of ["/api/todos", "/api/todos?limit=1", "/api/todos/1", "/api/nowhere", "/api/session"])
    for (const method of ["GET", "HEAD", "POST"]) {
      const { headers } = await service.send(method, path, as(bearer));
      expect([method, path, headers.get("cache-control")]).toEqual([method, path, "no-store"]);
    }
  const events = await service.send("GET", "/api/events", as(bearer));
  expect(events.headers.get("cache-control")).toBe("no-store, no-transform");
  await events.body?.cancel();
  const headers = { "If-None-Match": "*" };
  for (const rejected of [{ headers }, as("Bearer x", headers)])
    expect((await service.send("GET", "/api/todos", rejected)).status).toBe(401);
  const revalidated = await service.send("GET", "/api/todos", as(bearer, headers));
  expect([revalidated.status, revalidated.headers.get("cache-control")]).toEqual([304, "no-store"]);
});

test("an idempotency key in private mode belongs to the client or the user that sent it", async () => {
  await using service = await startPrivate();
  const post = async (credential: string, key: string) => {
    const init = as(credential, { "Idempotency-Key": key });
    const response = await service.sendJson("POST", "/api/todos", { title: CANARY }, init);
    return response.headers.get("location") ?? response.status;
  };
  const bearer = `Bearer ${service.key.token}`;
  // A token as a password is the same client.
  for (const [credential, location] of [
    [bearer, "todos/1"],
    [AS_ANN, "todos/2"],
    [basic("", service.key.token), "todos/1"],
    [AS_ANN, "todos/2"],
  ] as const)
    expect(await post(credential, "same")).toBe(location);
  expect(await post(AS_ANN, "x".repeat(256))).toBe(400);
});

test("the log and the metrics of private mode name the API key or the user of each write and of each rejected one, never a token", async () => {
  await using service = await startPrivate();
  const viewer = await mint(service.store.keys, "viewer", { scope: "read" });
  const { key, token } = service.key;
  const evil = { Origin: "https://evil.example" };
  const body = { title: CANARY };
  const trace = "ab".repeat(16);
  const traced = as(`Bearer ${token}`, { traceparent: `00-${trace}-${"cd".repeat(8)}-01` });
  const created = await service.sendJson("POST", "/api/todos", body, traced);
  await service.sendJson("PATCH", "/api/todos/1", { done: true }, as(basic("x", token)));
  await service.send("DELETE", "/api/todos/1", as(AS_ANN));
  await service.send("DELETE", "/api/todos/1", as(AS_ANN));
  await service.send("GET", "/api/todos", as(AS_ANN));
  await service.sendJson("POST", "/api/todos", body, as(AS_ANN, evil));
  await service.sendJson("POST", "/api/todos", body, as(basic("x", token), evil));
  await service.send("DELETE", "/api/nowhere", as(basic("x", viewer.token), evil));
  const shown = service.lines.map(({ level, message, fields }) => ({ level, message, ...fields }));
  const [phone, reader] = [
    { client: "phone", key: key.id },
    { client: "viewer", key: viewer.key.id },
  ];
  const written = { level: "info", message: "write", id: expect.any(String) };
  const refused = { level: "warn", message: "write refused" };
  const foreign = { ...refused, method: "POST", route: "/api/todos", reason: "cross_site_write" };
  expect(JSON.parse(JSON.stringify(shown))).toEqual([
    {
      ...written,
      id: created.headers.get("X-Request-Id"),
      method: "POST",
      todo: "1",
      ...phone,
      status: 201,
      trace,
    },
    { ...written, method: "PATCH", todo: "1", ...phone, status: 200 },
    { ...written, method: "DELETE", todo: "1", user: "ann", status: 204 },
    { ...refused, method: "DELETE", route: "/api/todos/:id", user: "ann", reason: "todo_not_found" },
    { ...foreign, user: "ann" },
    { ...foreign, ...phone },
    { ...refused, method: "DELETE", route: "/api/*", ...reader, reason: "insufficient_scope" },
  ]);
  for (const secret of [token, viewer.token, ANN.password, CANARY])
    expect(service.logText()).not.toContain(secret);
  expect(service.logText()).not.toContain('"x"');
});

test("the log and the metrics of private mode count authentications, also of writes that are refused later", async () => {
  const metrics = new Metrics({ version: "1", runtime: "bun" });
  await using service = await startPrivate({ observer: metrics.observe(openMemory()) });
  await service.send("GET", "/api/nowhere");
  await service.send("DELETE", "/api/todos/1", as(AS_ANN, { Origin: "https://evil.example" }));
  const text = await metrics.text();
  for (const [outcome, count] of [
    ["passed", 1],
    ["absent", 1],
    ["wrong", 0],
  ] as const)
    expect(text).toContain(`todo_authentications_total{surface="private",outcome="${outcome}"} ${count}\n`);
});

test("without private mode, a token is an ordinary password, so a wrong one counts as a failed login", async () => {
  await using service = startService({ access: { basicFailures: 1 } });
  for (const status of [401, 429])
    expect((await service.send("GET", "/admin/", as(basic("ann", mintToken())))).status).toBe(status);
});
