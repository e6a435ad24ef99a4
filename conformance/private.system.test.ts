/** Tests of the kit's private mode: it accepts the reference server and rejects each faulty server by one rule. */
import { describe, expect, test } from "bun:test";
import {
  listedOrigin,
  parseAuthorization,
  privateServer,
  readToken,
  type Steps,
  steps,
  withHeaders,
} from "./private-reference-server.ts";
import {
  clientName,
  type Handler,
  handleRequest,
  type ParsedRequest,
  problem,
  type State,
  storeTodo,
  token,
  user,
  withServer,
} from "./reference-server.ts";
import { privateRules, type Rule, type RuleId } from "./rules.ts";
import { checkServer, type Options, type Report, rulesFor } from "./runner.ts";
import { ownProperty, parseJson } from "./target-client.ts";

const privateMode = { readToken, corsOrigin: listedOrigin };
const ALL_OPTIONS = { token, user, clientName, fresh: true, privateMode };

function check(handler: Handler, options: Omit<Options, "baseUrl"> = ALL_OPTIONS): Promise<Report> {
  const state: State = { todos: new Map(), lastId: 0n };
  return withServer(handler, state, (baseUrl) => checkServer({ baseUrl, timeoutMs: 60_000, ...options }));
}

function idsWithStatus(report: Report, status: string): string[] {
  return report.results.filter((result) => result.status === status).map(({ rule }) => rule.id);
}

/** Handles requests for which `handle` returns a response before the guard, and all others by the reference server. */
function beforeGuard(
  handle: (request: ParsedRequest, state: State) => Response | undefined | Promise<Response | undefined>,
  changed: Partial<Steps> = {},
): Handler {
  const server = privateServer(changed);
  return async (request, state) => (await handle(request, state)) ?? server(request, state);
}

/** Changes every response. */
function withResponse(change: (response: Response, request: ParsedRequest) => Response): Handler {
  const server = privateServer();
  return async (request, state) => change(await server(request, state), request);
}

const isGuarded = ({ path }: ParsedRequest): boolean => !/^\/(api\/whoami|admin|livez|readyz)/.test(path);
const isBasic = ({ authorization }: ParsedRequest): boolean => authorization.startsWith("Basic ");
const isAnonymous = ({ authorization }: ParsedRequest): boolean => authorization === "";

