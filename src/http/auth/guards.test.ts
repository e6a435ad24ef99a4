import { describe, expect, test } from "bun:test";
import { callRoute } from "../../../test/call-route.ts";
import { as, basic, mint } from "../../../test/credentials.ts";
import { hurry } from "../../../test/hurry.ts";
import { capturingLog } from "../../../test/log.ts";
import { statusAndCode } from "../../../test/problem.ts";
import { request, sendRaw, statusOf } from "../../../test/raw-http.ts";
import { pathIn, startService } from "../../../test/service.ts";
import { createClientLookup } from "../../credential/client.ts";
import { createKeyLookup } from "../../credential/key.ts";
import { hashToken, mintToken } from "../../credential/token.ts";
import { type CheckUser, createFixedUserCheck } from "../../credential/user.ts";
import { ServiceError } from "../../error.ts";
import { openMemory } from "../../storage/memory/store.ts";
import { createService, type ServiceOptions } from "../service.ts";

const [TOKEN, NAME] = ["s3cret/token+~.==", "Zoë 😀"];
const WITH_TOKEN = as(`Bearer ${TOKEN}`);
const lookupClient = createClientLookup([{ client: { name: NAME }, tokenHash: hashToken(TOKEN) }]);

const [USER, PASSWORD] = ["admin", "s3cret: pässword~~??>"];
const asUser = (user: string, password: string) => as(basic(user, password));
const AUTHORIZED = asUser(USER, PASSWORD);
const checkUser = createFixedUserCheck(USER, PASSWORD);
const credentials = { lookupClient, checkUser };

const createWithUser = (options: Partial<ServiceOptions> = {}) =>
  createService({ store: openMemory(), credentials: { checkUser }, ...options });

/** What a guarded path does with valid credentials. */
interface Surface {
  readonly path: string;
  readonly authorization: string;
  readonly shown: string;
  readonly challenge: string;
  /** The challenge after a malformed or an unknown credential. */
  readonly invalid: string;
  /** Without a trailing slash. It responds to GET with this outcome. */
  readonly root: readonly [path: string, outcome: string];
}

function errorThrown(error: Error): never {
  throw error;
}

const BEARER = 'Bearer realm="todo api"';
const BASIC = 'Basic realm="todo admin", charset="UTF-8"';

const SURFACES: readonly Surface[] = [
  {
    path: "/api/whoami",
    authorization: WITH_TOKEN.headers.Authorization,
    shown: NAME,
    challenge: BEARER,
    invalid: `${BEARER}, error="invalid_token"`,
    root: ["/api/whoami", "200"],
  },
  {
    path: "/admin/",
    authorization: AUTHORIZED.headers.Authorization,
    shown: "Hello, admin!",
    challenge: BASIC,
    invalid: BASIC,
    root: ["/admin", "308"],
  },
];

