import { describe, expect, test } from "bun:test";
import { as, basic } from "../../../test/credentials.ts";
import { pathVariants } from "../../../test/path-variants.ts";
import { statusAndCode } from "../../../test/problem.ts";
import { request, sendRaw, statusOf } from "../../../test/raw-http.ts";
import { pathIn, startService } from "../../../test/service.ts";
import { mintToken } from "../../credential/token.ts";
import { ServiceError } from "../../error.ts";
import type { ServiceOptions } from "../service.ts";

const TOKEN = "s3cret/token+~.==";
const PASSWORD = "s3cret: pässword~~??>";
const PAIR = basic("admin", PASSWORD);

const credentials: ServiceOptions["credentials"] = {
  lookupClient: (token) => (token === TOKEN ? { name: "alice" } : undefined),
  checkUser: (user, password) => user === "admin" && password === PASSWORD,
};

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
    authorization: `Bearer ${TOKEN}`,
    shown: "alice",
    challenge: BEARER,
    invalid: `${BEARER}, error="invalid_token"`,
    root: ["/api/whoami", "200"],
  },
  {
    path: "/admin/",
    authorization: PAIR,
    shown: "Hello, admin!",
    challenge: BASIC,
    invalid: BASIC,
    root: ["/admin", "308"],
  },
];

describe.each(SURFACES)("the guard of $path", ({ path, authorization, shown, challenge, invalid, root }) => {
  const AUTHORIZED = as(authorization);
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

  test.each([false, true])(
    "covers every method and every path below, in private mode: %p",
    async (privateMode) => {
      await using service = startService({ credentials, access: { privateMode } });
      const [bare, found] = root;
      const outcomes: [methods: string, paths: readonly string[], expected: string][] = [
        ["GET HEAD", [path], "200"],
        ["GET HEAD", [bare], found],
        ["OPTIONS", [path, bare], "204"],
        ["POST PUT PATCH DELETE PROPFIND", [path, bare], "405 method_not_allowed"],
        ["GET POST PUT OPTIONS", ["/x", "/x/y", "//"].map((rest) => bare + rest), "404 route_not_found"],
      ];
      const cases = outcomes.flatMap(([methods, paths, expected]) =>
        methods.split(" ").flatMap((method) => paths.map((one) => [method, one, expected] as const)),
      );
      for (const [method, one, expected] of cases) {
        const refused = await service.send(method, one);
        expect([method, one, refused.status]).toEqual([method, one, 401]);
        expect(refused.headers.get("www-authenticate")).toBe(challenge);
        const allowed = await service.send(method, one, AUTHORIZED);
        expect([method, one, (await statusAndCode(allowed)).join(" ")]).toEqual([method, one, expected]);
        for (const { headers } of [refused, allowed]) expect(headers.get("cache-control")).toBe("no-store");
        if (allowed.status === 405) expect(allowed.headers.get("allow")).toBe("GET, HEAD, OPTIONS");
        expect(pathIn(allowed.headers.get("location"), allowed)).toBe(allowed.status === 308 ? path : null);
      }
    },
  );

  test("rejects all variants of the path without credentials", async () => {
    await using service = startService({ credentials });
    const isGuarded = (target: string): boolean =>
      target.startsWith(root[0]) && ["", "/", "?"].includes(target.slice(root[0].length, root[0].length + 1));
    for (const target of new Set([...pathVariants(path), ...pathVariants(root[0])]))
      for (const method of ["GET", "HEAD", "POST"]) {
        const { text } = await sendRaw(service.port, request(`${method} ${target}`));
        const status = statusOf(text) ?? 0;
        expect([target, [200, 308].includes(status) || text.includes(shown)]).toEqual([target, false]);
        if (isGuarded(target)) expect([target, status]).toEqual([target, 401]);
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
      const response = await service.send("GET", one, AUTHORIZED);
      expect(response.headers.get("retry-after")).toBe("5");
      expect(response.headers.get("www-authenticate")).toBeNull();
      expect(response.headers.get("cache-control")).toBe("no-store");
      expect(await statusAndCode(response)).toEqual([503, "credentials_unavailable"]);
    }
    expect(new Set(service.lines.map(({ level }) => level))).toEqual(new Set(["error"]));
  });

  test("rejects all credentials if nothing is configured", async () => {
    await using service = startService();
    for (const init of [AUTHORIZED, as(basic("", "")), {}])
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
])(
  "the log of rejected credentials has for the surface %s at %s the reason %s, and never the credentials (#%#)",
  async (...row) => {
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
  },
);