/** Faulty servers, each with the one rule that must fail. */
const FAULTS: Readonly<Record<string, [Handler, RuleId]>> = {
  "does not guard /docs": [
    beforeGuard(({ path }) => (path === "/docs" ? new Response("docs") : undefined)),
    "private.guard.path",
  ],
  "does not guard the list": [
    beforeGuard((request, state) =>
      isAnonymous(request) && request.method === "GET" && request.path === "/api/todos"
        ? handleRequest(request, state)
        : undefined,
    ),
    "private.guard.path",
  ],
  "does not guard the event stream": [
    beforeGuard(({ path }) =>
      path === "/api/events"
        ? new Response(new ReadableStream({ start: (events) => events.enqueue(":\n") }), {
            headers: { "content-type": "text/event-stream" },
          })
        : undefined,
    ),
    "private.guard.path",
  ],
  "sends 404 before 401": [
    beforeGuard((request, state) => {
      if (request.method !== "GET" || !isGuarded(request) || !isAnonymous(request)) return undefined;
      const response = handleRequest(request, state);
      const isKnown = ["/", "/docs", "/favicon.ico", "/api/openapi.json", "/api/events"].includes(
        request.path,
      );
      return response.status === 404 && !isKnown ? response : undefined;
    }),
    "private.guard.unknown-path",
  ],
  "does not guard paths below /livez": [
    beforeGuard(({ path }) => (path.startsWith("/livez/") ? problem(404) : undefined)),
    "private.guard.unknown-path",
  ],
  "sends 405 before 401": [
    beforeGuard(({ method, path }) =>
      path === "/api/todos" && !["GET", "HEAD", "POST", "OPTIONS"].includes(method)
        ? problem(405)
        : undefined,
    ),
    "private.guard.method",
  ],
  "responds to OPTIONS without credentials": [
    beforeGuard((request) =>
      request.method === "OPTIONS" && isGuarded(request) && !request.headers.has("origin")
        ? new Response(null, { status: 204, headers: { allow: "GET, POST" } })
        : undefined,
    ),
    "private.guard.method",
  ],
  "validates the body before the guard": [
    beforeGuard(({ method, body }) =>
      method === "POST" && body !== "" && parseJson(body) === undefined ? problem(400) : undefined,
    ),
    "private.guard.input",
  ],
  "validates the id before the guard": [
    beforeGuard((request, state) => {
      const response = request.path.startsWith("/api/todos/abc") ? handleRequest(request, state) : undefined;
      return response?.status === 400 ? response : undefined;
    }),
    "private.guard.input",
  ],
  "sends 304 before 401": [
    beforeGuard(({ headers }) =>
      headers.has("if-none-match") ? new Response(null, { status: 304 }) : undefined,
    ),
    "private.guard.not-modified",
  ],
  "stores a to-do that it rejects": [
    beforeGuard((request, state) => {
      const title = ownProperty(parseJson(request.body), "title");
      if (isAnonymous(request) && request.method === "POST" && typeof title === "string" && title !== "")
        storeTodo(title, state);
      return undefined;
    }),
    "private.guard.unchanged",
  ],
  "deletes before it rejects an unknown token": [
    beforeGuard(({ method, path, authorization }, { todos }) => {
      const id = /^\/api\/todos\/(\d+)$/.exec(path)?.[1];
      if (method === "DELETE" && id !== undefined && /unknown/.test(authorization)) todos.delete(BigInt(id));
      return undefined;
    }),
    "private.guard.unchanged",
  ],
  "serves a path with two slashes without a guard": [
    beforeGuard((request, state) =>
      request.path.startsWith("//api/")
        ? handleRequest({ ...request, path: request.path.slice(1) }, state)
        : undefined,
    ),
    "private.guard.variants",
  ],
  "requires credentials for the health checks": [
    privateServer({
      isOpen: (request) => steps.isOpen(request) && request.method === "OPTIONS",
    }),
    "private.health.open",
  ],
  "requires credentials for preflights": [
    privateServer({ isOpen: (request) => steps.isOpen(request) && request.method !== "OPTIONS" }),
    "private.preflight.open",
  ],
  "sends no challenge": [
    withResponse((response, request) => {
      if (isGuarded(request) && response.status === 401) response.headers.delete("www-authenticate");
      return response;
    }),
    "private.challenge.both",
  ],
  "sends only the Bearer challenge to programs": [
    privateServer({
      challenge: (request) =>
        request.headers.has("sec-fetch-mode") ? steps.challenge(request) : 'Bearer realm="todo"',
    }),
    "private.challenge.both",
  ],
  "sends only the Bearer challenge to navigations": [
    privateServer({
      challenge: (request) =>
        request.headers.get("sec-fetch-mode") === "navigate"
          ? 'Bearer realm="todo"'
          : steps.challenge(request),
    }),
    "private.challenge.both",
  ],
  "sends both challenges to each request of a page": [
    privateServer({ challenge: () => 'Basic realm="todo", charset="UTF-8", Bearer realm="todo"' }),
    "private.challenge.bearer",
  ],
  "has another realm for Basic": [
    privateServer({
      challenge: (request) =>
        steps.challenge(request).replace('Basic realm="todo"', 'Basic realm="todo admin"'),
    }),
    "private.challenge.realm",
  ],
  "has no realm for Bearer": [
    privateServer({
      challenge: (request) => steps.challenge(request).replace('Bearer realm="todo"', "Bearer"),
    }),
    "private.challenge.realm",
  ],
  "sends a 401 without Vary": [
    withResponse((response) => {
      if (response.status === 401) response.headers.delete("vary");
      return response;
    }),
    "private.challenge.vary",
  ],
  "has the same realm for the list and /admin/": [
    withResponse((response, { path }) =>
      path.startsWith("/admin") && response.status === 401
        ? withHeaders(response, { "www-authenticate": 'Basic realm="todo"' })
        : response,
    ),
    "private.admin.realm",
  ],
  "accepts no bearer token": [
    privateServer({
      identify: (request) => (isBasic(request) ? steps.identify(request) : undefined),
    }),
    "private.token.accepted",
  ],
  "accepts any bearer token": [
    privateServer({
      identify: (request) =>
        steps.identify(request) ??
        (request.authorization.startsWith("Bearer ") ? { isBasic: false, mayWrite: true } : undefined),
    }),
    "private.token.rejected",
  ],
  "compares only the first characters of a token": [
    privateServer({
      identify: (request) =>
        steps.identify({
          ...request,
          authorization: request.authorization.replace(/^Bearer Reference-Token.*/, `Bearer ${token}`),
        }),
    }),
    "private.token.rejected",
  ],
  "responds to an unknown token with 403": [
    beforeGuard((request) =>
      isGuarded(request) &&
      !isAnonymous(request) &&
      steps.identify(request) === undefined &&
      !isBasic(request)
        ? problem(403)
        : undefined,
    ),
    "private.token.rejected",
  ],
  "accepts no user": [
    privateServer({
      identify: (request) =>
        request.authorization === `Basic ${btoa(`${user.name}:${user.password}`)}`
          ? undefined
          : steps.identify(request),
    }),
    "private.user.accepted",
  ],
  "ignores the password": [
    privateServer({
      identify: (request) => {
        const isKnown = parseAuthorization(request.authorization)?.name === user.name;
        return steps.identify(request) ?? (isKnown ? { isBasic: true, mayWrite: true } : undefined);
      },
    }),
    "private.user.rejected",
  ],
  "accepts no token as a password": [
    privateServer({
      identify: (request) =>
        isBasic(request) && parseAuthorization(request.authorization)?.secret === token
          ? undefined
          : steps.identify(request),
    }),
    "private.password.accepted",
  ],
  "accepts a token with any scheme": [
    privateServer({
      identify: (request) =>
        steps.identify(
          request.authorization.endsWith(token) ? { ...request, authorization: `Bearer ${token}` } : request,
        ),
    }),
    "private.scheme.rejected",
  ],
  "accepts users at whoami": [
    privateServer({
      handleGuarded: (request, state) =>
        request.path === "/api/whoami" && steps.identify(request) !== undefined
          ? new Response(clientName)
          : steps.handleGuarded(request, state),
    }),
    "private.whoami.bearer-only",
  ],
  "accepts a token as a password at /admin/": [
    privateServer({
      handleGuarded: (request, state) =>
        request.path === "/admin/" && isBasic(request) && steps.identify(request) !== undefined
          ? new Response(`Hello, ${user.name}!`)
          : steps.handleGuarded(request, state),
    }),
    "private.admin.users-only",
  ],
  "rejects the read token": [
    privateServer({
      identify: (request) =>
        request.authorization.includes(readToken) ? undefined : steps.identify(request),
    }),
    "private.read.accepted",
  ],
  "ignores the scope": [
    privateServer({
      identify: (request) => {
        const identity = steps.identify(request);
        return identity && { ...identity, mayWrite: true };
      },
    }),
    "private.read.rejected",
  ],
  "ignores the scope of a token as a password": [
    privateServer({
      identify: (request) => {
        const identity = steps.identify(request);
        return identity && { ...identity, mayWrite: identity.mayWrite || identity.isBasic };
      },
    }),
    "private.read.rejected",
  ],
  "checks only the scope of a POST": [
    privateServer({
      identify: (request) => {
        const identity = steps.identify(request);
        return identity && { ...identity, mayWrite: identity.mayWrite || request.method !== "POST" };
      },
    }),
    "private.read.rejected",
  ],
  "sends a 403 without a challenge": [
    withResponse((response) => {
      if (response.status === 403) response.headers.delete("www-authenticate");
      return response;
    }),
    "private.read.challenge",
  ],
  "rejects every Origin": [
    privateServer({ isOwnOrigin: ({ headers }) => !headers.has("origin") }),
    "private.basic.own-origin",
  ],
  "does not check the origin": [privateServer({ isOwnOrigin: () => true }), "private.basic.cross-site"],
  "checks only Sec-Fetch-Site": [
    privateServer({
      isOwnOrigin: ({ headers }) => ["same-origin", "none"].includes(headers.get("sec-fetch-site") ?? "none"),
    }),
    "private.basic.cross-site",
  ],
  "allows credentials of the listed origin": [
    withResponse((response, { headers }) =>
      headers.get("origin") === listedOrigin
        ? withHeaders(response, { "access-control-allow-credentials": "true" })
        : response,
    ),
    "private.cors.no-credentials",
  ],
  "allows shared caches to store the list": [
    withResponse((response, { path }) =>
      path === "/api/todos" ? withHeaders(response, { "cache-control": "public, max-age=60" }) : response,
    ),
    "private.cache.private",
  ],
  "sends a to-do without Vary": [
    withResponse((response, { path }) =>
      path.startsWith("/api/todos/") && response.ok ? withHeaders(response, { vary: "Origin" }) : response,
    ),
    "private.cache.vary",
  ],
  "shares idempotency keys": [
    (() => {
      const bodies = new Map<string, string>();
      return privateServer({
        handle: async (request, state, identity) => {
          const key = request.headers.get("idempotency-key");
          const known = key === null ? undefined : bodies.get(key);
          if (known !== undefined)
            return new Response(known, { status: 201, headers: { "content-type": "application/json" } });
          const response = await steps.handle(request, state, identity);
          if (key !== null) bodies.set(key, await response.clone().text());
          return response;
        },
      });
    })(),
    "private.idempotency",
  ],
};