describe.each(SURFACES)("the guard of $path", ({ path, authorization, shown, challenge, invalid, root }) => {
  const RIGHT = as(authorization);
  const header = `Authorization: ${authorization}`;

  test.each<[what: string, expected: string, headers: readonly string[]]>([
    ["no header", challenge, []],
    ["an empty header", challenge, ["Authorization:"]],
    ["credentials in another header", challenge, [`Proxy-${header}`, `Cookie: ${header.replace(": ", "=")}`]],
    ["two identical headers", invalid, [header, header]],
    ["two headers, the first with another scheme", challenge, ["Authorization: Digest x", header]],
  ])("rejects %s", async (_what, expected, headers) => {
    await using service = startService({ credentials });
    const { text } = await sendRaw(service.port, request(`GET ${path}`, headers));
    expect(statusOf(text)).toBe(401);
    expect(/^www-authenticate: (.*)\r$/im.exec(text)?.[1]).toBe(expected);
    expect(text).toMatch(/^cache-control: no-store\r$/im);
    expect(text).not.toContain(shown);
  });

  test("covers every method and every path below", async () => {
    await using service = startService({ credentials });
    const [bare, found] = root;
    const cases = [
      [path, ["GET"], "200"],
      [bare, ["GET"], found],
      ...["/x", "/x/y", "//"].map(
        (rest) => [bare + rest, ["GET", "POST", "PUT", "OPTIONS"], "404 route_not_found"] as const,
      ),
    ] as const;
    for (const [one, methods, expected] of cases)
      for (const method of methods) {
        const refused = await service.send(method, one);
        expect([method, one, refused.status]).toEqual([method, one, 401]);
        expect(refused.headers.get("www-authenticate")).toBe(challenge);
        const allowed = await service.send(method, one, RIGHT);
        expect([method, one, (await statusAndCode(allowed)).join(" ")]).toEqual([method, one, expected]);
        for (const { headers } of [refused, allowed]) expect(headers.get("cache-control")).toBe("no-store");
        if (allowed.status === 200) expect(await allowed.text()).toBe(shown);
        expect(pathIn(allowed.headers.get("location"), allowed)).toBe(allowed.status === 308 ? path : null);
      }
  });

  const cause = new Error("s3cret: password of the database");
  const unavailable = new ServiceError("credentials_unavailable", { detail: "s3cret" });
  test.each<[what: string, fail: () => Promise<never>]>([
    ["throws", () => errorThrown(cause)],
    ["rejects", () => Promise.reject(cause)],
    ["rejects with undefined", () => Promise.reject(undefined)],
    ["rejects with a ServiceError", () => Promise.reject(unavailable)],
  ])("responds with 503 without details, never with 401, if the check %s", async (_what, fail) => {
    await using service = startService({ credentials: { lookupClient: fail, checkUser: fail } });
    for (const one of [path, root[0], `${root[0]}/x`]) {
      const response = await service.send("GET", one, RIGHT);
      expect(response.headers.get("retry-after")).toBe("5");
      expect(response.headers.get("www-authenticate")).toBeNull();
      expect(response.headers.get("cache-control")).toBe("no-store");
      expect(await statusAndCode(response)).toEqual([503, "credentials_unavailable"]);
    }
    expect(new Set(service.lines.map(({ level }) => level))).toEqual(new Set(["error"]));
  });

  test("rejects all credentials if nothing is configured", async () => {
    await using service = startService();
    for (const init of [RIGHT, as(basic("", "")), {}])
      expect(await service.outcome(`GET ${path}`, init)).toBe("401 unauthorized");
  });
});

const minted = mintToken();
const typo = minted.slice(0, -1) + (minted.endsWith("0") ? "1" : "0");
const wrong = basic("s3cret-user", "s3cret");

test.each<[surface: string, path: string, reason: string | undefined, authorization: string | undefined]>([
  ["bearer", "/api/whoami", undefined, undefined],
  ["bearer", "/api/whoami", undefined, wrong],
  ["bearer", "/api/whoami", "unknown", `Bearer ${minted}`],
  ["bearer", "/api/whoami", "mistyped", `Bearer ${typo}`],
  ["bearer", "/api/whoami", "malformed", "Bearer s3cret s3cret"],
  ["basic", "/admin/", undefined, undefined],
  ["basic", "/admin/", undefined, "Bearer s3cret"],
  ["basic", "/admin/", "wrong", wrong],
  ["basic", "/admin/", "malformed", `${wrong}, ${wrong}`],
  ["private", "/api/todos", "unknown", `Bearer ${minted}`],
  ["private", "/api/todos", "malformed", "Bearer s3cret s3cret"],
  ["private", "/api/todos", "wrong", wrong],
  ["basic", "/admin/", "token", basic("ann", minted)],
])("the log of a rejection on %s at %s has the reason %s, never the credentials (#%#)", async (...row) => {
  const [surface, path, reason, authorization] = row;
  const access = { privateMode: surface === "private" || reason === "token" };
  await using service = startService({ credentials, access, accessLog: true });
  const init = authorization === undefined ? {} : as(authorization);
  expect((await service.send("GET", path, init)).status).toBe(401);
  const refusals = service.lines.filter(({ message }) => message === "credential refused");
  const fields = { surface, reason, address: "127.0.0.1" };
  expect(refusals).toEqual(
    reason === undefined ? [] : [{ level: "warn", fields, message: "credential refused" }],
  );
  const encoded = Buffer.from("s3cret").toString("base64").slice(0, 7);
  for (const secret of ["s3cret", encoded, "todo_"]) expect(service.logText()).not.toContain(secret);
});

