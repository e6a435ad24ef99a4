import { expect, test } from "bun:test";
import { as, basic } from "../../../test/credentials.ts";
import { statusAndCode } from "../../../test/problem.ts";
import { request, sendRaw, statusOf } from "../../../test/raw-http.ts";
import { pathIn, startService, type TestService } from "../../../test/service.ts";
import { createKeyLookup, type KeyStore } from "../../credential/key.ts";
import { hashToken } from "../../credential/token.ts";
import { createFixedUserCheck } from "../../credential/user.ts";
import { ServiceError } from "../../error.ts";
import { openMemory } from "../../storage/memory/store.ts";
import type { ServiceOptions } from "../service.ts";

const NOW = Date.UTC(2026, 0, 2, 3, 4, 5, 678);
const SECOND = 1000;
const HOUR = 3600 * SECOND;
const DAY = 24 * HOUR;

const ROOT = basic("root", "s3cret");
const AUTHORIZED = as(ROOT);
const TOKEN = /^todo_\w{49}$/;
const ID = /^\w{8}$/;

function serveKeys(options: Partial<ServiceOptions> = {}) {
  const clock = { now: NOW };
  const date = () => clock.now;
  const { keys } = openMemory();
  const service = startService({
    now: date,
    ...options,
    credentials: {
      keys,
      lookupClient: createKeyLookup(keys, date),
      checkUser: createFixedUserCheck("root", "s3cret"),
      ...options.credentials,
    },
  });
  const post = (path: string, body: unknown, headers: Readonly<Record<string, string>> = {}) =>
    service.sendJson("POST", path, body, as(ROOT, headers));
  const list = async (): Promise<unknown> => (await service.send("GET", "/admin/keys", AUTHORIZED)).json();
  return {
    ...service,
    clock,
    keys,
    post,
    list,
    make: async (body: object): Promise<Minted> => minted(await post("/admin/keys", body)),
  };
}

interface Minted {
  readonly id: string;
  readonly name: string;
  readonly scope: string;
  readonly createdAt: string;
  readonly expiresAt?: string;
  readonly token: string;
}

async function minted(response: Response): Promise<Minted> {
  expect(response.status).toBe(201);
  const key: Minted = JSON.parse(await response.text());
  expect(pathIn(response.headers.get("location"), response)).toBe(`/admin/keys/${key.id}`);
  return key;
}

const whoami = async ({ send }: TestService, token: string): Promise<string | number> => {
  const response = await send("GET", "/api/whoami", as(`Bearer ${token}`));
  return response.status === 200 ? response.text() : response.status;
};

test("POST /admin/keys creates a key whose token works immediately and is shown once", async () => {
  await using served = serveKeys();
  const response = await served.post("/admin/keys", { name: "ci", expires: "90d" });
  expect(response.headers.get("cache-control")).toBe("no-store");
  const key = await minted(response);
  expect(key).toEqual({
    id: expect.stringMatching(ID),
    name: "ci",
    scope: "write",
    createdAt: "2026-01-02T03:04:05Z",
    expiresAt: "2026-04-02T03:04:05Z",
    token: expect.stringMatching(TOKEN),
  });
  expect(await whoami(served, key.token)).toBe("ci");
  const { token, ...listed } = key;
  expect(await served.list()).toEqual([{ ...listed, lastUsedAt: "2026-01-02T03:04:05Z" }]);
  expect(JSON.stringify(await served.list())).not.toContain(hashToken(token).toString("hex"));
});

