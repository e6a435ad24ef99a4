import { describe, expect, test } from "bun:test";
import { capturingLog } from "../../../test/log.ts";
import { pathVariants } from "../../../test/path-variants.ts";
import { statusAndCode } from "../../../test/problem.ts";
import { request, sendRaw, statusOf } from "../../../test/raw-http.ts";
import { startService } from "../../../test/service.ts";
import { type CheckUser, createFixedUserCheck } from "../../credential/user.ts";
import { ServiceError } from "../../error.ts";
import { openMemory } from "../../storage/memory/store.ts";
import { createService, type Service } from "../service.ts";

const USER = "admin";
const PASSWORD = "s3cret: pässword~~??>";
const CHALLENGE = 'Basic realm="todo admin", charset="UTF-8"';
const MINUTE = 60_000;

const base64 = (text: string | Uint8Array): string => Buffer.from(text).toString("base64");
const basic = (user: string, password: string): string => `Basic ${base64(`${user}:${password}`)}`;
const as = (user: string, password: string) => ({ headers: { Authorization: basic(user, password) } });

const PAIR = base64(`${USER}:${PASSWORD}`);
const checkUser = createFixedUserCheck(USER, PASSWORD);
const AUTHORIZED = as(USER, PASSWORD);

/** Calls a route's handler with a request from any address. */
async function ask(
  { routes }: Service,
  address: string | undefined,
  headers: Readonly<Record<string, string>>,
  path = "/admin/",
): Promise<Response> {
  const handler = routes[path];
  if (handler === undefined) throw new Error(`there is no route ${path}`);
  const asked = Object.assign(new Request(`http://localhost${path}`, { headers }), { params: {} });
  return handler(asked, {
    protocol: "http",
    requestIP: () => (address === undefined ? null : { address }),
    timeout: () => {},
  });
}

describe("GET /admin/", () => {
  test("accepts a configured user and password", async () => {
    const { log, lines } = capturingLog();
    await using service = startService({
      credentials: { checkUser: createFixedUserCheck("Zoë", "a:b:😀") },
      log,
    });
    const response = await service.send("GET", "/admin/", as("Zoë", "a:b:😀"));
    expect(response.status).toBe(200);
    expect(response.headers.get("content-type")).toBe("text/plain; charset=utf-8");
    expect(await response.text()).toBe("Hello, Zoë!");
    expect(lines).toEqual([]);
  });

  test.each<[how: string, respond: (isCorrect: boolean) => boolean | Promise<boolean>]>([
    ["a boolean", (isCorrect) => isCorrect],
    ["a promise", (isCorrect) => Bun.sleep(1).then(() => isCorrect)],
  ])("passes the user name and the password to a check function that returns %s", async (_how, respond) => {
    const calls: unknown[][] = [];
    const users = new Map([
      ["ann", "1:2"],
      ["", "nobody"],
      ["bob", ""],
    ]);
    await using service = startService({
      credentials: {
        checkUser: (user, password) => {
          calls.push([user, password]);
          return respond(users.get(user) === password);
        },
      },
    });
    for (const [user, password] of users) {
      const response = await service.send("GET", "/admin/", as(user, password));
      expect(await response.text()).toBe(`Hello, ${user}!`);
      expect((await service.send("GET", "/admin/", as(user, `${password}x`))).status).toBe(401);
    }
    expect(calls).toEqual(
      [...users].flatMap(([user, password]) => [
        [user, password],
        [user, `${password}x`],
      ]),
    );
  });

  test("rejects all credentials if nothing is configured", async () => {
    await using service = startService();
    for (const init of [{}, AUTHORIZED, as("", ""), as("admin", "admin")]) {
      expect(await statusAndCode(await service.send("GET", "/admin/", init))).toEqual([401, "unauthorized"]);
    }
  });

  test.each([
    ["after several spaces", `bAsIc    ${PAIR}`],
    ["with surrounding whitespace", ` \t Basic ${PAIR} \t `],
  ])("accepts credentials %s", async (_what, header) => {
    await using service = startService({ credentials: { checkUser } });
    const { text } = await sendRaw(service.port, request("GET /admin/", [`Authorization: ${header}`]));
    expect(statusOf(text)).toBe(200);
    expect(text).toEndWith("\r\n\r\nHello, admin!");
  });

  test.each<[what: string, headers: readonly string[]]>([
    ["no header", []],
    ["an empty header", ["Authorization:"]],
    ["credentials in Proxy-Authorization", [`Proxy-Authorization: Basic ${PAIR}`]],
    ["credentials in a cookie", [`Cookie: Authorization=Basic ${PAIR}`]],
    ["two identical headers", [`Authorization: Basic ${PAIR}`, `Authorization: Basic ${PAIR}`]],
    [
      "two headers, the first with another scheme",
      ["Authorization: Bearer x", `Authorization: Basic ${PAIR}`],
    ],
    ["a long password", [`Authorization: ${basic(USER, "x".repeat(7000))}`]],
  ])("rejects %s", async (_what, headers) => {
    await using service = startService({ credentials: { checkUser } });
    const { text } = await sendRaw(service.port, request("GET /admin/", headers));
    expect(statusOf(text)).toBe(401);
    expect(/^www-authenticate: (.*)\r$/im.exec(text)?.[1]).toBe(CHALLENGE);
    expect(text).toMatch(/^cache-control: no-store\r$/im);
    expect(text).not.toContain("Hello");
  });

  test("sends the configured realm as a quoted string", async () => {
    await using service = startService({ access: { realm: 'the "inner" \\ circle' } });
    const { headers } = await service.send("GET", "/admin/");
    expect(headers.get("www-authenticate")).toBe(
      'Basic realm="the \\"inner\\" \\\\ circle", charset="UTF-8"',
    );
  });
});

