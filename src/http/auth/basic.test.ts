import { describe, expect, test } from "bun:test";
import { callRoute } from "../../../test/call-route.ts";
import { as, basic } from "../../../test/credentials.ts";
import { capturingLog } from "../../../test/log.ts";
import { statusAndCode } from "../../../test/problem.ts";
import { startService } from "../../../test/service.ts";
import { type CheckUser, createFixedUserCheck } from "../../credential/user.ts";
import { openMemory } from "../../storage/memory/store.ts";
import { createService } from "../service.ts";

const USER = "admin";
const PASSWORD = "s3cret: pässword~~??>";
const MINUTE = 60_000;

const asUser = (user: string, password: string) => as(basic(user, password));
const checkUser = createFixedUserCheck(USER, PASSWORD);
const AUTHORIZED = asUser(USER, PASSWORD);

describe("GET /admin/", () => {
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
      const response = await service.send("GET", "/admin/", asUser(user, password));
      expect(await response.text()).toBe(`Hello, ${user}!`);
      expect((await service.send("GET", "/admin/", asUser(user, `${password}x`))).status).toBe(401);
    }
    expect(calls).toEqual(
      [...users].flatMap(([user, password]) => [
        [user, password],
        [user, `${password}x`],
      ]),
    );
  });

  test("sends the configured realm as a quoted string", async () => {
    await using service = startService({ access: { realm: 'the "inner" \\ circle' } });
    const { headers } = await service.send("GET", "/admin/");
    expect(headers.get("www-authenticate")).toBe(
      'Basic realm="the \\"inner\\" \\\\ circle", charset="UTF-8"',
    );
  });
});

describe("the check of a password", () => {
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
    for (const address of ["2001:db8::1", "192.0.2.7"])
      await callRoute(service, "/admin/", { address, ...AUTHORIZED });
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
        for (const headers of [{}, AUTHORIZED.headers, asUser(USER, "wrong").headers]) {
          const response = await callRoute(service, path, { address, headers });
          if (isHere) expect(response.status).not.toBe(403);
          const forwarded = { address, headers: { ...headers, "X-Forwarded-For": "127.0.0.1" } };
          const rejected = isHere ? await callRoute(service, path, forwarded) : response;
          expect([address, ...(await statusAndCode(rejected))]).toEqual([address, 403, "https_required"]);
          expect(rejected.headers.get("www-authenticate")).toBeNull();
          expect(rejected.headers.get("location")).toBeNull();
          expect(rejected.headers.get("cache-control")).toBe("no-store");
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
        const response = await callRoute(service, path, { address: "192.0.2.1", headers });
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
    const response = await callRoute(closed, "/api/todos", {
      address: "192.0.2.1",
      headers: { Accept: "text/html" },
    });
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
      const response = await callRoute(service, "/admin/", { address, headers });
      expect(await response.text()).toBe("Hello, admin!");
      expect((await callRoute(service, "/admin/", { address })).status).toBe(401);
    }
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
      (await callRoute(service, "/admin/", { address, ...asUser(user, password) })).status;
    return { state, service, tryAs };
  }

  test("checks 100 wrong passwords in a row, then rejects only that user from that address", async () => {
    await using service = startService({ credentials: { checkUser } });
    for (let attempt = 0; attempt < 100; attempt++) {
      const path = ["/admin/", "/admin", "/admin/x"][attempt % 3] ?? "";
      expect((await service.send("GET", path, asUser(USER, `wrong ${attempt}`))).status).toBe(401);
    }
    for (const [method, path, password] of [
      ["GET", "/admin/", "wrong"],
      ["GET", "/admin/", PASSWORD],
      ["GET", "/admin", PASSWORD],
      ["POST", "/admin/", PASSWORD],
      ["GET", "/admin/x", PASSWORD],
    ] as const) {
      const response = await service.send(method, path, asUser(USER, password));
      const seconds = Number(response.headers.get("retry-after"));
      expect(seconds).toBeGreaterThan(895);
      expect(seconds).toBeLessThanOrEqual(900);
      expect(response.headers.get("www-authenticate")).toBeNull();
      expect(response.headers.get("cache-control")).toBe("no-store");
      expect(await statusAndCode(response)).toEqual([429, "too_many_failures"]);
    }
    expect((await service.send("GET", "/admin/", asUser("another", "wrong"))).status).toBe(401);
    expect((await service.send("GET", "/admin/")).status).toBe(401);
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
      const refused = await callRoute(service, "/admin/", { address: "10.0.0.5", ...AUTHORIZED });
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
    for (const init of [{}, as("Basic"), as("Basic !"), as("Bearer x")])
      for (let attempt = 0; attempt < 3; attempt++) {
        const response = await callRoute(service, "/admin/", { address: "10.0.0.5", ...init });
        expect(response.status).toBe(401);
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
});

test("the log has lines for passwords over plain HTTP and for throttled passwords", async () => {
  const { log, lines } = capturingLog();
  const service = createService({
    store: openMemory(),
    credentials: { checkUser },
    log,
    access: { basicFailures: 1 },
  });
  await callRoute(service, "/admin/", { address: "10.0.0.5", ...AUTHORIZED });
  await callRoute(service, "/admin/", { address: "10.0.0.5" });
  for (const _ of [1, 2]) await callRoute(service, "/admin/", asUser(USER, "wrong"));
  expect(lines.map(({ fields }) => [fields.reason, fields.address])).toEqual([
    ["in clear", "10.0.0.5"],
    ["wrong", "127.0.0.1"],
    ["throttled", "127.0.0.1"],
  ]);
});
