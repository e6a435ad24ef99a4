import { expect, test } from "bun:test";
import { callRoute } from "../../../test/call-route.ts";
import { as, basic, mint } from "../../../test/credentials.ts";
import { statusAndCode } from "../../../test/problem.ts";
import { sendRaw } from "../../../test/raw-http.ts";
import { ANN, AS_ANN, cookieOf, startPrivate as startWith } from "../../../test/service.ts";
import { keysWith } from "../../../test/store.ts";
import type { Scope } from "../../credential/client.ts";
import { type Key, rotateKey } from "../../credential/key.ts";
import { mintToken } from "../../credential/token.ts";
import { ServiceError } from "../../error.ts";
import { openMemory } from "../../storage/memory/store.ts";
import { createService, type ServiceOptions } from "../service.ts";

const ANDROID = "Mozilla/5.0 (Android 15; Mobile; rv:144.0) Gecko/144.0 Firefox/144.0";
const DAY = 86_400_000;
const BOB = { user: "bob", password: ANN.password };

const jsonOf = async (response: Response) => JSON.parse(await response.text());

interface Jar {
  readonly headers: Readonly<Record<string, string>>;
}

interface Browser extends Jar {
  readonly id: string;
  readonly name: string;
}

/** Starts a private service with an API key and the users ann and bob. The stored entry of ann and the clock can change. */
async function startPrivate(scope: Scope = "write", network: ServiceOptions["network"] = {}) {
  const store = openMemory();
  const nothing = async (_key: Partial<Key>): Promise<void> => {};
  const state = {
    now: Date.now(),
    entry: "first" as string | undefined,
    whileChecking: () => {},
    ...{ beforeInsert: nothing, beforeDelete: nothing, lists: 0 },
  };
  const keys = keysWith(
    {
      list: () => {
        state.lists++;
        return store.keys.list();
      },
      insert: async (key, ended) => {
        await state.beforeInsert(key);
        return store.keys.insert(key, ended);
      },
      delete: async (id) => {
        await state.beforeDelete({ id });
        return store.keys.delete(id);
      },
    },
    store.keys,
  );
  const phone = await mint(keys, "phone", { now: state.now, scope });
  const service = startWith(store, {
    network,
    access: { basicFailures: 3 },
    credentials: {
      keys,
      storedEntry: (_kind, name) => (name === "ann" ? state.entry : undefined),
      checkUser: (user, password) => {
        state.whileChecking();
        return ["ann", "bob"].includes(user) && password === ANN.password;
      },
    },
    now: () => state.now,
    monotonicNow: () => state.now,
  });
  const signIn = (body: object, headers: Readonly<Record<string, string>> = {}): Promise<Response> =>
    service.sendJson("POST", "/api/session", body, { headers: { "User-Agent": ANDROID, ...headers } });
  const jar = async (body: object): Promise<Browser> => {
    const response = await signIn(body);
    expect(response.status).toBe(201);
    return { ...(await jsonOf(response)), ...cookieOf(response) };
  };
  const newCode = async (init: Jar, path = "/api/session/links"): Promise<string> => {
    const response = await service.send("POST", path, init);
    expect(response.status).toBe(201);
    const { link } = await jsonOf(response);
    expect(link).toStartWith(`${service.url}/#sign-in=`);
    return link.split("=")[1];
  };
  const statusOf = async (path: string, init: Jar): Promise<number> =>
    Number((await service.outcome(`GET ${path}`, init)).slice(0, 3));
  return { ...service, keys, state, phone, signIn, jar, newCode, statusOf };
}

test("POST /api/session creates an API key for this browser and sets it as a cookie that scripts cannot read", async () => {
  await using service = await startPrivate();
  const response = await service.signIn(ANN);
  expect(response.status).toBe(201);
  expect(response.headers.get("cache-control")).toBe("no-store");
  const cookie = response.headers.get("set-cookie");
  expect(cookie).toMatch(
    /^__Host-todo=todo_\w{49}; Path=\/; Secure; HttpOnly; SameSite=Strict; Max-Age=7776000$/,
  );
  const body = await jsonOf(response);
  expect(body).toEqual({
    id: expect.any(String),
    name: "ann · Firefox on Android",
    createdAt: expect.any(String),
  });
  const token = cookie?.slice("__Host-todo=".length, cookie.indexOf(";")) ?? "";
  expect(JSON.stringify(body)).not.toContain(token);
  expect(service.logText()).not.toContain(token);
  expect(service.lines.at(-1)?.fields).toEqual({ key: body.id, user: "ann" });
});

