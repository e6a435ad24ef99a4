import { describe, expect, test } from "bun:test";
import { capturingLog } from "../../../test/log.ts";
import { pathVariants } from "../../../test/path-variants.ts";
import { statusAndCode } from "../../../test/problem.ts";
import { request, sendRaw, statusOf } from "../../../test/raw-http.ts";
import { startService } from "../../../test/service.ts";
import { FOREIGN_THENABLES } from "../../../test/thenables.ts";
import { createClientLookup, type LookupClient } from "../../credential/client.ts";
import { createKey, createKeyLookup } from "../../credential/key.ts";
import { hashToken, mintToken } from "../../credential/token.ts";
import { ServiceError } from "../../error.ts";
import { openMemory } from "../../storage/memory/store.ts";
import { createService } from "../service.ts";

const TOKEN = "s3cret/token+~.==";
const NAME = "Zoë 😀";
const AUTHORIZED = { headers: { Authorization: `Bearer ${TOKEN}` } };
const CHALLENGE = 'Bearer realm="todo api"';
const INVALID = `${CHALLENGE}, error="invalid_token"`;

const lookupClient = createClientLookup([{ client: { name: NAME }, tokenHash: hashToken(TOKEN) }]);

/** The name in a raw response, which is decoded as Latin-1. */
const RAW_NAME = Buffer.from(NAME).toString("latin1");

describe("GET /api/whoami", () => {
  test("returns only the client's name as text", async () => {
    const { log, lines } = capturingLog();
    await using service = startService({ credentials: { lookupClient }, log });
    const response = await service.send("GET", "/api/whoami", AUTHORIZED);
    expect(response.status).toBe(200);
    expect(response.headers.get("content-type")).toBe("text/plain; charset=utf-8");
    expect(await response.text()).toBe(NAME);
    expect(lines).toEqual([]);
  });

  test.each([
    ["after several spaces", `bEaReR    ${TOKEN}`],
    ["with surrounding whitespace", ` \t Bearer ${TOKEN} \t `],
  ])("accepts a token %s", async (_what, header) => {
    await using service = startService({ credentials: { lookupClient } });
    const { text } = await sendRaw(service.port, request("GET /api/whoami", [`Authorization: ${header}`]));
    expect(statusOf(text)).toBe(200);
    expect(text).toEndWith(`\r\n\r\n${RAW_NAME}`);
  });

  test.each<[what: string, challenge: string, headers: readonly string[]]>([
    ["no header", CHALLENGE, []],
    ["an empty header", CHALLENGE, ["Authorization:"]],
    ["the token in a cookie", CHALLENGE, [`Cookie: access_token=${TOKEN}; Authorization=Bearer ${TOKEN}`]],
    ["the token in Proxy-Authorization", CHALLENGE, [`Proxy-Authorization: Bearer ${TOKEN}`]],
    ["a scheme without a token", INVALID, ["Authorization: Bearer"]],
    ["an unknown token", INVALID, ["Authorization: Bearer unknown"]],
    ["two identical headers", INVALID, [`Authorization: Bearer ${TOKEN}`, `Authorization: Bearer ${TOKEN}`]],
    [
      "two headers, the first with another scheme",
      CHALLENGE,
      ["Authorization: Basic eDp5", `Authorization: Bearer ${TOKEN}`],
    ],
    ["a token that is not ASCII", INVALID, ["Authorization: Bearer s\xe9cret"]],
  ])("rejects %s", async (_what, challenge, headers) => {
    await using service = startService({ credentials: { lookupClient } });
    const { text } = await sendRaw(service.port, request("GET /api/whoami", headers));
    expect(statusOf(text)).toBe(401);
    expect(/^www-authenticate: (.*)\r$/im.exec(text)?.[1]).toBe(challenge);
    expect(text).toMatch(/^cache-control: no-store\r$/im);
    expect(text).not.toContain(RAW_NAME);
  });

  test.each(["access_token", "token", "authorization", "Authorization"])(
    "does not accept a token in the query parameter %s",
    async (name) => {
      await using service = startService({ credentials: { lookupClient } });
      for (const value of [TOKEN, `Bearer ${TOKEN}`]) {
        const response = await service.send("GET", `/api/whoami?${name}=${encodeURIComponent(value)}`);
        expect(await statusAndCode(response)).toEqual([401, "unauthorized"]);
        expect(response.headers.get("www-authenticate")).toBe(CHALLENGE);
      }
    },
  );

  test("responds with 401, never with 429, after any number of rejections", async () => {
    await using service = startService({ credentials: { lookupClient }, access: { basicFailures: 1 } });
    const headers = { Authorization: "Bearer unknown" };
    for (let attempt = 0; attempt < 300; attempt++) {
      expect((await service.send("GET", "/api/whoami", { headers })).status).toBe(401);
    }
    expect((await service.send("GET", "/api/whoami", AUTHORIZED)).status).toBe(200);
  });
});