test("rulesFor replaces the rules of open to-dos in private mode", () => {
  const [openIds, privateIds] = [rulesFor({}), rulesFor({ privateMode: {} })].map((rules) =>
    rules.map(({ id }) => id),
  );
  const added = privateRules.map(({ id }) => id);
  expect(openIds?.filter((id) => !privateIds?.includes(id))).toEqual([
    "todos.open",
    "todos.no-authentication",
  ]);
  expect(privateIds?.filter((id) => !openIds?.includes(id))).toEqual(added);
});

test("each rule of private mode is violated by a faulty server", () => {
  const violated = new Set<string>(Object.values(FAULTS).map(([, id]) => id));
  expect(privateRules.map(({ id }) => id).filter((id) => !violated.has(id))).toEqual([]);
});

describe("checkServer in private mode", () => {
  test("accepts the reference server", async () => {
    const report = await check(privateServer());
    expect(idsWithStatus(report, "failed")).toEqual([]);
    expect(idsWithStatus(report, "skipped")).toEqual([]);
    expect(report.passed).toBe(true);
  });

  test.each(Object.entries(FAULTS))("rejects a server that %s", async (_, [handler, expected]) => {
    const report = await check(handler);
    expect(idsWithStatus(report, "failed")).toEqual([expected]);
    expect(report.passed).toBe(false);
    // A report may be published, so it must contain no credential.
    for (const secret of [token, readToken, user.password])
      expect(JSON.stringify(report)).not.toContain(secret);
  });

  test("rejects a server that is not in private mode", async () => {
    const report = await check(handleRequest);
    expect(idsWithStatus(report, "failed")).toContain("private.guard.path");
  });

  test("reports a faulty to-do route as it does without private mode", async () => {
    const report = await check(
      privateServer({
        handle: async (request, state, identity) => {
          const response = await steps.handle(request, state, identity);
          return response.status === 201
            ? new Response(response.body, { status: 200, headers: response.headers })
            : response;
        },
      }),
    );
    expect(idsWithStatus(report, "failed")).toEqual(["create.201"]);
  });

  test("needs neither a token with the scope read nor a listed origin", async () => {
    const report = await check(privateServer(), { token, user, privateMode: {} });
    const skipped = report.results.filter(({ status }) => status === "skipped");
    const needs = new Set(skipped.map(({ rule }: { rule: Rule }) => rule.needs));
    expect(needs).toEqual(new Set(["fresh", "readToken", "corsOrigin"]));
    expect(report.passed).toBe(true);
  });

  test("fails without a user", async () => {
    const report = await check(privateServer(), { token, privateMode });
    expect(idsWithStatus(report, "failed")).toEqual([]);
    expect(idsWithStatus(report, "skipped")).toContain("private.user.accepted");
    expect(report.passed).toBe(false);
  });

  test("needs a token", async () => {
    const error = await check(privateServer(), { user, privateMode }).catch((error) => error);
    expect(error).toEqual(new Error("private mode needs a token"));
  });
});