test("POST /api/session names the second browser of a kind and of a user or key with a number", async () => {
  await using service = await startPrivate();
  for (const [body, owner, number] of [
    [ANN, "ann", ""],
    [{ token: service.phone.token }, "phone", ""],
    [ANN, "ann", " 2"],
    // This name can be exported and imported.
    [{ token: (await mint(service.keys, "ä".repeat(100))).token }, "ä".repeat(60), ""],
  ] as const)
    expect((await service.jar(body)).name).toBe(`${owner} · Firefox on Android${number}`);
});

test.each<[what: string, body: object, status: number, code: string]>([
  ["a wrong password", { user: "ann", password: "wrong" }, 401, "unauthorized"],
  ["an unknown token", { token: mintToken() }, 401, "unauthorized"],
  ["an unknown code", { code: "x".repeat(22) }, 401, "unauthorized"],
  ["no password", { user: "ann" }, 422, "validation_failed"],
  ["a token that is no text", { token: 1 }, 422, "validation_failed"],
  ["a list", [ANN], 422, "validation_failed"],
])("POST /api/session rejects %s without a cookie", async (_what, body, status, code) => {
  await using service = await startPrivate();
  const response = await service.signIn(body);
  expect(response.headers.get("set-cookie")).toBeNull();
  expect(await statusAndCode(response)).toEqual([status, code]);
  expect(await service.keys.list()).toHaveLength(1);
});

test("POST /api/session rejects a password that was changed while it was checked", async () => {
  await using service = await startPrivate();
  const { state } = service;
  state.whileChecking = () => {
    state.entry = `${state.entry}, changed`;
  };
  for (const response of [
    await service.signIn(ANN),
    await service.send("POST", "/api/session/links", as(AS_ANN)),
  ])
    expect(await statusAndCode(response)).toEqual([401, "unauthorized"]);
  expect(await service.keys.list()).toHaveLength(1);
});

test("POST /api/session ends the session of the cookie that the browser sends with it", async () => {
  await using service = await startPrivate();
  const [former, other] = [await service.jar(ANN), await service.jar(ANN)];
  const failed = await service.signIn({ user: "ann", password: "wrong" }, former.headers);
  expect([failed.status, await service.statusOf("/api/todos", former)]).toEqual([401, 200]);
  const next = await service.signIn({ code: await service.newCode(former) }, former.headers);
  expect(next.status).toBe(201);
  expect(service.lines.at(-1)).toMatchObject({ level: "info", message: "signed out" });
  const statuses = [former, other, cookieOf(next)].map((init) => service.statusOf("/api/todos", init));
  expect(await Promise.all(statuses)).toEqual([401, 200, 200]);
  // A cookie with the key of a program does not sign anybody in.
  const foreign = await service.signIn(ANN, { Cookie: `__Host-todo=${service.phone.token}` });
  expect([
    foreign.status,
    await service.statusOf("/api/whoami", as(`Bearer ${service.phone.token}`)),
  ]).toEqual([201, 200]);
});

test("POST /api/session logs wrong codes as it logs wrong tokens", async () => {
  await using service = await startPrivate();
  const code = await service.newCode(as(AS_ANN));
  await service.signIn({ code });
  service.lines.splice(0);
  for (const path of ["/api/session", "/api/session/link", "/api/session/link/cancel"])
    for (const wrong of [code, "x".repeat(22)])
      expect(await service.outcome(`POST ${path}`, {}, { code: wrong })).toBe("401 unauthorized");
  service.close();
  const fields = { surface: "private", reason: "code", address: "127.0.0.1" };
  expect(service.lines).toEqual([
    { level: "warn", message: "credential refused", fields },
    { level: "warn", message: "credential refused", fields: { ...fields, times: 5 } },
  ]);
  expect(service.logText()).not.toContain(code);
});