describe("the Basic guard", () => {
  const below = ["/admin/x", "/admin/x/y", "/admin//", "/admin/todos", "/admin/index.html"];
  const requests: [method: string, path: string, expected: [status: number, code?: string]][] = [
    ["GET", "/admin/", [200]],
    ["HEAD", "/admin/", [200]],
    ["OPTIONS", "/admin/", [204]],
    ["GET", "/admin", [308]],
    ["HEAD", "/admin", [308]],
    ["OPTIONS", "/admin", [204]],
  ];
  for (const method of ["POST", "PUT", "PATCH", "DELETE", "PROPFIND"]) {
    for (const path of ["/admin", "/admin/"]) requests.push([method, path, [405, "method_not_allowed"]]);
  }
  for (const method of ["GET", "POST", "PUT", "OPTIONS"]) {
    for (const path of below) requests.push([method, path, [404, "route_not_found"]]);
  }

  test.each(requests)("covers %s %s", async (method, path, expected) => {
    await using service = startService({ credentials: { checkUser } });
    const refused = await service.send(method, path);
    expect(refused.status).toBe(401);
    expect(refused.headers.get("www-authenticate")).toBe(CHALLENGE);
    const allowed = await service.send(method, path, AUTHORIZED);
    expect(await statusAndCode(allowed)).toEqual(expected);
    for (const { headers } of [refused, allowed]) expect(headers.get("cache-control")).toBe("no-store");
    if (allowed.status === 405) expect(allowed.headers.get("allow")).toBe("GET, HEAD, OPTIONS");
    expect(allowed.headers.get("location")).toBe(allowed.status === 308 ? "/admin/" : null);
  });

  test.each([...new Set([...pathVariants("/admin/"), ...pathVariants("/admin")])])(
    "rejects %j without a token",
    async (target) => {
      await using service = startService({ credentials: { checkUser } });
      for (const method of ["GET", "HEAD", "POST"]) {
        const { text } = await sendRaw(service.port, request(`${method} ${target}`));
        expect([200, 308]).not.toContain(statusOf(text) ?? 0);
        expect(text).not.toContain("Hello");
        if (/^\/admin(?:[/?]|$)/.test(target)) expect([target, statusOf(text)]).toEqual([target, 401]);
      }
    },
  );

  test.each([
    "X-Original-URL: /admin/",
    "X-Rewrite-URL: /admin/",
    "X-HTTP-Method-Override: GET",
    "X-Remote-User: admin",
    "Remote-User: admin",
    "X-Authenticated-User: admin",
  ])("ignores %s", async (header) => {
    await using service = startService({ credentials: { checkUser }, access: { allowBasicOverHttp: true } });
    const { text: guarded } = await sendRaw(service.port, request("GET /admin/", [header]));
    expect(statusOf(guarded)).toBe(401);
    const { text: open } = await sendRaw(service.port, request("GET /livez", [header]));
    expect(open).toEndWith("\r\n\r\nok\n");
  });
});