test("GET /admin/keys lists all keys by creation time with their last use, including expired ones for 30 days", async () => {
  await using served = serveKeys();
  expect(await served.list()).toEqual([]);
  const ci = await served.make({ name: "ci", expires: "30s" });
  served.clock.now += SECOND;
  const backup = await served.make({ name: "backup" });
  served.clock.now += 10 * SECOND;
  expect(await whoami(served, backup.token)).toBe("backup");
  served.clock.now += HOUR;
  expect(await whoami(served, ci.token)).toBe(401);
  const response = await served.send("GET", "/admin/keys", AUTHORIZED);
  expect(response.headers.get("cache-control")).toBe("no-store");
  const common = { scope: "write", createdAt: "2026-01-02T03:04:05Z" };
  const lasting = { id: backup.id, name: "backup", scope: "write" };
  expect(await response.json()).toEqual([
    { ...common, id: ci.id, name: "ci", expiresAt: "2026-01-02T03:04:35Z" },
    { ...lasting, createdAt: "2026-01-02T03:04:06Z", lastUsedAt: "2026-01-02T03:04:16Z" },
  ]);
  served.clock.now += 30 * DAY;
  expect(await served.list()).toEqual([expect.objectContaining({ name: "backup" })]);
});

const rotate = ({ post }: ReturnType<typeof serveKeys>, { id }: Minted, body: unknown) =>
  post(`/admin/keys/${id}/rotate`, body);

test("POST /admin/keys/:id/rotate returns a successor, and the old token stays valid for the overlap", async () => {
  await using served = serveKeys();
  const old = await served.make({ name: "ci", scope: "read" });
  const successor = await minted(await rotate(served, old, { overlap: "2h" }));
  expect(successor).toMatchObject({ name: "ci", scope: "read" });
  served.clock.now += 2 * HOUR - 1;
  expect(await whoami(served, old.token)).toBe("ci");
  served.clock.now += 1;
  expect(await whoami(served, old.token)).toBe(401);
  expect(await whoami(served, successor.token)).toBe("ci");
});

test.each<[what: string, headers: readonly string[], body: string]>([
  ["neither a body nor a Content-Length", [], ""],
  ["another Content-Type and no body", ["Content-Type: text/plain", "Content-Length: 0"], ""],
  ["an empty object", ["Content-Type: application/json", "Content-Length: 2"], "{}"],
])("POST /admin/keys/:id/rotate uses the default overlap with %s", async (_what, headers, body) => {
  await using served = serveKeys();
  const old = await served.make({ name: "ci" });
  const line = `POST /admin/keys/${old.id}/rotate`;
  const all = request(line, [`Authorization: ${ROOT}`, ...headers], body);
  expect(statusOf((await sendRaw(served.port, all)).text)).toBe(201);
  served.clock.now += DAY - 1;
  expect(await whoami(served, old.token)).toBe("ci");
});

test("POST /admin/keys/:id/rotate rejects a body that is not JSON", async () => {
  await using served = serveKeys();
  const line = `POST /admin/keys/${(await served.make({ name: "ci" })).id}/rotate`;
  expect(await served.outcome(line, { ...AUTHORIZED, body: "{" })).toBe("415 unsupported_media_type");
});

test("DELETE /admin/keys/:id revokes only that key, immediately", async () => {
  await using served = serveKeys();
  const [ci, backup] = [await served.make({ name: "ci" }), await served.make({ name: "backup" })];
  const response = await served.send("DELETE", `/admin/keys/${ci.id}`, AUTHORIZED);
  expect([response.status, await response.text()]).toEqual([204, ""]);
  expect(response.headers.get("cache-control")).toBe("no-store");
  expect(await whoami(served, ci.token)).toBe(401);
  expect(await whoami(served, backup.token)).toBe("backup");
  expect(await served.list()).toEqual([expect.objectContaining({ id: backup.id })]);
});

test("DELETE /admin/keys/:id and its rotation respond with 404 for an absent id, a name and a token", async () => {
  await using served = serveKeys();
  const { id, name, token } = await served.make({ name: "ci" });
  for (const absent of ["absent00", name, token, id.slice(1), `${id}%20`, "%zz", "%00", "*", "rotate"])
    for (const line of [`DELETE /admin/keys/${absent}`, `POST /admin/keys/${absent}/rotate`])
      expect([line, await served.outcome(line, AUTHORIZED)]).toEqual([line, "404 key_not_found"]);
  expect(await whoami(served, token)).toBe("ci");
  expect(await served.list()).toHaveLength(1);
});