test("POST /api/session rejects pages of other origins, as do the paths of a link", async () => {
  await using service = await startPrivate("write", { corsOrigins: ["https://app.example"] });
  for (const path of ["/api/session", "/api/session/link", "/api/session/link/cancel"])
    for (const headers of [{ "Sec-Fetch-Site": "same-site" }, { Origin: "https://app.example" }]) {
      const response = await service.sendJson("POST", path, ANN, { headers });
      expect(response.headers.get("set-cookie")).toBeNull();
      expect(await statusAndCode(response)).toEqual([403, "cross_site_write"]);
    }
});

test("POST /api/session is refused with the reason where a browser cannot store the cookie", async () => {
  for (const allowBasicOverHttp of [false, true]) {
    const store = openMemory();
    const access = { privateMode: true, allowBasicOverHttp };
    const service = createService({ store, credentials: { keys: store.keys }, access });
    for (const path of ["/api/session", "/api/session/link"]) {
      const response = await callRoute(service, path, { method: "POST", address: "192.0.2.1" });
      expect(await response.json()).toMatchObject({
        code: "https_required",
        detail: expect.stringContaining("Browsers store the cookie of a sign-in over HTTPS"),
      });
    }
  }
});

const OWN_PAGE = { "Sec-Fetch-Site": "same-origin" };
const LISTED = { Origin: "https://app.example", "Sec-Fetch-Site": "same-site" };

test.each<[what: string, headers: Readonly<Record<string, string>>, status: number, signedOut: number]>([
  ["the own page", OWN_PAGE, 200, 204],
  ["a browser without Fetch Metadata", {}, 200, 204],
  ["a page of another site", { "Sec-Fetch-Site": "cross-site" }, 401, 403],
  ["an opaque origin", { ...OWN_PAGE, Origin: "null" }, 401, 403],
  ["a page of a listed origin", LISTED, 401, 401],
  ["a request with another token", { Authorization: `Bearer ${mintToken()}` }, 401, 401],
  ["a request with another scheme", { Authorization: "Digest x" }, 401, 401],
])("the cookie of a browser sent for %s", async (_what, headers, status, signedOut) => {
  await using service = await startPrivate("write", { corsOrigins: ["https://app.example"] });
  const init = await service.jar(ANN);
  const sent = { headers: { ...init.headers, ...headers } };
  for (const path of ["/api/todos", "/api/events", "/api/session"])
    expect([path, await service.statusOf(path, sent)]).toEqual([path, status]);
  const post = await service.sendJson("POST", "/api/todos", { title: "a" }, sent);
  expect(post.status).toBe(status === 200 ? 201 : status);
  expect(post.headers.get("access-control-allow-credentials")).toBeNull();
  expect((await service.send("DELETE", "/api/session", sent)).status).toBe(signedOut);
  expect(service.store.count).toBe(status === 200 ? 1 : 0);
});

test("the cookie of a browser logs writes with the credential that the browser signed in with", async () => {
  await using service = await startPrivate();
  const { id } = service.phone.key;
  for (const [body, parent] of [
    [ANN, "user:ann"],
    [BOB, "user:bob"],
    [{ token: service.phone.token }, `key:${id}`],
  ] as const) {
    const init = await service.jar(body);
    await service.sendJson("POST", "/api/todos", { title: "a" }, init);
    await service.sendJson("POST", "/api/todos", {}, init);
    await service.send("POST", "/api/session/links", init);
    const lines = service.lines.splice(0).filter(({ fields }) => "parent" in fields);
    expect(lines.map(({ message, fields }) => [message, fields.parent])).toEqual([
      ["write", parent],
      ["write refused", parent],
      ...(parent === "user:bob" ? [] : [["link created", parent]]),
    ]);
  }
});

