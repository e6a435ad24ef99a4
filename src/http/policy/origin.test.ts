import { expect, test } from "bun:test";
import { as, basic, mint } from "../../../test/credentials.ts";
import { statusAndCode } from "../../../test/problem.ts";
import { sendRaw, statusOf } from "../../../test/raw-http.ts";
import { startService } from "../../../test/service.ts";
import { openMemory } from "../../storage/memory/store.ts";
import type { ServiceOptions } from "../service.ts";

const LISTED = "https://app.example";
const APP = "capacitor://localhost";
const EXPOSED = "ETag, Link, Location, Retry-After, Todo-Position, X-Request-Id";
const TOKEN = { Authorization: "Bearer good" };
const lookupClient = (token: string) => (token === "good" ? { name: "client" } : undefined);

const corsOf = ({ headers }: Response) =>
  Object.fromEntries([...headers].filter(([name]) => name.startsWith("access-control-")));

async function statusWith(
  port: number,
  hosts: readonly string[],
  line = "GET /api/todos",
  headers: readonly string[] = [],
): Promise<number> {
  const head = [`${line} HTTP/1.1`, "Connection: close", ...hosts.map((host) => `Host: ${host}`), ...headers];
  const { text } = await sendRaw(port, `${head.join("\r\n")}\r\n\r\n`);
  return statusOf(text) ?? 0;
}

const NETWORKS: Readonly<Record<string, NonNullable<ServiceOptions["network"]>>> = {
  "on loopback": { onLoopback: true, allowedHosts: ["todo.example", "Todo.Example:8080"] },
  "on loopback without a list": { onLoopback: true },
  "off loopback": {},
  "off loopback with a list": { allowedHosts: ["todo.example"] },
  "with an own host": { ownHost: "own.example:3000" },
  "with an own host and a list": { ownHost: "own.example:3000", allowedHosts: ["todo.example"] },
  "behind a trusted proxy": { trustedProxies: ["127.0.0.1"] },
  "behind another proxy": { trustedProxies: ["192.0.2.1"] },
};
const FORWARDED = "X-Forwarded-For: 192.0.2.1";
const OVER_TLS = "X-Forwarded-Proto: https";

test.each<[network: string, status: number, hosts: string[], headers?: string[]]>([
  ["on loopback", 200, ["LocalHost:3000", "TODO.example", "todo.example:8080", "todo.example:443"]],
  ["on loopback", 421, ["todo.example:8081", "10.0.0.5", "nas.local", "elsewhere.example", ""]],
  ["on loopback without a list", 421, ["nas.local"]],
  ["off loopback", 200, ["10.0.0.5", "nas.local", "todo_api"]],
  ["off loopback", 421, ["elsewhere.example", ""]],
  // Loopback is accepted for health checks.
  ["off loopback with a list", 200, ["TODO.example", "127.0.0.1:3000"]],
  ["off loopback with a list", 421, ["elsewhere.example", "nas.local"]],
  ["with an own host", 200, ["own.example:3000", "nas.local"]],
  ["with an own host and a list", 200, ["own.example:3000", "todo.example:80"]],
  ["with an own host and a list", 421, ["nas.local"]],
  ["behind a trusted proxy", 200, ["todo.example"], [FORWARDED, OVER_TLS]],
  ["behind a trusted proxy", 200, ["todo.example"], [FORWARDED]],
  ["behind a trusted proxy", 421, ["todo.example"]],
  ["behind another proxy", 421, ["todo.example"], [FORWARDED, OVER_TLS]],
])("the Host of a request %s gets %d: %j", async (name, status, hosts, headers = []) => {
  await using service = startService({ network: NETWORKS[name] ?? {} });
  for (const host of hosts) {
    const received = await statusWith(service.port, [host], "GET /api/todos", headers);
    expect([host, received]).toEqual([host, status]);
  }
});

test("the Host of a request may not be sent twice", async () => {
  await using service = startService({ network: { onLoopback: true } });
  for (const hosts of [
    ["localhost", "elsewhere.example"],
    ["elsewhere.example", "localhost"],
  ])
    expect([400, 421]).toContain(await statusWith(service.port, hosts));
});

