import { describe, expect, test } from "bun:test";
import { capturingLog } from "../../test/log.ts";
import { lookalikesOf } from "../../test/lookalikes.ts";
import { request, statusOf } from "../../test/message.ts";
import { verdict } from "../../test/problem.ts";
import { sendRaw } from "../../test/raw.ts";
import { startService } from "../../test/service.ts";
import { lookupAmong } from "../credential/client.ts";
import { hashToken, mintToken } from "../credential/token.ts";
import { Failure } from "../failure.ts";

const TOKEN = "s3cret/token+~.==";
const ODD_TOKEN = "!\"#$%&'()*+-./:;<=>?@[\\]^_`{|}~";
const NAME = "Zoë 😀";
const AUTHORIZED = { headers: { Authorization: `Bearer ${TOKEN}` } };
const CHALLENGE = 'Bearer realm="todo api"';
const INVALID = `${CHALLENGE}, error="invalid_token"`;

const lookupClient = lookupAmong(
  [TOKEN, ODD_TOKEN].map((token) => ({ client: { name: NAME }, tokenHash: hashToken(token) })),
);

/** The name as a raw answer, which is read as Latin-1, shows it. */
const RAW_NAME = Buffer.from(NAME).toString("latin1");

describe("GET /api/whoami", () => {
  test("answers with the client's name as text, and nothing else", async () => {
    const { log, lines } = capturingLog();
    await using service = startService({ lookupClient, log });
    const response = await service.send("GET", "/api/whoami", AUTHORIZED);
    expect(response.status).toBe(200);
    expect(response.headers.get("content-type")).toBe("text/plain; charset=utf-8");
    expect(await response.text()).toBe(NAME);
    expect(lines).toEqual([]);
  });

  test.each([
    ["as RFC 6750 writes it", `Bearer ${TOKEN}`],
    ["under a scheme in lower case", `bearer ${TOKEN}`],
    ["under a scheme in upper case", `BEARER ${TOKEN}`],
    ["behind several spaces", `bEaReR    ${TOKEN}`],
    ["with white space around", ` \t Bearer ${TOKEN} \t `],
    ["of every character but a comma", `Bearer ${ODD_TOKEN}`],
  ])("knows a token %s", async (_what, header) => {
    await using service = startService({ lookupClient });
    const { text } = await sendRaw(service.port, request("GET /api/whoami", [`Authorization: ${header}`]));
    expect(statusOf(text)).toBe(200);
    expect(text).toEndWith(`\r\n\r\n${RAW_NAME}`);
  });

  test.each<[what: string, challenge: string, headers: readonly string[]]>([
    ["no header", CHALLENGE, []],
    ["an empty header", CHALLENGE, ["Authorization:"]],
    ["the token without a scheme", CHALLENGE, [`Authorization: ${TOKEN}`]],
    ["the token under Basic", CHALLENGE, [`Authorization: Basic ${TOKEN}`]],
    ["the token under Token", CHALLENGE, [`Authorization: Token ${TOKEN}`]],
    ["a scheme that begins alike", CHALLENGE, [`Authorization: Bearers ${TOKEN}`]],
    ["a scheme run into the token", CHALLENGE, [`Authorization: Bearer${TOKEN}`]],
    ["a scheme in quotes", CHALLENGE, [`Authorization: "Bearer" ${TOKEN}`]],
    ["the token as a cookie", CHALLENGE, [`Cookie: access_token=${TOKEN}; Authorization=Bearer ${TOKEN}`]],
    ["the token for a proxy", CHALLENGE, [`Proxy-Authorization: Bearer ${TOKEN}`]],
    ["the token in a header of our own", CHALLENGE, [`X-Authorization: Bearer ${TOKEN}`]],
    ["a scheme alone", INVALID, ["Authorization: Bearer"]],
    ["a scheme and spaces", INVALID, ["Authorization: Bearer    "]],
    ["an unknown token", INVALID, ["Authorization: Bearer unknown"]],
    ["the token without its end", INVALID, [`Authorization: Bearer ${TOKEN.slice(0, -1)}`]],
    ["the token with more behind", INVALID, [`Authorization: Bearer ${TOKEN}=`]],
    ["the token in another case", INVALID, [`Authorization: Bearer ${TOKEN.toUpperCase()}`]],
    ["the token in quotes", INVALID, [`Authorization: Bearer "${TOKEN}"`]],
    ["the token as a parameter", INVALID, [`Authorization: Bearer token=${TOKEN}`]],
    ["the token twice", INVALID, [`Authorization: Bearer ${TOKEN} ${TOKEN}`]],
    ["the token percent-encoded", INVALID, [`Authorization: Bearer ${encodeURIComponent(TOKEN)}`]],
    ["the token's hash", INVALID, [`Authorization: Bearer ${hashToken(TOKEN).toString("hex")}`]],
    ["a comma behind the token", INVALID, [`Authorization: Bearer ${TOKEN},`]],
    ["two credentials in one header", INVALID, [`Authorization: Bearer ${TOKEN}, Bearer ${TOKEN}`]],
    [
      "two headers that are the same",
      INVALID,
      [`Authorization: Bearer ${TOKEN}`, `Authorization: Bearer ${TOKEN}`],
    ],
    ["two headers, one wrong", INVALID, ["Authorization: Bearer x", `Authorization: Bearer ${TOKEN}`]],
    [
      "a header of another scheme first",
      CHALLENGE,
      ["Authorization: Basic eDp5", `Authorization: Bearer ${TOKEN}`],
    ],
    ["a token that is not ASCII", INVALID, ["Authorization: Bearer s\xe9cret"]],
    ["a control character", INVALID, [`Authorization: Bearer ${TOKEN}\x7f`]],
    ["the name", INVALID, [`Authorization: Bearer ${RAW_NAME}`]],
    ["__proto__", INVALID, ["Authorization: Bearer __proto__"]],
    ["constructor", INVALID, ["Authorization: Bearer constructor"]],
    ["undefined", INVALID, ["Authorization: Bearer undefined"]],
    ["a long token", INVALID, [`Authorization: Bearer ${"x".repeat(10_000)}`]],
  ])("refuses %s", async (_what, challenge, headers) => {
    await using service = startService({ lookupClient });
    const { text } = await sendRaw(service.port, request("GET /api/whoami", headers));
    expect(statusOf(text)).toBe(401);
    expect(/^www-authenticate: (.*)\r$/im.exec(text)?.[1]).toBe(challenge);
    expect(text).toMatch(/^cache-control: no-store\r$/im);
    expect(text).not.toContain(RAW_NAME);
  });

  test.each(["access_token", "token", "authorization", "Authorization"])(
    "takes no token from ?%s=",
    async (name) => {
      await using service = startService({ lookupClient });
      for (const value of [TOKEN, `Bearer ${TOKEN}`]) {
        const response = await service.send("GET", `/api/whoami?${name}=${encodeURIComponent(value)}`);
        expect(await verdict(response)).toEqual([401, "unauthorized"]);
        expect(response.headers.get("www-authenticate")).toBe(CHALLENGE);
      }
    },
  );

  test("answers a refusal with 401, however many came before", async () => {
    await using service = startService({ lookupClient, basicFailures: 1 });
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
    await using service = startService({ lookupClient });
    const refused = await service.send(method, path);
    expect(refused.status).toBe(401);
    expect(refused.headers.get("www-authenticate")).toBe(CHALLENGE);
    const allowed = await service.send(method, path, AUTHORIZED);
    expect(await verdict(allowed)).toEqual(expected);
    for (const { headers } of [refused, allowed]) expect(headers.get("cache-control")).toBe("no-store");
    if (allowed.status === 405) expect(allowed.headers.get("allow")).toBe("GET, HEAD, OPTIONS");
  });

  test.each(lookalikesOf("/api/whoami"))("lets nobody pass to %j", async (target) => {
    await using service = startService({ lookupClient });
    for (const method of ["GET", "HEAD", "POST"]) {
      const { text } = await sendRaw(service.port, request(`${method} ${target}`));
      expect([target, statusOf(text)]).not.toEqual([target, 200]);
      expect(text).not.toContain(RAW_NAME);
      if (/^\/api\/whoami(?:[/?]|$)/.test(target)) expect([target, statusOf(text)]).toEqual([target, 401]);
    }
  });

  test.each(["/api/whoamix", "/api/whoam", "/api/todos", "/api"])("leaves %s alone", async (path) => {
    await using service = startService({ lookupClient });
    const { status, headers } = await service.send("GET", path, { headers: { Authorization: "Bearer x" } });
    expect(status).toBe(path === "/api/todos" ? 200 : 404);
    expect(headers.get("www-authenticate")).toBeNull();
  });
});