test("the cookie of a browser counts only once, as a whole, and with the key of a browser", async () => {
  await using service = await startPrivate();
  const { Cookie: cookie = "" } = (await service.jar(ANN)).headers;
  for (const [sent, status] of [
    [`a=b; ${cookie}; c=d`, 200],
    [`${cookie}; ${cookie}`, 401],
    [`__Host-todo=${mintToken()}; ${cookie}`, 401],
    [`__Host-todo=${service.phone.token}`, 401],
    [cookie.replace("__Host-todo", "__host-todo"), 401],
    [`x${cookie}`, 401],
    [`${cookie}x`, 401],
    [cookie.replace("=", '="').concat('"'), 401],
    ["__Host-todo=", 401],
  ] as const) {
    const headers = { Cookie: sent };
    expect([sent, await service.statusOf("/api/todos", { headers })]).toEqual([sent, status]);
  }
});

test.each<[what: string, days: number, user: object, uses: number]>([
  ["for 90 days after its last use", 90, ANN, 3],
  ["for 24 hours if nothing is stored about its user", 1, BOB, 1],
])("the key of a browser is valid %s", async (_what, days, user, uses) => {
  await using service = await startPrivate();
  const init = await service.jar(user);
  for (let use = 0; use < uses; use++) {
    service.state.now += days * DAY - 1;
    expect(await service.statusOf("/api/todos", init)).toBe(200);
  }
  service.state.now += uses === 1 ? 1 : days * DAY;
  expect(await service.statusOf("/api/todos", init)).toBe(401);
});

test("the key of a browser signs in no other browser if nothing is stored about its user, so that it ends", async () => {
  await using service = await startPrivate();
  const direct = await service.jar(BOB);
  const byLink = await service.jar({ code: await service.newCode(as(basic("bob", ANN.password))) });
  for (const { headers } of [direct, byLink]) {
    const token = headers.Cookie?.slice("__Host-todo=".length);
    for (const response of [
      await service.send("POST", "/api/session/links", { headers }),
      await service.signIn({ token }),
    ])
      expect(await statusAndCode(response)).toEqual([403, "insufficient_scope"]);
  }
  expect(await service.keys.list()).toHaveLength(3);
});

test("the key of a browser ends if the stored entry of its user changes or is removed", async () => {
  for (const entry of ["second", undefined]) {
    await using service = await startPrivate();
    const init = await service.jar(ANN);
    service.state.entry = entry;
    expect([entry, await service.statusOf("/api/todos", init)]).toEqual([entry, 401]);
  }
});

test("the key of a browser cannot be rotated, and makes no grandchildren", async () => {
  await using service = await startPrivate();
  const { Cookie: cookie = "" } = (await service.jar({ token: service.phone.token })).headers;
  const [device] = (await service.keys.list()).slice(-1);
  expect(await rotateKey(service.keys, device?.id ?? "", 0, service.state.now)).toBeUndefined();
  await service.jar({ token: cookie.slice("__Host-todo=".length) });
  const parents = (await service.keys.list()).map(({ parent }) => parent);
  const { id } = service.phone.key;
  expect(parents).toEqual([undefined, ...Array.from({ length: 2 }, () => ({ kind: "key" as const, id }))]);
});

test("GET and DELETE /api/session show the identity and its own browsers, and renew the cookie", async () => {
  await using service = await startPrivate();
  const init = await service.jar(ANN);
  await service.jar({ token: service.phone.token });
  await service.jar(ANN);
  const response = await service.send("GET", "/api/session", init);
  expect(response.headers.get("set-cookie")).toStartWith(`${init.headers.Cookie};`);
  expect(response.headers.get("cache-control")).toBe("no-store");
  const { devices, ...identity } = await jsonOf(response);
  expect(identity).toEqual({ kind: "user", name: "ann", scope: "write" });
  expect(
    devices.map(({ name, isCurrent: current }: { name: string; isCurrent: boolean }) => [name, current]),
  ).toEqual([
    ["ann · Firefox on Android", true],
    ["ann · Firefox on Android 2", false],
  ]);
  // With the cookie beside Authorization, which counts.
  const byToken = as(`Bearer ${service.phone.token}`, init.headers);
  const other = await service.send("GET", "/api/session", byToken);
  expect(other.headers.get("set-cookie")).toBeNull();
  expect(await other.json()).toMatchObject({ kind: "client", name: "phone", devices: [{}] });
  // A browser whose sign-in has expired is not shown.
  service.state.now += 89 * DAY;
  expect(await service.statusOf("/api/todos", init)).toBe(200);
  service.state.now += DAY;
  const later = await jsonOf(await service.send("GET", "/api/session", init));
  expect(later.devices).toMatchObject([{ name: "ann · Firefox on Android" }]);
});