test("the Host of a request is checked before everything else, except for probes of load balancers", async () => {
  await using service = startService({ network: { onLoopback: true }, credentials: { lookupClient } });
  const lines = [
    ...["GET /nowhere", "PUT /api/todos", "GET /api/todos/abc", "GET /admin/", "OPTIONS /api/todos"],
  ];
  for (const line of lines)
    expect([line, await statusWith(service.port, ["elsewhere.example"], line)]).toEqual([line, 421]);
  for (const line of ["GET /livez", "HEAD /readyz"])
    expect([line, await statusWith(service.port, ["elsewhere.example"], line)]).toEqual([line, 200]);
  const Host = "elsewhere.example";
  const asked = { Host, Origin: "http://localhost", "Access-Control-Request-Method": "PUT" };
  for (const outcome of [
    await service.outcome("OPTIONS /api/todos", { headers: asked }),
    await service.outcome("POST /api/todos", { headers: { Host } }, { title: "x" }),
  ])
    expect(outcome).toBe("421 misdirected_host");
  expect(await (await service.send("GET", "/api/todos")).text()).toBe("[]");
});

test("the Host of a request may be absent in HTTP/1.0, which no browser uses", async () => {
  await using service = startService({ network: { onLoopback: true } });
  expect((await sendRaw(service.port, "GET /livez HTTP/1.0\r\n\r\n")).text).toEndWith("\r\n\r\nok\n");
});

test.each<[isListed: boolean, toLoopback: boolean, origin: string]>([
  [true, false, LISTED],
  [true, false, APP],
  [false, true, "tauri://localhost"],
  [true, true, "http://localhost:5173"],
  [false, false, "http://localhost:5173"],
  [false, true, "https://elsewhere.example"],
  [false, true, "null"],
  [false, true, `${LISTED}:8443`],
  [false, true, "https://APP.example"],
])("an Origin is accepted: %p, with a loopback Host: %p: %s", async (isListed, toLoopback, origin) => {
  await using service = startService({
    network: { corsOrigins: [LISTED, APP] },
    credentials: { lookupClient },
  });
  const host = toLoopback ? {} : { Host: "nas:3000" };
  await service.sendJson("POST", "/api/todos", { title: "x" });
  const plain = [
    ...["GET /", "GET /livez", "HEAD /api/todos", "GET /api/todos?limit=0", "PUT /api/todos", "GET /nowhere"],
    ...["OPTIONS /api/todos", "GET /api/whoami", "GET /admin/", "DELETE /api/todos/1"],
  ];
  const requests: readonly (readonly [line: string, headers: Readonly<Record<string, string>>])[] = [
    ...plain.map((line) => [line, {}] as const),
    ["GET /api/todos", { "If-None-Match": "*" }],
    ["POST /api/todos", { "Content-Type": "text/plain" }],
    ["GET /api/whoami", TOKEN],
  ];
  for (const [line, headers] of requests) {
    const [method = "", path = ""] = line.split(" ");
    const response = await service.send(method, path, { headers: { ...headers, ...host, Origin: origin } });
    const expected = {
      "access-control-allow-origin": origin,
      "access-control-expose-headers": EXPOSED,
    };
    expect([method, path, corsOf(response)]).toEqual([method, path, isListed ? expected : {}]);
    expect(response.headers.get("vary")).toMatch(/^Origin\b/);
    // No page can frame it, and only CORS lets a page load it.
    expect([
      response.headers.get("content-security-policy"),
      response.headers.get("cross-origin-resource-policy"),
    ]).toEqual(["frame-ancestors 'none'", "same-origin"]);
    const another = await service.send("GET", path);
    expect(corsOf(another)).toEqual({});
    expect(another.headers.get("vary")).toMatch(/^Origin\b/);
  }
});