describe("the check of a password", () => {
  const cause = new Error("s3cret: password of the database");
  test.each<[what: string, checkUser: CheckUser]>([
    [
      "throws an Error",
      () => {
        throw cause;
      },
    ],
    ["rejects with undefined", () => Promise.reject(undefined)],
    [
      "rejects with a ServiceError",
      () => Promise.reject(new ServiceError("credentials_unavailable", { cause })),
    ],
  ])(
    "that %s causes a 503, never a 401, and the response does not contain its message",
    async (_what, checkUser) => {
      const { log, lines } = capturingLog();
      await using service = startService({ credentials: { checkUser }, log });
      for (const path of ["/admin", "/admin/", "/admin/x"]) {
        const response = await service.send("GET", path, AUTHORIZED);
        expect(response.headers.get("retry-after")).toBe("5");
        expect(response.headers.get("www-authenticate")).toBeNull();
        expect(response.headers.get("cache-control")).toBe("no-store");
        expect(`${[...response.headers]}${await response.clone().text()}`).not.toContain("s3cret");
        expect(await statusAndCode(response)).toEqual([503, "credentials_unavailable"]);
      }
      expect(lines.map(({ level }) => level)).toEqual(["error", "error", "error"]);
    },
  );

  test.each(["1", '"true"', "{}", "[]"])(
    "rejects the password if it returns %s instead of true",
    async (result) => {
      await using service = startService({ credentials: { checkUser: () => JSON.parse(result) } });
      expect((await service.send("GET", "/admin/", AUTHORIZED)).status).toBe(401);
    },
  );

  test("receives the client's network", async () => {
    const networks: unknown[] = [];
    const checkUser: CheckUser = (_user, _password, network) => networks.push(network) > 0;
    const service = createService({
      store: openMemory(),
      credentials: { checkUser },
      access: { allowBasicOverHttp: true },
    });
    for (const address of ["2001:db8::1", "192.0.2.7"]) await ask(service, address, AUTHORIZED.headers);
    expect(networks).toEqual(["2001:db8:0:0::/64", "192.0.2.7"]);
  });
});

describe("Basic over plain HTTP", () => {
  test("is rejected off loopback", async () => {
    const service = createService({ store: openMemory(), credentials: { checkUser } });
    for (const [address, isHere] of [
      ["127.0.0.1", true],
      ["10.0.0.5", false],
      [undefined, false],
    ] as const) {
      for (const path of ["/admin", "/admin/", "/admin/*"]) {
        for (const headers of [{}, AUTHORIZED.headers, as(USER, "wrong").headers]) {
          const response = await ask(service, address, headers, path);
          if (isHere) {
            expect([address, response.status]).not.toEqual([address, 403]);
            continue;
          }
          expect([address, ...(await statusAndCode(response))]).toEqual([address, 403, "https_required"]);
          expect(response.headers.get("www-authenticate")).toBeNull();
          expect(response.headers.get("cache-control")).toBe("no-store");
        }
      }
    }
  });

  test("is rejected with a page that asks for HTTPS if a browser opens a URL", async () => {
    const open = createService({ store: openMemory(), credentials: { checkUser } });
    const closed = createService({
      store: openMemory(),
      credentials: { checkUser },
      access: { privateMode: true },
    });
    for (const [service, path] of [
      [open, "/admin/"],
      [open, "/admin/*"],
      [closed, "/admin/"],
    ] as const) {
      for (const authorization of [{}, AUTHORIZED.headers]) {
        const headers = { ...authorization, Accept: "text/html,*/*;q=0.8" };
        const response = await ask(service, "192.0.2.1", headers, path);
        expect([response.status, response.headers.get("content-type")]).toEqual([
          403,
          "text/html; charset=utf-8",
        ]);
        expect(response.headers.get("cache-control")).toBe("no-store");
        expect(response.headers.get("www-authenticate")).toBeNull();
        const html = await response.text();
        expect(html).toContain("<h1>Open this page with HTTPS</h1>");
      }
    }
    const response = await ask(closed, "192.0.2.1", { Accept: "text/html" }, "/api/todos");
    expect(await statusAndCode(response)).toEqual([403, "https_required"]);
  });

  test("is accepted from any address if allowBasicOverHttp is true", async () => {
    const service = createService({
      store: openMemory(),
      credentials: { checkUser },
      access: { allowBasicOverHttp: true },
    });
    for (const address of ["127.0.0.1", "10.0.0.5", "2001:db8::1", undefined]) {
      const headers = { ...AUTHORIZED.headers, "X-Forwarded-For": "10.0.0.5" };
      expect(await (await ask(service, address, headers)).text()).toBe("Hello, admin!");
      expect((await ask(service, address, {})).status).toBe(401);
    }
  });

  test("is rejected through a proxy", async () => {
    const forwarding = { "X-Forwarded-For": "127.0.0.1" };
    await using service = startService({ credentials: { checkUser } });
    for (const [method, path] of [
      ["GET", "/admin/"],
      ["GET", "/admin"],
      ["POST", "/admin/"],
      ["GET", "/admin/x"],
    ] as const) {
      const response = await service.send(method, path, {
        headers: { ...AUTHORIZED.headers, ...forwarding },
      });
      expect(response.headers.get("www-authenticate")).toBeNull();
      expect(response.headers.get("location")).toBeNull();
      expect(await statusAndCode(response)).toEqual([403, "https_required"]);
    }
    await using open = startService({ credentials: { checkUser }, access: { allowBasicOverHttp: true } });
    const headers = { ...AUTHORIZED.headers, ...forwarding };
    const response = await open.send("GET", "/admin/", { headers });
    expect(response.status).toBe(200);
  });
});