describe("the bearer guard", () => {
  const below = ["/api/whoami/", "/api/whoami/x", "/api/whoami/x/y", "/api/whoami//", "/api/whoami/todos"];
  const wrongMethods = ["POST", "PUT", "PATCH", "DELETE", "PROPFIND"];
  const requests: [method: string, path: string, expected: [status: number, code?: string]][] = [
    ["GET", "/api/whoami", [200]],
    ["HEAD", "/api/whoami", [200]],
    ["OPTIONS", "/api/whoami", [204]],
  ];
  for (const method of wrongMethods) requests.push([method, "/api/whoami", [405, "method_not_allowed"]]);
  for (const method of ["GET", "POST", "PUT", "OPTIONS"]) {
    for (const path of below) requests.push([method, path, [404, "route_not_found"]]);
  }

  test.each(requests)("covers %s %s", async (method, path, expected) => {
    await using service = startService({ credentials: { lookupClient } });
    const refused = await service.send(method, path);
    expect(refused.status).toBe(401);
    expect(refused.headers.get("www-authenticate")).toBe(CHALLENGE);
    const allowed = await service.send(method, path, AUTHORIZED);
    expect(await statusAndCode(allowed)).toEqual(expected);
    for (const { headers } of [refused, allowed]) expect(headers.get("cache-control")).toBe("no-store");
    if (allowed.status === 405) expect(allowed.headers.get("allow")).toBe("GET, HEAD, OPTIONS");
  });

  test.each(pathVariants("/api/whoami"))("rejects %j without a token", async (target) => {
    await using service = startService({ credentials: { lookupClient } });
    for (const method of ["GET", "HEAD", "POST"]) {
      const { text } = await sendRaw(service.port, request(`${method} ${target}`));
      expect([target, statusOf(text)]).not.toEqual([target, 200]);
      expect(text).not.toContain(RAW_NAME);
      if (/^\/api\/whoami(?:[/?]|$)/.test(target)) expect([target, statusOf(text)]).toEqual([target, 401]);
    }
  });
});

describe("the lookup of a token", () => {
  test("may be asynchronous", async () => {
    const waiting = new Map<string, () => void>();
    await using service = startService({
      credentials: {
        lookupClient: async (token) => {
          const { promise, resolve } = Promise.withResolvers<void>();
          waiting.set(token, resolve);
          if (waiting.size === 20) for (const resolve of [...waiting.values()].reverse()) resolve();
          await promise;
          return token.endsWith("7") ? undefined : { name: `client of ${token}` };
        },
      },
    });
    const tokens = Array.from({ length: 20 }, (_, index) => `token-${index}`);
    const answers = tokens.map(async (token) => {
      const headers = { Authorization: `Bearer ${token}` };
      const response = await service.send("GET", "/api/whoami", { headers });
      return response.status === 200 ? response.text() : response.status;
    });
    expect(await Promise.all(answers)).toEqual(
      tokens.map((token) => (token.endsWith("7") ? 401 : `client of ${token}`)),
    );
  });

  test("receives only the token, and is not called without one", async () => {
    const calls: unknown[][] = [];
    await using service = startService({
      credentials: {
        lookupClient: (...call) => {
          calls.push(call);
          return undefined;
        },
      },
    });
    for (const header of [undefined, "Bearer", "Bearer a b", "Basic eDp5", "Bearer a,b", "bearer  x=y"]) {
      const headers = header === undefined ? undefined : { Authorization: header };
      await service.send("GET", "/api/whoami", { ...(headers && { headers }) });
    }
    expect(calls).toEqual([["x=y"]]);
  });

  const cause = new Error("s3cret: password of the database");
  test.each<[what: string, lookupClient: () => Promise<undefined>]>([
    ["rejects with an Error", () => Promise.reject(cause)],
    [
      "throws an Error",
      () => {
        throw cause;
      },
    ],
    ["rejects with a value that is not an Error", () => Promise.reject("s3cret")],
    ["rejects with undefined", () => Promise.reject(undefined)],
    [
      "rejects with a ServiceError",
      () => Promise.reject(new ServiceError("unauthorized", { detail: "s3cret" })),
    ],
  ])(
    "that %s causes a 503, never a 401, and the response does not contain its message",
    async (_what, lookupClient) => {
      const { log, lines } = capturingLog();
      await using service = startService({ credentials: { lookupClient }, log });
      for (const path of ["/api/whoami", "/api/whoami/x"]) {
        const response = await service.send("GET", path, AUTHORIZED);
        expect(response.headers.get("retry-after")).toBe("5");
        expect(response.headers.get("www-authenticate")).toBeNull();
        expect(response.headers.get("cache-control")).toBe("no-store");
        expect(`${[...response.headers]}${await response.clone().text()}`).not.toContain("s3cret");
        expect(await statusAndCode(response)).toEqual([503, "credentials_unavailable"]);
      }
      expect(lines.map(({ level }) => level)).toEqual(["error", "error"]);
    },
  );

  test("rejects all tokens if nothing is configured", async () => {
    await using service = startService();
    for (const path of ["/api/whoami", "/api/whoami/x"]) {
      const response = await service.send("GET", path, AUTHORIZED);
      expect(await statusAndCode(response)).toEqual([401, "unauthorized"]);
    }
  });
});

