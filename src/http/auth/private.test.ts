import { describe, expect, test } from "bun:test";
import { callRoute } from "../../../test/call-route.ts";
import { as, basic, mint } from "../../../test/credentials.ts";
import { capturingLog } from "../../../test/log.ts";
import { pathVariants } from "../../../test/path-variants.ts";
import { ANN, AS_ANN, startPrivate as startWith } from "../../../test/private-service.ts";
import { statusAndCode } from "../../../test/problem.ts";
import { request, sendRaw, statusOf } from "../../../test/raw-http.ts";
import { startService } from "../../../test/service.ts";
import { storeOfOnly } from "../../../test/store.ts";
import { createKeyLookup, rotateKey } from "../../credential/key.ts";
import { mintToken } from "../../credential/token.ts";
import { openMemory } from "../../storage/memory/store.ts";
import type { TodoStore } from "../../todo.ts";
import { Metrics } from "../observability/metrics.ts";
import { createService, type ServiceOptions } from "../service.ts";

const BEARER = 'Bearer realm="todo"';
const BOTH = `Basic realm="todo", charset="UTF-8", ${BEARER}`;
const INVALID = ', error="invalid_token"';
const CANARY = "canary-title";

/** Starts a service in private mode with the user ann and an API key. */
async function startPrivate(options: Partial<ServiceOptions> = {}) {
  const service = startWith(openMemory(), options);
  return { ...service, key: await mint(service.store.keys, "phone") };
}

/** Returns a store whose every call is noted and fails. */
function forbiddenStore(calls: string[]): TodoStore {
  return storeOfOnly((operation) => () => {
    calls.push(operation);
    throw new Error(`${operation} was called`);
  });
}

/** The paths of the pages. They contain no data. */
const PUBLIC_PATHS = ["/", "/docs", "/service-worker.js", "/favicon.ico", "/api/openapi.json", "/livez"];
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
];