describe("the login throttle", () => {
  /** A service with its own clock and a counter of checked passwords. */
  function throttled(basicFailures?: number) {
    const state = { now: 1_000_000, checks: 0 };
    const service = createService({
      store: openMemory(),
      credentials: {
        checkUser: (user, password) => {
          state.checks++;
          return checkUser(user, password);
        },
      },
      access: { allowBasicOverHttp: true, basicFailures },
      monotonicNow: () => state.now,
    });
    const tryAs = async (user: string, password: string, address = "10.0.0.5") =>
      (await ask(service, address, as(user, password).headers)).status;
    return { state, service, tryAs };
  }

  test("checks 100 wrong passwords in a row, then rejects only that user from that address", async () => {
    await using service = startService({ credentials: { checkUser } });
    for (let attempt = 0; attempt < 100; attempt++) {
      const path = ["/admin/", "/admin", "/admin/x"][attempt % 3] ?? "";
      expect((await service.send("GET", path, as(USER, `wrong ${attempt}`))).status).toBe(401);
    }
    for (const [method, path, password] of [
      ["GET", "/admin/", "wrong"],
      ["GET", "/admin/", PASSWORD],
      ["GET", "/admin", PASSWORD],
      ["POST", "/admin/", PASSWORD],
      ["GET", "/admin/x", PASSWORD],
    ] as const) {
      const response = await service.send(method, path, as(USER, password));
      const seconds = Number(response.headers.get("retry-after"));
      expect(seconds).toBeGreaterThan(895);
      expect(seconds).toBeLessThanOrEqual(900);
      expect(response.headers.get("www-authenticate")).toBeNull();
      expect(response.headers.get("cache-control")).toBe("no-store");
      expect(await statusAndCode(response)).toEqual([429, "too_many_failures"]);
    }
    expect((await service.send("GET", "/admin/", as("another", "wrong"))).status).toBe(401);
    expect((await service.send("GET", "/admin/")).status).toBe(401);
  });

  test("does not lock out the user at another address", async () => {
    const { tryAs } = throttled(3);
    for (let attempt = 0; attempt < 3; attempt++) expect(await tryAs(USER, "wrong")).toBe(401);
    expect(await tryAs(USER, PASSWORD)).toBe(429);
    expect(await tryAs(USER, PASSWORD, "10.0.0.6")).toBe(200);
    expect(await tryAs("another", "wrong")).toBe(401);
  });

  test("resets 15 minutes after the last checked attempt", async () => {
    const { state, tryAs, service } = throttled(3);
    for (let attempt = 0; attempt < 3; attempt++) {
      expect(await tryAs(USER, "wrong")).toBe(401);
      state.now += 10 * MINUTE;
    }
    // Two thirds have passed: a rejected attempt does not restart the time, and Retry-After has the rest.
    for (const [later, seconds] of [
      [0, "300"],
      [5 * MINUTE - 1, "1"],
    ] as const) {
      state.now += later;
      const refused = await ask(service, "10.0.0.5", AUTHORIZED.headers);
      expect([refused.status, refused.headers.get("retry-after")]).toEqual([429, seconds]);
    }
    state.now += 1;
    expect(state.checks).toBe(3);
    for (let attempt = 0; attempt < 3; attempt++) expect(await tryAs(USER, "wrong")).toBe(401);
    expect(await tryAs(USER, PASSWORD)).toBe(429);
    state.now += 15 * MINUTE;
    expect(await tryAs(USER, PASSWORD)).toBe(200);
  });

  test("resets after a success", async () => {
    const { tryAs } = throttled(3);
    for (let round = 0; round < 5; round++) {
      for (let attempt = 0; attempt < 2; attempt++) expect(await tryAs(USER, "wrong")).toBe(401);
      expect(await tryAs(USER, PASSWORD)).toBe(200);
    }
  });

  test("neither checks nor counts missing and malformed credentials", async () => {
    const { service, state, tryAs } = throttled(1);
    for (const header of [
      undefined,
      "",
      "Basic",
      "Basic x",
      "Basic !",
      `Basic ${base64(USER)}`,
      `Bearer ${PAIR}`,
    ]) {
      for (let attempt = 0; attempt < 3; attempt++) {
        const headers = header === undefined ? {} : { Authorization: header };
        expect((await ask(service, "10.0.0.5", headers)).status).toBe(401);
      }
    }
    expect(state.checks).toBe(0);
    expect(await tryAs(USER, PASSWORD)).toBe(200);
  });

  test("delays rejections of different users too", async () => {
    const { tryAs } = throttled();
    const started = performance.now();
    const tries = Array.from({ length: 100 }, (_, index) => tryAs(`user ${index}`, "wrong"));
    expect(await Promise.all(tries)).toEqual(tries.map(() => 401));
    // A timer can be early by a fraction of a millisecond.
    expect(performance.now() - started).toBeGreaterThan(198);
  });

  test("is disabled with 0", async () => {
    const { tryAs } = throttled(0);
    for (let attempt = 0; attempt < 300; attempt++) expect(await tryAs(USER, "wrong")).toBe(401);
    expect(await tryAs(USER, PASSWORD)).toBe(200);
  });
});