test("the endpoints of API keys respond with 404 after authentication in a service without a key store", async () => {
  await using service = startService({
    credentials: { checkUser: createFixedUserCheck("root", "s3cret") },
  });
  for (const line of [
    ...["GET /admin/keys", "POST /admin/keys", "DELETE /admin/keys/absent00"],
    "POST /admin/keys/absent00/rotate",
  ]) {
    expect([line, await service.outcome(line)]).toEqual([line, "401 unauthorized"]);
    expect([line, await service.outcome(line, AUTHORIZED)]).toEqual([line, "404 route_not_found"]);
  }
  expect(service.lines).toEqual([]);
});

test("the endpoints of API keys respond with 503 without details if the store is unavailable", async () => {
  const cause = new Error("disk on fire");
  const cannot = () => Promise.reject(new ServiceError("store_unavailable", { cause }));
  const writes = { insert: cannot, replace: cannot, delete: cannot, rename: cannot };
  const keys: KeyStore = { find: cannot, list: cannot, ...writes, recordUse: () => {} };
  await using served = serveKeys({ credentials: { keys } });
  for (const answer of [
    await served.post("/admin/keys", { name: "ci" }),
    await served.post("/admin/keys/absent00/rotate", {}),
    await served.send("DELETE", "/admin/keys/absent00", AUTHORIZED),
    await served.send("GET", "/admin/keys", AUTHORIZED),
  ]) {
    expect(await answer.clone().text()).not.toContain("disk");
    expect(answer.headers.get("retry-after")).toBe("5");
    expect(await statusAndCode(answer)).toEqual([503, "store_unavailable"]);
  }
  expect(served.logText()).not.toContain("key created");
});

const audit = ({ lines }: ReturnType<typeof serveKeys>) =>
  lines.flatMap(({ level, message, fields }) =>
    message.startsWith("key ") ? [[level, message, fields]] : [],
  );

test("the log of key writes has the user, the action and the key", async () => {
  await using served = serveKeys();
  const { id } = await served.make({ name: "ci" });
  const successor = await minted(await served.post(`/admin/keys/${id}/rotate`, {}));
  await served.send("DELETE", `/admin/keys/${successor.id}`, AUTHORIZED);
  await served.list();
  const user = "root";
  const request = expect.stringMatching(/^[0-9a-f-]{36}$/);
  expect(audit(served)).toEqual([
    ["info", "key created", { id: request, key: id, client: "ci", user }],
    ["info", "key rotated", { id: request, key: id, successor: successor.id, client: "ci", user }],
    ["info", "key revoked", { id: request, key: successor.id, user }],
  ]);
});

test("the log of key writes has each rejected write with its reason, and a summary of its repetitions", async () => {
  await using served = serveKeys();
  const { id } = await served.make({ name: "ci" });
  await served.post("/admin/keys", { name: "ci" });
  await served.post("/admin/keys", { name: "" });
  for (let time = 0; time < 10; time++)
    await served.post("/admin/keys", { name: "x" }, { Origin: "https://elsewhere.example" });
  await served.post("/admin/keys/absent00/rotate", {});
  await served.post(`/admin/keys/${id}/rotate`, { overlap: "soon" });
  await served.send("DELETE", "/admin/keys/absent00", AUTHORIZED);
  const sameSite = as(ROOT, { "Sec-Fetch-Site": "same-site" });
  await served.send("DELETE", `/admin/keys/${id}`, sameSite);
  served.close();
  const refused = (action: string, reason: string, more: object = {}) => [
    "warn",
    "key write refused",
    { action, reason, user: "root", ...more },
  ];
  expect(audit(served).slice(1)).toEqual([
    refused("create", "key_exists"),
    refused("create", "validation_failed"),
    refused("create", "cross_site_write"),
    refused("rotate", "key_not_found", { key: "absent00" }),
    refused("rotate", "validation_failed", { key: id }),
    refused("revoke", "key_not_found", { key: "absent00" }),
    refused("revoke", "cross_site_write", { key: id }),
    refused("create", "cross_site_write", { times: 9 }),
  ]);
});