test("a lookup may return a promise of another library", async () => {
  const thenable = FOREIGN_THENABLES["an object with then and a client's name"];
  if (thenable === undefined) throw new Error("there is no such promise");
  for (const [settle, expected] of [
    [async () => null, [401, "unauthorized"]],
    [async () => ({}), [401, "unauthorized"]],
    [() => Promise.reject(new Error("s3cret")), [503, "credentials_unavailable"]],
    [async () => ({ name: "alice" }), [200]],
  ] as const) {
    const lookupClient = Object.assign(() => thenable(settle));
    await using service = startService({ credentials: { lookupClient } });
    const response = await service.send("GET", "/api/whoami", AUTHORIZED);
    expect(await statusAndCode(response)).toEqual([...expected]);
  }
});

describe("the bearer guard", () => {
  const ask = (lookup: LookupClient, token: string) => {
    const { routes } = createService({ store: openMemory(), credentials: { lookupClient: lookup } });
    const headers = { Authorization: `Bearer ${token}` };
    const request = Object.assign(new Request("http://localhost/api/whoami", { headers }), { params: {} });
    return routes["/api/whoami"]?.(request, {
      protocol: "http",
      requestIP: () => ({ address: "127.0.0.1" }),
      timeout: () => {},
    });
  };

  test("returns no promise if the lookup returns none", () => {
    for (const [token, status] of [
      [TOKEN, 200],
      ["unknown", 401],
    ] as const) {
      const response = ask(lookupClient, token);
      expect(response).toBeInstanceOf(Response);
      if (!(response instanceof Response)) continue;
      expect(response.status).toBe(status);
      expect(response.headers.get("cache-control")).toBe("no-store");
    }
  });

  test("returns no promise for a key of a synchronous store", async () => {
    const { keys } = openMemory();
    const minted = await createKey(keys, "ci", undefined, 0);
    const response = ask(
      createKeyLookup(keys, () => 0),
      minted?.token ?? "",
    );
    expect(response).toBeInstanceOf(Response);
    if (response instanceof Response) expect(await response.text()).toBe("ci");
  });
});

describe("the log of rejected tokens", () => {
  const minted = mintToken();
  const typo = minted.slice(0, -1) + (minted.endsWith("0") ? "1" : "0");

  test.each<[reason: string | undefined, header: string | undefined]>([
    [undefined, undefined],
    [undefined, "Basic czNjcmV0OnMzY3JldA=="],
    ["unknown", "Bearer s3cret"],
    ["unknown", `Bearer ${minted}`],
    ["mistyped", `Bearer ${typo}`],
    ["malformed", "Bearer s3cret s3cret"],
    ["malformed", "Bearer s3cret, Bearer s3cret"],
  ])("has the reason %s and never the token (#%#)", async (reason, header) => {
    const { log, lines, text } = capturingLog();
    await using service = startService({ credentials: { lookupClient }, log, accessLog: true });
    const headers = header === undefined ? undefined : { Authorization: header };
    expect((await service.send("GET", "/api/whoami", { ...(headers && { headers }) })).status).toBe(401);
    const refusals = lines.filter(({ message }) => message === "credential refused");
    expect(refusals).toEqual(
      reason === undefined
        ? []
        : [
            {
              level: "warn",
              fields: { surface: "bearer", reason, address: "127.0.0.1" },
              message: "credential refused",
            },
          ],
    );
    expect(text()).not.toMatch(/s3cret|czNjcmV0|todo_/);
  });

  test("has one line per network and reason, and a summary that counts the rest", async () => {
    const { log, lines } = capturingLog();
    await using service = startService({
      credentials: { lookupClient },
      log,
      network: { trustedProxies: ["127.0.0.1"] },
    });
    const send = async (token: string, address: string, times: number): Promise<void> => {
      const headers = { Authorization: `Bearer ${token}`, "X-Forwarded-For": address };
      for (let time = 0; time < times; time++) await service.send("GET", "/api/whoami", { headers });
    };
    await send("x", "192.0.2.7", 20);
    await send("x x", "192.0.2.7", 3);
    await send("x", "2001:db8::1", 2);
    await send("x", "2001:db8::2", 2);
    service.close();
    const fields = (reason: string, address: string) => ({ surface: "bearer", reason, address });
    expect(lines.map(({ fields }) => fields)).toEqual([
      fields("unknown", "192.0.2.7"),
      fields("malformed", "192.0.2.7"),
      fields("unknown", "2001:db8::1"),
      { ...fields("unknown", "192.0.2.7"), times: 19 },
      { ...fields("malformed", "192.0.2.7"), times: 2 },
      { ...fields("unknown", "2001:db8::2"), times: 3 },
    ]);
  });
});