test("GET /admin/ passes the user name and the password to a check function, which may return a promise", async () => {
  const calls: unknown[][] = [];
  const checkUser: CheckUser = async (...call) => calls.push(call.slice(0, 2)) === 1;
  await using service = startService({ credentials: { checkUser } });
  expect(await (await service.send("GET", "/admin/", asUser("ann", "1:2"))).text()).toBe("Hello, ann!");
  expect(await service.outcome("GET /admin/", asUser("", ""))).toBe("401 unauthorized");
  expect(calls).toEqual([
    ["ann", "1:2"],
    ["", ""],
  ]);
});

test("GET /admin/ sends the configured realm as a quoted string", async () => {
  await using service = startService({ access: { realm: 'the "inner" \\ circle' } });
  const { headers } = await service.send("GET", "/admin/");
  expect(headers.get("www-authenticate")).toBe('Basic realm="the \\"inner\\" \\\\ circle", charset="UTF-8"');
});

test.each(["1", '"true"', "{}", "[]"])("a password check that returns %s rejects it", async (result) => {
  await using service = startService({ credentials: { checkUser: () => JSON.parse(result) } });
  expect((await service.send("GET", "/admin/", AUTHORIZED)).status).toBe(401);
});

test("the check of a password receives the client's network, also off loopback if allowBasicOverHttp is true", async () => {
  const networks: unknown[] = [];
  const checkUser: CheckUser = (_user, _password, network) => networks.push(network) > 0;
  const service = createWithUser({ credentials: { checkUser }, access: { allowBasicOverHttp: true } });
  for (const address of ["2001:db8::1", "192.0.2.7"]) {
    const headers = { ...AUTHORIZED.headers, "X-Forwarded-For": "10.0.0.5" };
    expect((await callRoute(service, "/admin/", { address, headers })).status).toBe(200);
  }
  expect(networks).toEqual(["2001:db8:0:0::/64", "192.0.2.7"]);
});

test("Basic over plain HTTP is rejected off loopback, and on loopback behind a proxy", async () => {
  const service = createWithUser();
  for (const from of [
    { address: "10.0.0.5" },
    { address: undefined },
    { address: "127.0.0.1", proxied: { "X-Forwarded-For": "127.0.0.1" } },
  ])
    for (const path of ["/admin", "/admin/", "/admin/*"])
      for (const sent of [{}, AUTHORIZED.headers, asUser(USER, "wrong").headers]) {
        const response = await callRoute(service, path, { ...from, headers: { ...sent, ...from.proxied } });
        for (const name of ["www-authenticate", "location"]) expect(response.headers.has(name)).toBe(false);
        expect(response.headers.get("cache-control")).toBe("no-store");
        expect([from, ...(await statusAndCode(response))]).toEqual([from, 403, "https_required"]);
      }
});

test("Basic over plain HTTP is rejected with a page that asks for HTTPS if a browser opens a URL", async () => {
  const service = createWithUser();
  for (const authorization of [{}, AUTHORIZED.headers]) {
    const from = { address: "192.0.2.1", headers: { ...authorization, Accept: "text/html,*/*;q=0.8" } };
    const response = await callRoute(service, "/admin/", from);
    const names = ["content-type", "cache-control", "www-authenticate"];
    const shown = names.map((name) => response.headers.get(name));
    expect([response.status, ...shown]).toEqual([403, "text/html; charset=utf-8", "no-store", null]);
    expect(await response.text()).toContain("<h1>Open this page with HTTPS</h1>");
  }
});

test("the login throttle checks 100 wrong passwords in a row, then rejects only that user from that address", async () => {
  await using service = startService({ credentials: { checkUser }, monotonicNow: () => 0 });
  for (let attempt = 0; attempt < 100; attempt++) {
    const path = ["/admin/", "/admin", "/admin/x"][attempt % 3] ?? "";
    expect((await service.send("GET", path, asUser(USER, `wrong ${attempt}`))).status).toBe(401);
  }
  const response = await service.send("POST", "/admin/x", AUTHORIZED);
  const names = ["retry-after", "www-authenticate", "cache-control"];
  expect(names.map((name) => response.headers.get(name))).toEqual(["900", null, "no-store"]);
  expect(await statusAndCode(response)).toEqual([429, "too_many_failures"]);
  expect((await service.send("GET", "/admin/", asUser("another", "wrong"))).status).toBe(401);
  expect((await service.send("GET", "/admin/")).status).toBe(401);
});