test("GET and DELETE /api/session revoke the key and clear the cookie, and end only devices of the same identity", async () => {
  await using service = await startPrivate();
  const [init, second] = [await service.jar(ANN), await service.jar(ANN)];
  const phone = await service.jar({ token: service.phone.token });
  for (const id of [phone.id, service.phone.key.id, "nowhere"])
    expect(await service.outcome(`DELETE /api/session/devices/${id}`, init)).toBe("404 key_not_found");
  expect(await service.outcome(`DELETE /api/session/devices/${second.id}`, init)).toBe("204");
  const statuses = [init, second, phone].map((one) => service.statusOf("/api/todos", one));
  expect(await Promise.all(statuses)).toEqual([200, 401, 200]);
  const response = await service.send("DELETE", "/api/session", init);
  expect(response.status).toBe(204);
  expect(response.headers.get("set-cookie")).toBe(
    "__Host-todo=; Path=/; Secure; HttpOnly; SameSite=Strict; Max-Age=0",
  );
  expect(response.headers.get("clear-site-data")).toBe('"cache"');
  expect(await service.statusOf("/api/todos", init)).toBe(401);
  const byToken = as(`Bearer ${service.phone.token}`);
  expect((await service.send("DELETE", "/api/session", byToken)).status).toBe(404);
  expect(await service.statusOf("/api/todos", byToken)).toBe(200);
});

test("a link signs in one browser, once, as the identity that made it, unless the person cancels it", async () => {
  await using service = await startPrivate("read");
  const init = await service.jar({ token: service.phone.token });
  const code = await service.newCode(init);
  for (let look = 0; look < 2; look++) {
    const described = await service.sendJson("POST", "/api/session/link", { code });
    expect([described.status, await described.json()]).toEqual([200, { kind: "client", name: "phone" }]);
  }
  const second = await service.jar({ code });
  expect(await service.statusOf("/api/todos", second)).toBe(200);
  expect(await service.outcome("POST /api/todos", second, {})).toBe("403 insufficient_scope");
  expect(await service.outcome("DELETE /api/session", second)).toBe("204");
  for (const path of ["/api/session", "/api/session/link"])
    expect(await service.outcome(`POST ${path}`, {}, { code })).toBe("401 unauthorized");
  const cancelled = { code: await service.newCode(init) };
  const cancel = () => service.outcome("POST /api/session/link/cancel", {}, cancelled);
  expect([await cancel(), await cancel()]).toEqual(["204", "401 unauthorized"]);
  expect((await service.signIn(cancelled)).status).toBe(401);
  expect(service.logText()).not.toContain(cancelled.code);
});

test("a link expires after ten minutes, and when the stored entry of its user changes", async () => {
  await using service = await startPrivate();
  const init = await service.jar(ANN);
  const [late, early] = [await service.newCode(init), await service.newCode(init)];
  service.state.now += 600_000 - 1;
  const stale = await service.newCode(init);
  expect((await service.signIn({ code: early })).status).toBe(201);
  const expectInvalid = async (code: string) => {
    for (const path of ["/api/session/link", "/api/session"])
      expect(await service.outcome(`POST ${path}`, {}, { code })).toBe("401 unauthorized");
  };
  service.state.now += 1;
  await expectInvalid(late);
  service.state.entry = "second";
  await expectInvalid(stale);
});