const ask = { "Access-Control-Request-Method": "PATCH", "Access-Control-Request-Headers": "authorization" };
const paths: [path: string, methods: string, otherwise: number][] = [
  ["/", "GET, HEAD, OPTIONS", 204],
  ["/api/todos?limit=0", "GET, POST, HEAD, OPTIONS", 204],
  ["/api/todos/abc", "GET, PATCH, DELETE, HEAD, OPTIONS", 204],
  ["/api/whoami", "GET, HEAD, POST, PATCH, DELETE, OPTIONS", 401],
  ["/admin/keys", "GET, HEAD, POST, PATCH, DELETE, OPTIONS", 401],
  ["/admin/x", "GET, HEAD, POST, PATCH, DELETE, OPTIONS", 401],
  ["/nowhere", "GET, HEAD, POST, PATCH, DELETE, OPTIONS", 404],
];

test.each(paths)("a preflight to %s needs a listed origin and a method, no credentials", async (...row) => {
  const [path, methods, otherwise] = row;
  await using service = startService({ network: { corsOrigins: [LISTED] } });
  const response = await service.send("OPTIONS", path, { headers: { ...ask, Origin: LISTED } });
  expect(response.status).toBe(204);
  expect(corsOf(response)).toEqual({
    "access-control-allow-origin": LISTED,
    "access-control-allow-methods": methods,
    "access-control-allow-headers": "Authorization, *",
    "access-control-expose-headers": EXPOSED,
    "access-control-max-age": "600",
  });
  expect(response.headers.get("vary")).toMatch(/^Origin\b/);
  for (const headers of [{ ...ask, Origin: "null" }, ask, { Origin: LISTED }]) {
    const plain = await service.send("OPTIONS", path, { headers });
    expect([plain.status, plain.headers.has("access-control-allow-methods")]).toEqual([otherwise, false]);
  }
});

test("a preflight needs no credentials only with OPTIONS", async () => {
  await using service = startService({ network: { corsOrigins: [LISTED] } });
  for (const method of ["GET", "POST", "HEAD"]) {
    const response = await service.send(method, "/admin/", { headers: { ...ask, Origin: LISTED } });
    expect(response.status).toBe(401);
  }
});

test("a write of another site is rejected, but a read is accepted", async () => {
  await using service = startService({ credentials: { lookupClient } });
  const headers = { "Sec-Fetch-Site": "cross-site", ...TOKEN };
  for (const path of ["/", "/livez", "/api/todos", "/api/openapi.json", "/api/whoami"]) {
    expect((await service.send("GET", path, { headers })).status).toBe(200);
    expect((await service.send("OPTIONS", path, { headers })).status).toBe(204);
  }
});

const ROOT = basic("root", "s3cret");

const HOST = "todo.example:8080";
const LOOPBACK = "127.0.0.1:1234";
const ON_LOOPBACK = { host: LOOPBACK, network: { onLoopback: true } };
const WITH_ORIGIN = {
  host: LOOPBACK,
  network: { onLoopback: true, corsOrigins: ["http://localhost:5173"] },
};

interface Sent {
  readonly site?: string;
  readonly origin?: string;
  readonly host?: string;
  readonly network?: NonNullable<ServiceOptions["network"]>;
}

async function withKey(network: Sent["network"]) {
  const store = openMemory();
  await store.insert("first");
  await mint(store.keys, "ci");
  return startService({
    store,
    credentials: { keys: store.keys, checkUser: () => true },
    network: { corsOrigins: [LISTED], ...network },
    mcp: async () => new Response(),
  });
}

/** The outcomes of all writes of each surface that the origin of the sender does not prevent. */
const PASSED = {
  todos: ["201", "200", "204"],
  mcp: ["200"],
  admin: ["409 key_exists", ...Array<string>(3).fill("404 key_not_found")],
};