describe("the look-up of a token", () => {
  test("the lookup may be asynchronous", async () => {
    const waiting = new Map<string, () => void>();
    await using service = startService({
      lookupClient: async (token) => {
        const { promise, resolve } = Promise.withResolvers<void>();
        waiting.set(token, resolve);
        if (waiting.size === 20) for (const resolve of [...waiting.values()].reverse()) resolve();
        await promise;
        return token.endsWith("7") ? undefined : { name: `client of ${token}` };
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

  test("is handed the token and nothing else, and not asked without one", async () => {
    const calls: unknown[][] = [];
    await using service = startService({
      lookupClient: (...call) => {
        calls.push(call);
        return undefined;
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
    ["rejects", () => Promise.reject(cause)],
    [
      "throws",
      () => {
        throw cause;
      },
    ],
    ["throws what is no error", () => Promise.reject("s3cret")],
    ["throws undefined", () => Promise.reject(undefined)],
    ["throws a failure of its own", () => Promise.reject(new Failure("unauthorized", { detail: "s3cret" }))],
  ])("that %s is a 503, never a 401, and keeps its message", async (_what, lookupClient) => {
    const { log, lines } = capturingLog();
    await using service = startService({ lookupClient, log });
    for (const path of ["/api/whoami", "/api/whoami/x"]) {
      const response = await service.send("GET", path, AUTHORIZED);
      expect(response.headers.get("retry-after")).toBe("5");
      expect(response.headers.get("www-authenticate")).toBeNull();
      expect(response.headers.get("cache-control")).toBe("no-store");
      expect(`${[...response.headers]}${await response.clone().text()}`).not.toContain("s3cret");
      expect(await verdict(response)).toEqual([503, "credentials_unavailable"]);
    }
    expect(lines.map(({ level }) => level)).toEqual(["error", "error"]);
  });

  test("that was never configured lets nobody pass", async () => {
    await using service = startService();
    for (const path of ["/api/whoami", "/api/whoami/x"]) {
      const response = await service.send("GET", path, AUTHORIZED);
      expect(await verdict(response)).toEqual([401, "unauthorized"]);
    }
  });

  test("may yield null for nothing, as plain JavaScript does", async () => {
    await using service = startService({ lookupClient: () => JSON.parse("null") });
    for (const path of ["/api/whoami", "/api/whoami/x"]) {
      const response = await service.send("GET", path, AUTHORIZED);
      expect(await verdict(response)).toEqual([401, "unauthorized"]);
    }
  });
});

describe("the log of refused tokens", () => {
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
  ])("says %s, and never the token", async (reason, header) => {
    const { log, lines, text } = capturingLog();
    await using service = startService({ lookupClient, log, accessLog: true });
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

  test("says whose it was behind a trusted proxy", async () => {
    const { log, lines } = capturingLog();
    await using service = startService({ lookupClient, log, trustedProxies: ["127.0.0.1"] });
    const headers = { Authorization: "Bearer x", "X-Forwarded-For": "192.0.2.7" };
    expect((await service.send("GET", "/api/whoami", { headers })).status).toBe(401);
    expect(lines.map(({ fields }) => fields.address)).toEqual(["192.0.2.7"]);
  });
});