test("a link does not outlive the browser that is signed out while it makes the link", async () => {
  await using service = await startPrivate();
  const { state } = service;
  const during = { insert: await service.jar(ANN), delete: await service.jar(ANN) };
  state.beforeInsert = async () => {
    state.beforeInsert = async () => {};
    expect((await service.send("DELETE", "/api/session", during.insert)).status).toBe(204);
  };
  const response = await service.send("POST", "/api/session/links", during.insert);
  expect(await statusAndCode(response)).toEqual([401, "unauthorized"]);

  let code = "";
  state.beforeDelete = async () => {
    state.beforeDelete = async () => {};
    code = await service.newCode(during.delete);
  };
  expect((await service.send("DELETE", "/api/session", during.delete)).status).toBe(204);
  expect((await service.signIn({ code })).status).toBe(401);
  expect(await service.keys.list()).toHaveLength(1);
});

test("a link stays valid if the store fails to store the key of the browser", async () => {
  await using service = await startPrivate();
  const code = await service.newCode(await service.jar(ANN));
  const before = (await service.keys.list()).length;
  service.state.beforeInsert = async () => {
    service.state.beforeInsert = async () => {};
    throw new ServiceError("store_unavailable");
  };
  expect(await statusAndCode(await service.signIn({ code }))).toEqual([503, "store_unavailable"]);
  expect(await service.keys.list()).toHaveLength(before);
  service.state.lists = 0;
  expect((await service.signIn({ code })).status).toBe(201);
  expect(service.state.lists).toBe(2);
});

test.each([
  ["HTTP/1.1", "Host: localhost:99999\r\n"],
  ["HTTP/1.0", ""],
])("a link is not made in %s for the header %j", async (version, host) => {
  await using service = await startPrivate();
  const head = `POST /api/session/links ${version}\r\n${host}Authorization: ${AS_ANN}\r\nConnection: close`;
  const { text } = await sendRaw(service.port, `${head}\r\n\r\n`);
  expect(text).toContain(" 421 ");
  expect(text).toContain('"code":"misdirected_host"');
  expect(await service.keys.list()).toHaveLength(1);
});

const TLS_PROXY = { "X-Forwarded-For": "192.0.2.1", "X-Forwarded-Proto": "https" };
const OWN = { Host: "todo.example" };

test.each<[what: string, proxies: string[], Origin: string, headers: { Host: string }, origin: string]>([
  ["the own page", [], "https://todo.example", OWN, "https://todo.example"],
  ["a listed origin", [], "https://app.example", { Host: "nas:3000" }, "http://nas:3000"],
  [
    "one through a proxy",
    ["127.0.0.1"],
    "https://app.example",
    { ...OWN, ...TLS_PROXY },
    "https://todo.example",
  ],
])("a link points to the service, not to the page of another origin: made by %s", async (...row) => {
  const [, trustedProxies, Origin, headers, origin] = row;
  const network = { allowedHosts: [headers.Host], corsOrigins: ["https://app.example"], trustedProxies };
  await using service = await startPrivate("write", network);
  for (const path of ["/api/session/links", `/admin/keys/${service.phone.key.id}/links`]) {
    const response = await service.send("POST", path, as(AS_ANN, { Origin, ...headers }));
    const { link, qrCode } = await jsonOf(response);
    expect(link.replace(/\w{22}$/, "CODE")).toBe(`${origin}/#sign-in=CODE`);
    expect([qrCode.size > 25, qrCode.path]).toEqual([true, expect.stringMatching(/^M2 2h1v1h-1z/)]);
  }
});

test("a link cannot be used as a token, and is not listed; GET /admin/keys says whose each browser is", async () => {
  await using service = await startPrivate();
  await service.newCode(as(AS_ANN));
  for (const body of [ANN, { token: service.phone.token }]) {
    const init = await service.jar(body);
    const code = await service.newCode(init);
    expect(await service.statusOf("/api/todos", as(`Bearer ${code}`))).toBe(401);
    const { devices } = await jsonOf(await service.send("GET", "/api/session", init));
    expect(devices).toHaveLength(1);
    expect(service.logText()).not.toContain(code);
  }
  const listed = await jsonOf(await service.send("GET", "/admin/keys", as(AS_ANN)));
  expect(listed.map(({ name, deviceOf }: { name: string; deviceOf?: string }) => [name, deviceOf])).toEqual([
    ["phone", undefined],
    ["ann · Firefox on Android", "ann"],
    ["phone · Firefox on Android", "phone"],
  ]);
});