const EVERYBODY: readonly Sent[] = [
  {},
  { origin: `http://${HOST}` },
  { origin: `https://${HOST}` },
  { site: "same-origin" },
  { site: "none" },
  { origin: LISTED },
  { site: "cross-site", origin: LISTED },
  { origin: `http://${HOST}`, host: HOST.toUpperCase() },
  { origin: "https://a.example", host: "a.example:443", network: { allowedHosts: ["a.example"] } },
  { ...ON_LOOPBACK, site: "same-origin", origin: `http://${LOOPBACK}` },
  { ...WITH_ORIGIN, site: "same-site", origin: "http://localhost:5173" },
];
/** A page on another port of loopback, and one of the same site. */
const NO_ADMIN: readonly Sent[] = [
  { ...ON_LOOPBACK, origin: "http://127.0.0.1:1233" },
  { ...ON_LOOPBACK, origin: "http://localhost:1234" },
  { ...ON_LOOPBACK, site: "same-site", origin: "http://localhost:5173" },
  { ...ON_LOOPBACK, site: "cross-site", origin: "http://localhost" },
  { ...WITH_ORIGIN, origin: "http://localhost:5174" },
  { site: "same-site" },
  { site: "same-site", origin: `https://${HOST}` },
  { site: "" },
];
/** A browser without Fetch Metadata. */
const ONLY_TODOS: readonly Sent[] = [
  { origin: "null" },
  { origin: "https://elsewhere.example" },
  { site: "same-origin", origin: "https://elsewhere.example" },
  { origin: "http://localhost:5173" },
  { origin: "http://todo.example" },
  { origin: `http://${HOST}.elsewhere.example` },
  { origin: HOST },
  { origin: `${LISTED}, ${LISTED}` },
];
const NOBODY: readonly Sent[] = [
  { site: "cross-site" },
  { site: "cross-site", origin: "https://elsewhere.example" },
];

test.each([
  ...EVERYBODY.map((sent) => ["todos mcp admin", sent] as const),
  ...NO_ADMIN.map((sent) => ["todos mcp", sent] as const),
  ...ONLY_TODOS.map((sent) => ["todos", sent] as const),
  ...NOBODY.map((sent) => ["", sent] as const),
])("a write is accepted by %j with %j", async (accepting, sent) => {
  const { site, origin, host = HOST, network = { allowedHosts: [HOST] } } = sent;
  await using service = await withKey(network);
  const headers = {
    Host: host,
    ...(site !== undefined && { "Sec-Fetch-Site": site }),
    ...(origin !== undefined && { Origin: origin }),
  };
  const init = as(ROOT, headers);
  const mcp = await fetch(`${service.url}/mcp`, { method: "POST", headers });
  const outcomes = {
    todos: [
      await service.outcome("POST /api/todos", { headers }, { title: "x" }),
      await service.outcome("PATCH /api/todos/1", { headers }, { done: true }),
      await service.outcome("DELETE /api/todos/1", { headers }),
    ],
    mcp: [(await statusAndCode(mcp)).join(" ")],
    admin: [
      await service.outcome("POST /admin/keys", init, { name: "ci" }),
      await service.outcome("POST /admin/keys/absent00/rotate", init),
      await service.outcome("DELETE /admin/keys/absent00", init),
      await service.outcome("PATCH /admin/keys/absent00", init, { name: "x" }),
    ],
  };
  for (const surface of ["todos", "mcp", "admin"] as const) {
    const refused = PASSED[surface].map(() => "403 cross_site_write");
    const expected = accepting.includes(surface) ? PASSED[surface] : refused;
    expect([surface, outcomes[surface]]).toEqual([surface, expected]);
  }
  const list = await (await service.send("GET", "/api/todos", { headers })).json();
  const [id, title] = accepting.includes("todos") ? [2, "x"] : [1, "first"];
  expect(list).toEqual([{ id, title, done: false }]);
  expect((await service.send("GET", "/admin/keys", init)).status).toBe(200);
});

test("a write below /admin is rejected with an Origin but without a Host", async () => {
  await using service = await withKey({});
  for (const [headers, status] of [
    [[], 404],
    [["Origin: http://null"], 403],
    [["Origin: "], 403],
  ] as const) {
    const head = ["DELETE /admin/keys/absent00 HTTP/1.0", `Authorization: ${ROOT}`, ...headers];
    expect(statusOf((await sendRaw(service.port, `${head.join("\r\n")}\r\n\r\n`)).text)).toBe(status);
  }
});
