import { describe, expect, test } from "bun:test";
import { callRoute } from "../../../test/call-route.ts";
import { as, basic } from "../../../test/credentials.ts";
import { hurry } from "../../../test/hurry.ts";
import { capturingLog } from "../../../test/log.ts";
import { statusAndCode } from "../../../test/problem.ts";
import { startService } from "../../../test/service.ts";
import { type CheckUser, createFixedUserCheck } from "../../credential/user.ts";
import { openMemory } from "../../storage/memory/store.ts";
import { createService } from "../service.ts";

const USER = "admin";
const PASSWORD = "s3cret: pässword~~??>";

const asUser = (user: string, password: string) => as(basic(user, password));
const checkUser = createFixedUserCheck(USER, PASSWORD);
const AUTHORIZED = asUser(USER, PASSWORD);

describe("GET /admin/", () => {
  test("passes the user name and the password to a check function, which may return a promise", async () => {
    const calls: unknown[][] = [];
    const users = new Map([
      ["ann", "1:2"],
      ["", "nobody"],
      ["bob", ""],
    ]);
    const checkUser: CheckUser = (...call) => {
      calls.push(call.slice(0, 2));
      const isCorrect = users.get(call[0]) === call[1];
      return calls.length % 2 === 0 ? isCorrect : Promise.resolve(isCorrect);
    };
    await using service = startService({ credentials: { checkUser } });
    const given = [...users, ...users].flatMap(([user, right]) =>
      [right, `${right}x`].map((one) => [user, one] as const),
    );
    for (const [user, password] of given) {
      const response = await service.send("GET", "/admin/", asUser(user, password));
      const isCorrect = users.get(user) === password;
      expect(await (isCorrect ? response.text() : response.status)).toBe(isCorrect ? `Hello, ${user}!` : 401);
    }
    expect(calls).toEqual(given.map((pair) => [...pair]));
  });

  test("sends the configured realm as a quoted string", async () => {
    await using service = startService({ access: { realm: 'the "inner" \\ circle' } });
    const { headers } = await service.send("GET", "/admin/");
    expect(headers.get("www-authenticate")).toBe(
      'Basic realm="the \\"inner\\" \\\\ circle", charset="UTF-8"',
    );
  });
});

test.each(["1", '"true"', "{}", "[]"])(
  "the check of a password rejects the password if it returns %s instead of true",
  async (result) => {
    await using service = startService({ credentials: { checkUser: () => JSON.parse(result) } });
    expect((await service.send("GET", "/admin/", AUTHORIZED)).status).toBe(401);
  },
);

test("the check of a password receives the client's network", async () => {
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

describe("Basic over plain HTTP", () => {
  test("is rejected off loopback, and on loopback behind a proxy", async () => {
    const service = createService({ store: openMemory(), credentials: { checkUser } });
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

  test.each([false, true])(
    "is rejected with a page that asks for HTTPS if a browser opens a URL, in private mode: %p",
    async (privateMode) => {
      const service = createService({
        store: openMemory(),
        credentials: { checkUser },
        access: { privateMode },
      });
      for (const authorization of [{}, AUTHORIZED.headers]) {
        const from = { address: "192.0.2.1", headers: { ...authorization, Accept: "text/html,*/*;q=0.8" } };
        const response = await callRoute(service, "/admin/", from);
        const names = ["content-type", "cache-control", "www-authenticate"];
        const shown = names.map((name) => response.headers.get(name));
        expect([response.status, ...shown]).toEqual([403, "text/html; charset=utf-8", "no-store", null]);
        expect(await response.text()).toContain("<h1>Open this page with HTTPS</h1>");
        if (!privateMode) continue;
        const list = await callRoute(service, "/api/todos", from);
        expect(await statusAndCode(list)).toEqual([403, "https_required"]);
      }
    },
  );

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

test("the login throttle checks 100 wrong passwords in a row, then rejects only that user from that address", async () => {
  await using service = startService({ credentials: { checkUser }, monotonicNow: () => 0 });
  for (let attempt = 0; attempt < 100; attempt++) {
    const path = ["/admin/", "/admin", "/admin/x"][attempt % 3] ?? "";
    expect((await service.send("GET", path, asUser(USER, `wrong ${attempt}`))).status).toBe(401);
  }
  for (const [method, path] of [
    ["GET", "/admin/"],
    ["GET", "/admin"],
    ["POST", "/admin/"],
    ["GET", "/admin/x"],
  ] as const) {
    const response = await service.send(method, path, AUTHORIZED);
    const names = ["retry-after", "www-authenticate", "cache-control"];
    expect(names.map((name) => response.headers.get(name))).toEqual(["900", null, "no-store"]);
    expect(await statusAndCode(response)).toEqual([429, "too_many_failures"]);
  }
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
  const service = createService({ store: openMemory(), credentials: { checkUser } });
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