async function start() {
  const service = await startPrivate();
  const person = async (name: string) => {
    const { key, token } = await mint(service.keys, name);
    return { id: key.id, token, device: await service.jar({ token }) };
  };
  const [ben, cleo] = [await person("ben"), await person("cleo")];
  const rename = async (path: string, name: unknown, init: Jar): Promise<string> => {
    const response = await service.sendJson("PATCH", path, { name }, init);
    return response.ok ? (await jsonOf(response)).name : (await statusAndCode(response)).join(" ");
  };
  const whoami = async (token = ""): Promise<string> =>
    (await service.send("GET", "/api/whoami", as(`Bearer ${token}`))).text();
  return { ...service, rename, whoami, ben, cleo, ann: await service.jar(ANN) };
}

test("a name of its own browsers is changed by their owner, and still begins with the owner", async () => {
  await using service = await start();
  const { ann, ben, cleo } = service;
  const rename = (id: string, name: unknown, init: Jar = ben.device) =>
    service.rename(`/api/session/devices/${id}`, name, init);
  expect(await rename(ben.device.id, "Kitchen tablet")).toBe("ben · Kitchen tablet");
  expect(await rename(ben.device.id, "cleo")).toBe("ben · cleo");
  expect(await service.whoami(ben.device.headers.Cookie?.slice("__Host-todo=".length))).toBe("ben · cleo");
  expect(await rename(ann.id, "Laptop", ann)).toBe("ann · Laptop");
  for (const id of [cleo.device.id, ann.id, ben.id, "absent00"])
    expect([id, await rename(id, "mine")]).toEqual([id, "404 key_not_found"]);
  const second = await service.jar({ token: ben.token });
  expect(await rename(second.id, "cleo")).toBe("409 key_exists");
  for (const name of [undefined, "", "x".repeat(38), "a\nb", 1])
    expect(await rename(ben.device.id, name)).toBe("422 validation_failed");
  expect(await rename(second.id, "x".repeat(37))).toBe(`ben · ${"x".repeat(37)}`);
  const names = (await service.keys.list()).map(({ name }) => name).filter((name) => name.includes("·"));
  const others = [cleo.device.name, "ann · Laptop", `ben · ${"x".repeat(37)}`];
  expect(names).toEqual(["ben · cleo", ...others]);
});

test("a name of any key or browser is changed by an administrator", async () => {
  await using service = await start();
  const { ann, ben } = service;
  const rename = (id: string, name: string) => service.rename(`/admin/keys/${id}`, name, as(AS_ANN));
  expect(await rename(ben.id, "benjamin")).toBe("benjamin");
  expect(await service.whoami(ben.token)).toBe("benjamin");
  expect(await rename(ben.device.id, "Phone")).toBe("benjamin · Phone");
  expect(await rename(ann.id, "Laptop")).toBe("ann · Laptop");
  expect(await rename(ben.id, "cleo")).toBe("409 key_exists");
  expect(await rename("absent00", "x")).toBe("404 key_not_found");
  expect(await rename(ben.id, " ")).toBe("422 validation_failed");
});

test("a name of a key stays when an administrator makes a link for it, and so does its token", async () => {
  await using service = await start();
  const { ben } = service;
  const code = await service.newCode(as(AS_ANN), `/admin/keys/${ben.id}/links`);
  expect((await service.jar({ code })).name).toStartWith("ben · ");
  expect(await service.whoami(ben.token)).toBe("ben");
  for (const id of [ben.device.id, "absent00"])
    expect(await service.outcome(`POST /admin/keys/${id}/links`, as(AS_ANN))).toBe("404 key_not_found");
  const foreign = as(AS_ANN, { Origin: "https://evil.example" });
  expect(await service.outcome(`POST /admin/keys/${ben.id}/links`, foreign)).toBe("403 cross_site_write");
});
