import { expect, test } from "bun:test";
import { as, mint } from "../../../test/credentials.ts";
import { statusAndCode } from "../../../test/problem.ts";
import { ANN, AS_ANN, cookieOf, startPrivate } from "../../../test/service.ts";
import { openMemory } from "../../storage/memory/store.ts";

const BASIC = as(AS_ANN).headers;

/** Starts a private service with the user ann, and the keys ben and cleo. Each has signed in a browser. */
async function start() {
  const store = openMemory();
  const { keys } = store;
  const service = startPrivate(store);
  const send = async (method: string, path: string, headers: Record<string, string>, body?: unknown) => {
    const response = await service.sendJson(method, path, body, { headers });
    return response.ok ? JSON.parse(await response.text()) : statusAndCode(response);
  };
  const signIn = async (body: object) => {
    const response = await service.sendJson("POST", "/api/session", body);
    const { headers } = cookieOf(response);
    const { id, name } = JSON.parse(await response.text());
    return { id, name, headers };
  };
  const key = async (name: string) => {
    const minted = await mint(keys, name);
    return { id: minted.key.id, token: minted.token, device: await signIn({ token: minted.token }) };
  };
  const whoami = async (token: string): Promise<string> =>
    (await service.send("GET", "/api/whoami", as(`Bearer ${token}`))).text();
  const names = async () => (await keys.list()).map(({ name }) => name);
  const [ben, cleo] = [await key("ben"), await key("cleo")];
  const ann = await signIn(ANN);
  return { ...service, send, signIn, whoami, names, ann, ben, cleo };
}

/** Returns the new name, or the status and the code of an error. */
const nameOf = (reply: { name?: string } | readonly unknown[]): unknown =>
  "name" in reply ? reply.name : reply;

test("an owner renames its own browsers only, and their names still begin with the owner", async () => {
  await using service = await start();
  const { ann, ben, cleo } = service;
  const rename = async (id: string, name: unknown, { headers } = ben.device) =>
    nameOf(await service.send("PATCH", `/api/session/devices/${id}`, headers, { name }));
  expect(await rename(ben.device.id, "Kitchen tablet")).toBe("ben · Kitchen tablet");
  expect(await rename(ben.device.id, "cleo")).toBe("ben · cleo");
  expect(await service.whoami(ben.device.headers.Cookie.slice("__Host-todo=".length))).toBe("ben · cleo");
  expect(await rename(ann.id, "Laptop", ann)).toBe("ann · Laptop");
  for (const id of [cleo.device.id, ann.id, ben.id, "absent00"])
    expect([id, await rename(id, "mine")]).toEqual([id, [404, "key_not_found"]]);
  const second = await service.signIn({ token: ben.token });
  expect(await rename(second.id, "cleo")).toEqual([409, "key_exists"]);
  for (const name of [undefined, "", "x".repeat(38), "a\nb", 1])
    expect(await rename(ben.device.id, name)).toEqual([422, "validation_failed"]);
  expect(await rename(second.id, "x".repeat(37))).toBe(`ben · ${"x".repeat(37)}`);
  expect(await service.names()).toEqual([
    "ben",
    "ben · cleo",
    "cleo",
    cleo.device.name,
    "ann · Laptop",
    `ben · ${"x".repeat(37)}`,
  ]);
});

test("an administrator renames all keys and browsers", async () => {
  await using service = await start();
  const { ann, ben, cleo } = service;
  const rename = async (id: string, name: string, headers: Record<string, string> = BASIC) =>
    nameOf(await service.send("PATCH", `/admin/keys/${id}`, headers, { name }));
  expect(await rename(ben.id, "benjamin")).toBe("benjamin");
  expect(await service.whoami(ben.token)).toBe("benjamin");
  expect(await rename(ben.device.id, "Phone")).toBe("benjamin · Phone");
  expect(await rename(ann.id, "Laptop")).toBe("ann · Laptop");
  expect(await rename(ben.id, "cleo")).toEqual([409, "key_exists"]);
  expect(await rename("absent00", "x")).toEqual([404, "key_not_found"]);
  expect(await rename(ben.id, " ")).toEqual([422, "validation_failed"]);
  for (const headers of [ann.headers, as(`Bearer ${ben.token}`).headers])
    expect(await rename(cleo.id, "mine", headers)).toEqual([401, "unauthorized"]);
  const crossSite = { ...BASIC, "Sec-Fetch-Site": "cross-site" };
  expect(await rename(cleo.id, "x", crossSite)).toEqual([403, "cross_site_write"]);
});

test("an administrator makes a link for a key, whose token stays valid", async () => {
  await using service = await start();
  const { ben } = service;
  const create = (id: string, headers: Record<string, string> = BASIC) =>
    service.send("POST", `/admin/keys/${id}/links`, headers);
  const { link } = await create(ben.id);
  expect(link).toStartWith(`${service.url}/#sign-in=`);
  expect((await service.signIn({ code: link.split("=")[1] })).name).toStartWith("ben · ");
  expect(await service.whoami(ben.token)).toBe("ben");
  for (const id of [ben.device.id, "absent00"]) expect(await create(id)).toEqual([404, "key_not_found"]);
  for (const { headers } of [service.ann, ben.device])
    expect(await create(ben.id, headers)).toEqual([401, "unauthorized"]);
  expect(await create(ben.id, { ...BASIC, Origin: "https://evil.example" })).toEqual([
    403,
    "cross_site_write",
  ]);
});
