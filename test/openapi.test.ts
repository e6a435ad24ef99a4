import { describe, expect, test } from "bun:test";
import document from "../openapi.json" with { type: "json" };
import manifest from "../package.json" with { type: "json" };
import { ERRORS, ServiceError } from "../src/error.ts";
import { openMemory } from "../src/storage/memory/store.ts";
import { storeFull } from "../src/storage/store.ts";
import { mismatch, validateResponse } from "./openapi.ts";
import { request, sendRaw } from "./raw-http.ts";
import { errorOf } from "./rejection.ts";
import { startService, type TestService } from "./service.ts";
import { storeWith } from "./store.ts";

const statusOf = Object.fromEntries(Object.entries(ERRORS).map(([code, { status }]) => [code, status]));

type Tree = { [name: string]: unknown };

function isTree(value: unknown): value is Tree {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function* objectsOf(value: unknown, pointer = "#"): Generator<[pointer: string, object: Tree]> {
  if (isTree(value)) yield [pointer, value];
  if (typeof value !== "object" || value === null) return;
  for (const [name, inner] of Object.entries(value)) {
    yield* objectsOf(inner, `${pointer}/${name.replaceAll("~", "~0").replaceAll("/", "~1")}`);
  }
}

/** The examples of bodies, headers and parameters. The linter compares them with their schemas. */
function* examplesOf(root: unknown): Generator<[pointer: string, example: unknown]> {
  for (const [pointer, { schema, example, examples }] of objectsOf(root)) {
    if (!isTree(schema)) continue;
    if (example !== undefined) yield [`${pointer}/example`, example];
    for (const [name, entry] of Object.entries(isTree(examples) ? examples : {}))
      if (isTree(entry)) yield [`${pointer}/examples/${name}`, entry.value];
  }
}

const problems = [...objectsOf(document)].flatMap(([pointer, { schema }]) => {
  if (!pointer.endsWith("/application~1problem+json") || !isTree(schema)) return [];
  const codes = Object.entries(statusOf).filter(([code, status]) =>
    [undefined, "title", "done", "name", "overlap", "user"].some((field) => {
      const message = field === "overlap" ? "must be a string" : "is required";
      const errors = field === undefined ? {} : { errors: [{ field, message }] };
      return mismatch(schema, { type: `/docs#${code}`, title: "-", status, code, ...errors }) === undefined;
    }),
  );
  return [{ pointer, schema, codes }];
});

describe("openapi.json", () => {
  test("has the version of the package", () => {
    expect(document.info.version).toBe(manifest.version);
  });

  test("has an example for every operation", () => {
    const bare = [...objectsOf(document)].filter(
      ([pointer, { schema, example, examples }]) =>
        /\/content\/[^/]+$/.test(pointer) &&
        isTree(schema) &&
        example === undefined &&
        examples === undefined,
    );
    expect(bare.map(([pointer]) => pointer)).toEqual([]);
  });

  test("has the problems that the service sends as examples", async () => {
    const sent = new Set(await problemsOfService());
    const examples = [...examplesOf(document)].filter(
      ([, example]) => isTree(example) && "code" in example && "status" in example,
    );
    for (const [pointer, example] of examples)
      expect([pointer, example, sent.has(JSON.stringify(example))]).toEqual([pointer, example, true]);
    const codes = new Set(examples.map(([, example]) => isTree(example) && example.code));
    expect([...codes].sort()).toEqual(Object.keys(statusOf).sort());
  });

  test("gives every component a unique name", () => {
    const names = Object.values(document.components).flatMap((components) => Object.keys(components));
    expect(names.toSorted()).toEqual([...new Set(names)].sort());
  });

  test("allows for each status only the problems with that status", () => {
    for (const [pointer, object] of objectsOf(document)) {
      const status = /\/(\d{3})$/.exec(pointer)?.[1];
      if (status === undefined || Number(status) < 400) continue;
      const name = typeof object.$ref === "string" ? object.$ref : pointer;
      const bodies = problems.filter((problem) => problem.pointer.startsWith(`${name}/content/`));
      const statuses = bodies.flatMap(({ codes }) => codes.map(([, allowed]) => allowed));
      expect([pointer, ...new Set(statuses)]).toEqual([pointer, Number(status)]);
    }
  });

  test("has schemas that code generators accept", () => {
    for (const [pointer, { $ref, const: constant, type, properties = {} }] of objectsOf(document)) {
      if (typeof $ref === "string")
        expect([pointer, $ref]).toEqual([pointer, expect.stringMatching(/^#\/components\/\w+\/\w+$/)]);
      if (constant !== undefined) expect([pointer, type]).toEqual([pointer, expect.any(String)]);
      expect([pointer, isTree(properties) && Object.values(properties).includes(false)]).toEqual([
        pointer,
        false,
      ]);
    }
  });

  test("requires nosniff on every response", () => {
    const answers = [...objectsOf(document)].filter(
      ([, object]) => typeof object.description === "string" && isTree(object.headers),
    );
    expect(answers.length).toBeGreaterThan(30);
    for (const [pointer, { headers }] of answers) {
      expect([pointer, headers]).toEqual([
        pointer,
        expect.objectContaining({ "X-Content-Type-Options": { $ref: "#/components/headers/NoSniff" } }),
      ]);
    }
  });
});

/** Starts services in which every error occurs, and returns the bodies of their responses. */
async function problemsOfService(): Promise<string[]> {
  const bodies: string[] = [];
  type Init = Readonly<{ headers?: Record<string, string>; json?: unknown; body?: string }>;
  const send = async (
    service: TestService,
    line: string,
    { headers, json, body }: Init = {},
  ): Promise<void> => {
    const [method = "", path = ""] = line.split(" ");
    const init = { headers: { "Content-Type": "application/json", ...headers } };
    const sent = json === undefined ? body : JSON.stringify(json);
    const response = await service.send(method, path, { ...init, ...(sent !== undefined && { body: sent }) });
    bodies.push(await response.text());
  };
  const basic = { Authorization: `Basic ${btoa("admin:secret")}` };
  const bearer = { Authorization: "Bearer token" };
  const crossSite = { "Sec-Fetch-Site": "cross-site" };
  const checkUser = (_user: string, password: string): boolean => password === "secret";

  const memory = openMemory();
  await using service = startService({
    store: memory,
    credentials: { keys: memory.keys, checkUser },
    network: { onLoopback: true },
  });
  const todos = "POST /api/todos";
  const keys = "POST /admin/keys";
  await send(service, "GET /api/todos/x");
  await send(service, "GET /api/todos?limit=0");
  await send(service, todos);
  await send(service, todos, { headers: { "Idempotency-Key": "two words" }, json: { title: "x" } });
  await send(service, "GET /api/whoami");
  await send(service, "GET /admin/", { headers: { ...basic, "X-Forwarded-For": "192.0.2.1" } });
  await send(service, todos, { headers: crossSite, json: { title: "x" } });
  await send(service, keys, { headers: { ...basic, ...crossSite }, json: { name: "ci" } });
  await send(service, "GET /x");
  await send(service, "GET /api/todos/9");
  await send(service, "DELETE /admin/keys/c7kcKWBu", { headers: basic });
  await send(service, "PUT /api/todos");
  await send(service, keys, { headers: basic, json: { name: "ci" } });
  await send(service, keys, { headers: basic, json: { name: "ci" } });
  await send(service, todos, { body: "x".repeat(65_537) });
  await send(service, todos, { headers: { "Content-Type": "text/plain" }, body: "x" });
  await send(service, "GET /api/todos", { headers: { Host: "todo.example" } });
  await send(service, todos, { json: { title: " " } });
  await send(service, todos, { json: { title: " ".repeat(121) } });
  await send(service, todos, { json: {} });
  await send(service, keys, { headers: basic, json: { name: " ", expires: "1y" } });
  await send(service, keys, { headers: basic, json: {} });
  const [key] = await memory.keys.list();
  await send(service, `POST /admin/keys/${key?.id}/rotate`, { headers: basic, json: { overlap: 1 } });
  const once = { "Idempotency-Key": "once" };
  await send(service, todos, { headers: once, json: { title: "one" } });
  await send(service, todos, { headers: once, json: { title: "other" } });
  await send(service, "PATCH /api/todos/1", { json: { done: "true" } });

  const lookupClient = () => ({ name: "ci", scope: "read" as const });
  await using readOnly = startService({ access: { privateMode: true }, credentials: { lookupClient } });
  await send(readOnly, todos, { headers: bearer, json: { title: "x" } });
  await using closed = startService({
    access: { privateMode: true },
    credentials: { keys: memory.keys, checkUser },
  });
  await send(closed, "POST /api/session", { json: {} });

  const insert = () => Promise.reject(storeFull(1_000_000));
  const get = () => Promise.reject(new ServiceError("store_unavailable"));
  const list = () => Promise.reject(new Error("a fault"));
  await using failing = startService({
    store: storeWith({ insert, get, list }),
    credentials: { lookupClient: () => Promise.reject(new Error("a fault")) },
    access: { basicFailures: 1 },
    monotonicNow: () => 0,
  });
  await send(failing, todos, { json: { title: "x" } });
  await send(failing, "GET /api/todos/1");
  await send(failing, "GET /api/todos");
  await send(failing, "GET /api/whoami", { headers: bearer });
  await send(failing, "GET /admin/", { headers: basic });
  await send(failing, "GET /admin/", { headers: basic });
  const unfinished = request(todos, ["Content-Type: application/json", "Content-Length: 9"], "{");
  await using impatient = startService({ limits: { bodyTimeoutMs: 1 } });
  const { text } = await sendRaw(impatient.port, unfinished);
  bodies.push(text.slice(text.indexOf("{")));
  impatient.drain();
  await send(impatient, "GET /readyz");

  await using full = startService({ limits: { maxRequests: 0, overloadDelayMs: 0 } });
  await send(full, "GET /api/todos");
  return bodies;
}

const milk = { id: 1, title: "Buy milk", done: false };
const noStore = { "cache-control": "no-store" };

function reply(status: number, body: string | null, headers: Record<string, string> = {}): Response {
  return new Response(body, { status, headers: { "x-content-type-options": "nosniff", ...headers } });
}

function json(status: number, value: unknown, headers: Record<string, string> = {}): Response {
  return reply(status, JSON.stringify(value), { "content-type": "application/json", ...headers });
}

function problem(
  status: number,
  code: string,
  headers: Record<string, string> = {},
  more: object = {},
): Response {
  const type = { "content-type": "application/problem+json" };
  return json(status, { type: `/docs#${code}`, title: "-", status, code, ...more }, { ...type, ...headers });
}

const text = { "content-type": "text/plain; charset=utf-8" };
const html = { "content-type": "text/html; charset=utf-8" };
const list = { "cache-control": "no-cache", etag: '"9f86d081-42"', "todo-position": "9f86d081-42" };
const bearer = { ...noStore, "www-authenticate": 'Bearer realm="todo api"' };
const get = { allow: "GET, HEAD, OPTIONS" };

const wrong: [what: string, line: string, complaint: string, response: Response][] = [
  ["an undocumented status", "GET /api/todos/1", "only 200, 400", json(202, milk)],
  ["an extra key", "GET /api/todos/1", "additional properties", json(200, { ...milk, due: null })],
  ["an id with a fraction", "GET /api/todos/1", "/id must be integer", json(200, { ...milk, id: 1.5 })],
  ["a missing media type", "HEAD /api/todos", "Content-Type is null", reply(200, null, list)],
  ["an error page of the API", "GET /api/todos/9", "Content-Type is text/html", reply(404, "<p>", html)],
  ["a missing header", "DELETE /api/todos/1", "Todo-Position is missing", reply(204, null)],
  ["a weak ETag", "GET /api/todos", "ETag is", json(200, [], { ...list, etag: 'W/"1-1"' })],
  ["a 404 below /admin without no-store", "GET /admin/x", "no-store", problem(404, "route_not_found")],
  [
    "a 401 with the wrong challenge",
    "GET /admin/",
    "WWW-Authenticate is",
    problem(401, "unauthorized", bearer),
  ],
  ["a body on a 204", "DELETE /api/todos/1", "body where none may be", reply(204, "gone")],
  ["a media type on a 204", "DELETE /api/todos/1", "but Content-Type is", reply(204, null, text)],
  ["a body on HEAD", "HEAD /api/todos", "body where none may be", json(200, [], list)],
  ["an error code of another status", "GET /api/todos/1", "/code must be", problem(404, "invalid_id")],
  ["a 422 without field errors", "POST /api/todos", "property 'errors'", problem(422, "validation_failed")],
  [
    "field errors on a 404",
    "GET /api/todos/1",
    "/errors",
    problem(404, "todo_not_found", {}, { errors: [] }),
  ],
  ["success on an unknown path", "GET /api/todos/", "only 401, 403, 404", json(200, [milk], list)],
  ["success on an unlisted method", "PUT /api/todos", "only 401, 403, 405", json(200, milk)],
  [
    "an Allow that lacks a method",
    "PUT /api/todos",
    "the methods are",
    problem(405, "method_not_allowed", get),
  ],
  ["OPTIONS without Allow", "OPTIONS /livez", "Allow is missing", reply(204, null)],
];

test.each(wrong)("validateResponse rejects %s", async (_what, line, complaint, response) => {
  const [method = "", path = ""] = line.split(" ");
  expect((await errorOf(validateResponse(method, path, response))).message).toContain(complaint);
});