describe("the log of rejected passwords", () => {
  test.each<[reason: string | undefined, header: string | undefined]>([
    [undefined, undefined],
    [undefined, "Bearer s3cret"],
    ["wrong", basic("s3cret-user", "s3cret")],
    ["malformed", "Basic s3cret"],
    ["malformed", `Basic ${base64("s3cret without a colon")}`],
    ["malformed", `${basic("a", "s3cret")}, ${basic("a", "s3cret")}`],
  ])("has the reason %s and never the credentials (#%#)", async (reason, header) => {
    const { log, lines, text } = capturingLog();
    await using service = startService({ credentials: { checkUser }, log, accessLog: true });
    const headers = header === undefined ? undefined : { Authorization: header };
    expect((await service.send("GET", "/admin/", { ...(headers && { headers }) })).status).toBe(401);
    const refusals = lines.filter(({ message }) => message === "credential refused");
    const fields = { surface: "basic", reason, address: "127.0.0.1" };
    expect(refusals).toEqual(
      reason === undefined ? [] : [{ level: "warn", fields, message: "credential refused" }],
    );
    expect(text()).not.toContain("s3cret");
    expect(text()).not.toContain(base64("s3cret").slice(0, 7));
    if (header !== undefined) expect(text()).not.toContain(header.slice(6));
  });

  test("has lines for passwords over plain HTTP and for throttled passwords", async () => {
    const { log, lines } = capturingLog();
    const service = createService({
      store: openMemory(),
      credentials: { checkUser },
      log,
      access: { basicFailures: 1 },
    });
    await ask(service, "10.0.0.5", AUTHORIZED.headers);
    await ask(service, "10.0.0.5", {});
    for (const _ of [1, 2]) await ask(service, "127.0.0.1", as(USER, "wrong").headers);
    expect(lines.map(({ fields }) => [fields.reason, fields.address])).toEqual([
      ["in clear", "10.0.0.5"],
      ["wrong", "127.0.0.1"],
      ["throttled", "127.0.0.1"],
    ]);
  });
});