test("the login throttle neither checks nor counts missing and malformed credentials", async () => {
  let checks = 0;
  const counted: CheckUser = (user, password) => ++checks > 0 && checkUser(user, password);
  await using service = startService({ credentials: { checkUser: counted }, access: { basicFailures: 1 } });
  for (const init of [{}, as("Basic"), as("Basic !"), as("Bearer x")])
    for (let attempt = 0; attempt < 3; attempt++)
      expect((await service.send("GET", "/admin/", init)).status).toBe(401);
  expect(checks).toBe(0);
  expect((await service.send("GET", "/admin/", AUTHORIZED)).status).toBe(200);
});

test("the login throttle delays rejections of different users too", async () => {
  const service = createWithUser();
  using _ = hurry();
  const started = Date.now();
  const tries = Array.from({ length: 100 }, (_, index) =>
    callRoute(service, "/admin/", asUser(`user ${index}`, "wrong")),
  );
  for (const { status } of await Promise.all(tries)) expect(status).toBe(401);
  expect(Date.now() - started).toBe(200);
});

test("the log has lines for passwords over plain HTTP and for throttled passwords", async () => {
  const { log, lines } = capturingLog();
  const service = createWithUser({ log, access: { basicFailures: 1 } });
  await callRoute(service, "/admin/", { address: "10.0.0.5", ...AUTHORIZED });
  await callRoute(service, "/admin/", { address: "10.0.0.5" });
  for (const _ of [1, 2]) await callRoute(service, "/admin/", asUser(USER, "wrong"));
  expect(lines.map(({ fields }) => [fields.reason, fields.address])).toEqual([
    ["in clear", "10.0.0.5"],
    ["wrong", "127.0.0.1"],
    ["throttled", "127.0.0.1"],
  ]);
});

test("the lookup of a token receives only the token, and is not called without one", async () => {
  const calls: unknown[][] = [];
  const lookupClient = (...call: unknown[]) => void calls.push(call);
  await using service = startService({ credentials: { lookupClient } });
  await service.send("GET", "/api/whoami");
  for (const header of ["Bearer", "Bearer a b", "Basic eDp5", "Bearer a,b", "bearer  x=y"])
    await service.send("GET", "/api/whoami", as(header));
  expect(calls).toEqual([["x=y"]]);
});

test("the lookup of a token may be asynchronous", async () => {
  const thenable = (settle: () => Promise<unknown>) => ({
    name: "mallory",
    // biome-ignore lint/suspicious/noThenProperty: a promise of another library
    then: (...act: Parameters<Promise<unknown>["then"]>) => settle().then(...act),
  });
  for (const [settle, expected] of [
    [async () => null, "401 unauthorized"],
    [async () => ({}), "401 unauthorized"],
    [() => Promise.reject(new Error("s3cret")), "503 credentials_unavailable"],
    [async () => ({ name: "alice" }), "200"],
  ] as const) {
    const lookupClient = Object.assign(() => thenable(settle));
    await using service = startService({ credentials: { lookupClient } });
    expect(await service.outcome("GET /api/whoami", WITH_TOKEN)).toBe(expected);
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

test("the log of rejected tokens has one line per network and reason, and a summary that counts the rest, without a limit", async () => {
  // More than the failed logins that a user may have.
  const TIMES = 101;
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
    for (let at = 0; at < TIMES; at++) {
      const init = as(`Bearer ${token}`, { "X-Forwarded-For": address });
      expect(await service.outcome("GET /api/whoami", init)).toBe("401 unauthorized");
    }
  service.close();
  expect(service.lines.map(({ fields }) => [fields.reason, fields.address, fields.times])).toEqual([
    ["unknown", "192.0.2.7", undefined],
    ["malformed", "192.0.2.7", undefined],
    ["unknown", "2001:db8::1", undefined],
    ["unknown", "192.0.2.7", TIMES - 1],
    ["malformed", "192.0.2.7", TIMES - 1],
    ["unknown", "2001:db8::2", 2 * TIMES - 1],
  ]);
});