describe("private mode", () => {
  test("rejects 600 variants of path, method and headers", async () => {
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
    expect(variants.length).toBeGreaterThan(600);

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

  test.each(["anyone", ""])("accepts a token as the password of the user %j", async (user) => {
    await using service = await startPrivate();
    const init = as(basic(user, service.key.token));
    expect((await service.sendJson("POST", "/api/todos", { title: CANARY }, init)).status).toBe(201);
    expect((await service.send("GET", "/api/todos/1", init)).status).toBe(200);
    const nowhere = await service.send("GET", "/api/nowhere", init);
    expect(await statusAndCode(nowhere)).toEqual([404, "route_not_found"]);
  });

  test.each<[what: string, authorization: string | undefined, error: string]>([
    ["no credential", undefined, ""],
    ["another scheme", "Digest username=ann", ""],
    ["an unknown token", `Bearer ${mintToken()}`, INVALID],
    ["a malformed token", "Bearer a b", INVALID],
    ["an unknown token as a password", basic("ann", mintToken()), INVALID],
    ["malformed Basic credentials", "Basic ???", INVALID],
    ["a wrong password", basic("ann", "wrong"), ""],
    ["an unknown user", basic("bob", ANN.password), ""],
  ])("rejects %s with the challenges that the client can use", async (_what, authorization, error) => {
    await using service = await startPrivate();
    const headers: Record<string, string> =
      authorization === undefined ? {} : { Authorization: authorization };
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

  test("rejects requests before it considers the path, the method or the body", async () => {
    const calls: string[] = [];
    await using service = startService({ store: forbiddenStore(calls), access: { privateMode: true } });
    const headers = { Authorization: "Bearer x", "Content-Type": "application/json" };
    for (const [method, path, body] of [
      ["PUT", "/api/whoami"],
      ["GET", "/admin/no-such"],
      ["POST", "/api/todos", '{"title":"valid"}'],
      ["POST", "/api/todos", "{"],
      ["PATCH", "/api/todos/abc", "{}"],
    ] as const) {
      const init = body === undefined ? { headers } : { headers, body };
      expect([method, path, (await service.send(method, path, init)).status]).toEqual([method, path, 401]);
    }
    expect(calls).toEqual([]);
  });

  test("keeps the guards, realms and challenges of /api/whoami and /admin", async () => {
    await using service = await startPrivate();
    const { token } = service.key;
    const whoami = await service.send("GET", "/api/whoami");
    expect(whoami.headers.get("www-authenticate")).toBe('Bearer realm="todo api"');
    expect((await service.send("GET", "/api/whoami", as(AS_ANN))).status).toBe(401);
    expect((await service.send("GET", "/api/whoami", as(basic("x", token)))).status).toBe(401);
    expect(await (await service.send("GET", "/api/whoami", as(`Bearer ${token}`))).text()).toBe("phone");
    const admin = await service.send("GET", "/admin/");
    expect(admin.headers.get("www-authenticate")).toBe('Basic realm="todo admin", charset="UTF-8"');
    expect((await service.send("GET", "/admin/", as(`Bearer ${token}`))).status).toBe(401);
    expect(await (await service.send("GET", "/admin/", as(AS_ANN))).text()).toBe("Hello, ann!");
  });

  test("checks no password and counts no failed login for a token", async () => {
    let checks = 0;
    const checkUser = () => ++checks > 0;
    await using service = await startPrivate({ credentials: { checkUser }, access: { basicFailures: 2 } });
    for (const token of [mintToken(), service.key.token, mintToken()])
      for (const path of ["/admin/", "/admin/keys", ...(token === service.key.token ? [] : ["/api/todos"])]) {
        const response = await service.send("GET", path, as(basic("ann", token)));
        expect(await statusAndCode(response)).toEqual([401, "unauthorized"]);
      }
    expect(checks).toBe(0);
    expect((await service.send("GET", "/admin/", as(AS_ANN))).status).toBe(200);
  });

  test("counts failed logins of all paths together", async () => {
    await using service = await startPrivate({ access: { basicFailures: 2 } });
    for (const path of ["/api/todos", "/admin/"])
      expect((await service.send("GET", path, as(basic("ann", "wrong")))).status).toBe(401);
    for (const path of ["/api/todos", "/api/nowhere", "/admin/"]) {
      const response = await service.send("GET", path, as(AS_ANN));
      expect(await statusAndCode(response)).toEqual([429, "too_many_failures"]);
    }
    const token = as(basic("ann", service.key.token));
    expect((await service.send("GET", "/api/todos", token)).status).toBe(200);
  });

  test("accepts credentials over HTTPS or from this machine only", async () => {
    const store = openMemory();
    const { token } = await mint(store.keys, "ci");
    const options: ServiceOptions = {
      store,
      credentials: {
        lookupClient: createKeyLookup(store.keys, Date.now),
        checkUser: (_user, password) => password === ANN.password,
      },
      access: { privateMode: true },
    };
    const credentials = [`Bearer ${token}`, basic("x", token), AS_ANN];
    const service = createService(options);
    const remote = { address: "192.0.2.1" };
    for (const path of ["/api/todos", "/api/*", "/api"]) {
      for (const { headers } of [...credentials.map((each) => as(each)), { headers: {} }]) {
        for (const response of [
          await callRoute(service, path, { ...remote, headers }),
          await callRoute(service, path, { headers: { ...headers, "X-Forwarded-For": "192.0.2.1" } }),
        ]) {
          expect(response.headers.get("www-authenticate")).toBeNull();
          expect(response.headers.get("cache-control")).toBe("no-store");
          expect(await statusAndCode(response)).toEqual([403, "https_required"]);
        }
      }
    }
    const whoami = await callRoute(service, "/api/whoami", { ...remote, ...as(`Bearer ${token}`) });
    expect(await statusAndCode(whoami)).toEqual([403, "https_required"]);
    expect((await callRoute(service, "/livez", remote)).status).toBe(200);

    const lenient = createService({ ...options, access: { ...options.access, allowBasicOverHttp: true } });
    const proxied = createService({ ...options, network: { trustedProxies: ["192.0.2.1"] } });
    const overTls = { "X-Forwarded-For": "198.51.100.7", "X-Forwarded-Proto": "https" };
    for (const credential of credentials)
      for (const response of [
        await callRoute(service, "/api/todos", as(credential)),
        await callRoute(lenient, "/api/todos", { ...remote, ...as(credential) }),
        await callRoute(proxied, "/api/todos", { ...remote, ...as(credential, overTls) }),
      ])
        expect(response.status).toBe(200);
  });

  test("accepts credentials as tailscale serve forwards them, over HTTPS and to a listed host", async () => {
    const network = { onLoopback: true, trustedProxies: ["127.0.0.1"], allowedHosts: ["pi.tail1234.ts.net"] };
    await using service = await startPrivate({ network });
    const host = { Host: "pi.tail1234.ts.net", "X-Forwarded-Host": "pi.tail1234.ts.net" };
    const forwarded = { ...host, "X-Forwarded-For": "100.101.102.103" };
    const https = { ...forwarded, "X-Forwarded-Proto": "https" };
    const authorization = { Authorization: `Bearer ${service.key.token}` };
    for (const [headers, status] of [
      [{ ...https, ...authorization }, 200],
      [{ ...https, "Tailscale-User-Login": "ann@example.com" }, 401],
      [{ ...forwarded, ...authorization }, 403],
      [{ ...https, ...authorization, Forwarded: "proto=https" }, 403],
      [{ ...https, ...authorization, Host: "other.tail1234.ts.net" }, 421],
      [authorization, 403],
    ] as const) {
      const response = await service.send("GET", "/api/todos", { headers });
      await response.body?.cancel();
      expect([headers, response.status]).toEqual([headers, status]);
    }
  });

  test("responds to preflights of listed origins without a credential, and does not reveal the methods of each path", async () => {
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

  test.each<[what: string, headers: Readonly<Record<string, string>>, isAccepted: boolean]>([
    ["a program", {}, true],
    ["a listed origin", { Origin: "https://app.example", "Sec-Fetch-Site": "cross-site" }, true],
    ["another site", { Origin: "https://evil.example", "Sec-Fetch-Site": "cross-site" }, false],
  ])("checks the origin of a write with Basic credentials by %s", async (_what, headers, isAccepted) => {
    await using service = await startPrivate({
      network: { corsOrigins: ["https://app.example"], onLoopback: true },
    });
    for (const credential of [AS_ANN, basic("x", service.key.token)]) {
      const { id } = await service.store.insert(CANARY);
      const writes = [
        await service.sendJson("POST", "/api/todos", { title: CANARY }, as(credential, headers)),
        await service.sendJson("PATCH", `/api/todos/${id}`, { done: true }, as(credential, headers)),
        await service.send("DELETE", `/api/todos/${id}`, as(credential, headers)),
      ];
      for (const write of writes) {
        if (isAccepted) expect(write.status).toBeLessThan(300);
        else expect(await statusAndCode(write)).toEqual([403, "cross_site_write"]);
      }
      expect((await service.store.get(id)) === undefined).toBe(isAccepted);
    }
  });

  test("allows only reads with a token of the scope read", async () => {
    for (const scope of ["read", "readonly"]) {
      // Plain JavaScript may return any scope.
      const client = JSON.parse(JSON.stringify({ name: "viewer", scope }));
      await using service = await startPrivate({ credentials: { lookupClient: () => client } });
      await service.store.insert(CANARY);
      for (const credential of ["Bearer viewer", basic("x", mintToken())]) {
        const init = as(credential);
        for (const method of ["GET", "HEAD", "OPTIONS"])
          expect((await service.send(method, "/api/todos", init)).ok).toBe(true);
        expect((await service.send("GET", "/api/todos/1", init)).status).toBe(200);
        const events = await service.send("GET", "/api/events", init);
        expect(events.status).toBe(200);
        await events.body?.cancel();
        for (const [method, path] of [
          ["POST", "/api/todos"],
          ["PATCH", "/api/todos/1"],
          ["DELETE", "/api/todos/1"],
          ["DELETE", "/api/nowhere"],
          ["PUT", "/api/todos"],
        ] as const) {
          const response = await service.send(method, path, init);
          expect(response.headers.get("www-authenticate")).toBe(
            'Bearer realm="todo", error="insufficient_scope", scope="write"',
          );
          expect(await statusAndCode(response)).toEqual([403, "insufficient_scope"]);
        }
      }
      expect((await service.send("GET", "/api/whoami", as("Bearer viewer"))).status).toBe(200);
      expect(service.store.count).toBe(1);
    }
  });

  test("allows writes of clients without a scope", async () => {
    await using service = await startPrivate({ credentials: { lookupClient: () => ({ name: "ci" }) } });
    const post = await service.sendJson("POST", "/api/todos", { title: CANARY }, as("Bearer x"));
    expect(post.status).toBe(201);
  });

  test("keeps responses out of all caches", async () => {
    await using service = await startPrivate();
    const init = as(`Bearer ${service.key.token}`);
    await service.store.insert(CANARY);
    for (const path of ["/api/todos", "/api/todos?limit=1", "/api/todos/1", "/api/nowhere", "/api/session"])
      for (const method of ["GET", "HEAD", "POST"]) {
        const { headers } = await service.send(method, path, init);
        expect([method, path, headers.get("cache-control")]).toEqual([method, path, "no-store"]);
      }
    const events = await service.send("GET", "/api/events", init);
    expect(events.headers.get("cache-control")).toBe("no-store, no-transform");
    await events.body?.cancel();
  });

  test("responds with 304 only to authenticated requests", async () => {
    await using service = await startPrivate();
    const credential = `Bearer ${service.key.token}`;
    const etag = (await service.send("GET", "/api/todos", as(credential))).headers.get("etag") ?? "";
    for (const tag of [etag, "*"]) {
      const headers = { "If-None-Match": tag };
      for (const rejected of [{ headers }, as("Bearer x", headers)])
        expect((await service.send("GET", "/api/todos", rejected)).status).toBe(401);
      const revalidated = await service.send("GET", "/api/todos", as(credential, headers));
      expect(revalidated.status).toBe(304);
      expect(revalidated.headers.get("cache-control")).toBe("no-store");
    }
  });
});

describe("an idempotency key in private mode", () => {
  test("belongs to the client or the user that sent it", async () => {
    await using service = await startPrivate({ credentials: { checkUser: () => true } });
    const laptop = await mint(service.store.keys, "laptop");
    const credentials = [
      `Bearer ${service.key.token}`,
      `Bearer ${laptop.token}`,
      basic("phone", "password"),
      basic("laptop", "password"),
    ];
    const post = (credential: string, key: string) =>
      service.sendJson("POST", "/api/todos", { title: CANARY }, as(credential, { "Idempotency-Key": key }));
    for (const key of ["same", "x".repeat(255)]) {
      const locations = new Set<string | null>();
      for (const credential of credentials) {
        const first = await post(credential, key);
        const second = await post(credential, key);
        expect([first.status, second.status]).toEqual([201, 201]);
        expect(second.headers.get("location")).toBe(first.headers.get("location"));
        locations.add(first.headers.get("location"));
      }
      expect(locations.size).toBe(credentials.length);
    }
    // A token as a password is the same client.
    await post(basic("anyone", service.key.token), "same");
    expect(service.store.count).toBe(2 * credentials.length);
    expect((await post(AS_ANN, "x".repeat(256))).status).toBe(400);
  });

  test("belongs to the same API key after a rotation", async () => {
    await using service = await startPrivate();
    const post = (token: string) =>
      service.sendJson(
        "POST",
        "/api/todos",
        { title: CANARY },
        as(`Bearer ${token}`, { "Idempotency-Key": "one" }),
      );
    const before = await post(service.key.token);
    const successor = await rotateKey(service.store.keys, service.key.key.id, 0, Date.now());
    const after = await post(successor?.token ?? "");
    expect(after.headers.get("location")).toBe(before.headers.get("location"));
    expect(service.store.count).toBe(1);
  });
});

describe("the log and the metrics of private mode", () => {
  test("name the API key or the user of each write, never a token", async () => {
    const { log, lines, text } = capturingLog();
    await using service = await startPrivate({ log });
    const { key, token } = service.key;
    await service.sendJson("POST", "/api/todos", { title: CANARY }, as(`Bearer ${token}`));
    await service.sendJson("PATCH", "/api/todos/1", { done: true }, as(basic("x", token)));
    await service.send("DELETE", "/api/todos/1", as(AS_ANN));
    await service.send("DELETE", "/api/todos/1", as(AS_ANN));
    await service.send("GET", "/api/todos", as(AS_ANN));
    const shown = lines.map(({ level, message, fields }) => ({ level, message, ...fields }));
    const ci = { client: key.name, key: key.id };
    const id = expect.any(String);
    const written = { level: "info", message: "write", id };
    expect(JSON.parse(JSON.stringify(shown))).toEqual([
      { ...written, method: "POST", todo: "1", ...ci, status: 201 },
      { ...written, method: "PATCH", todo: "1", ...ci, status: 200 },
      { ...written, method: "DELETE", todo: "1", user: "ann", status: 204 },
      {
        level: "warn",
        message: "write refused",
        method: "DELETE",
        route: "/api/todos/:id",
        user: "ann",
        reason: "todo_not_found",
      },
    ]);
    for (const secret of [token, ANN.password, CANARY, "x"]) expect(text()).not.toContain(`"${secret}"`);
  });

  test("have the request id of each write, which its response also has", async () => {
    const { log, lines } = capturingLog();
    await using service = await startPrivate({ log, accessLog: true });
    const headers = as(AS_ANN, { traceparent: `00-${"ab".repeat(16)}-${"cd".repeat(8)}-01` });
    const response = await service.sendJson("POST", "/api/todos", { title: CANARY }, headers);
    const id = response.headers.get("X-Request-Id");
    expect(lines).toMatchObject([
      { message: "write", fields: { id, trace: "ab".repeat(16) } },
      {
        message: "request",
        fields: { id, address: "127.0.0.1", path: "/api/todos", trace: "ab".repeat(16) },
      },
    ]);
  });

  test("name the API key or the user of a write that its scope or its origin forbids", async () => {
    const { log, lines, text } = capturingLog();
    await using service = await startPrivate({ log });
    const viewer = await mint(service.store.keys, "viewer", { scope: "read" });
    const { key, token } = service.key;
    const evil = { Origin: "https://evil.example" };
    const body = { title: CANARY };
    await service.sendJson("POST", "/api/todos", body, as(AS_ANN, evil));
    await service.sendJson("POST", "/api/todos", body, as(basic("x", token), evil));
    await service.send("DELETE", "/api/todos/1", as(`Bearer ${viewer.token}`));
    await service.send("DELETE", "/api/nowhere", as(basic("x", viewer.token), evil));
    const refused = (method: string, route: string, fields: object) => [
      "warn",
      "write refused",
      { method, route, ...fields },
    ];
    expect(lines.map(({ level, message, fields }) => [level, message, fields])).toEqual([
      refused("POST", "/api/todos", { user: "ann", reason: "cross_site_write" }),
      refused("POST", "/api/todos", { client: key.name, key: key.id, reason: "cross_site_write" }),
      refused("DELETE", "/api/todos/:id", {
        client: "viewer",
        key: viewer.key.id,
        reason: "insufficient_scope",
      }),
      refused("DELETE", "/api/*", { client: "viewer", key: viewer.key.id, reason: "insufficient_scope" }),
    ]);
    for (const secret of [token, viewer.token, ANN.password, CANARY])
      expect(text()).not.toContain(`${secret}`);
  });

  test("count authentications, also of writes that are refused later", async () => {
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
});

test("without private mode, nothing is guarded and no header changes", async () => {
  await using service = startService({ credentials: { checkUser: () => false } });
  for (const path of [...PUBLIC_PATHS, "/api/todos", "/api/todos/1", "/api/events", "/api/nowhere"]) {
    for (const headers of [{}, { Authorization: "Bearer x" }, { Authorization: basic("x", mintToken()) }]) {
      const response = await service.send("GET", path, { headers });
      expect([path, response.status]).toEqual([path, /nowhere|\/1$/.test(path) ? 404 : 200]);
      expect(response.headers.get("www-authenticate")).toBeNull();
      expect(response.headers.get("cache-control") ?? "").not.toMatch(/no-store$/);
      await response.body?.cancel();
    }
  }
  // A token is an ordinary password there, so a wrong one counts as a failed login.
  await using strict = startService({
    credentials: { checkUser: () => false },
    access: { basicFailures: 1 },
  });
  const init = as(basic("ann", mintToken()));
  expect((await strict.send("GET", "/admin/", init)).status).toBe(401);
  expect((await strict.send("GET", "/admin/", init)).status).toBe(429);
});
