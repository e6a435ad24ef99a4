import { describe, expect, test } from "bun:test";
import { errorOf } from "../../test/rejection.ts";
import { startService } from "../../test/service.ts";
import { createKeyLookup } from "../credential/key.ts";
import { createFixedUserCheck } from "../credential/user.ts";
import { openMemory } from "../storage/memory/store.ts";
import { TodoApi, TodoApiError, type TodoApiOptions } from "./client.ts";

const ADMIN = { name: "admin \u00e4", password: "secret: \u2603" };
const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/;
const KEY = '{"id":"c7kcKWBu","name":"ci","scope":"write","createdAt":"2026-01-02T03:04:05Z"}';

function start(privateMode = false) {
  const store = openMemory();
  const service = startService({
    store,
    credentials: {
      keys: store.keys,
      lookupClient: createKeyLookup(store.keys, Date.now),
      checkUser: createFixedUserCheck(ADMIN.name, ADMIN.password),
    },
    access: { privateMode },
    network: { onLoopback: true },
  });
  return {
    admin: new TodoApi({ baseUrl: service.url, admin: ADMIN, token: "unused" }),
    clientOf: (options: TodoApiOptions) => new TodoApi({ baseUrl: service.url, ...options }),
    [Symbol.asyncDispose]: () => service[Symbol.asyncDispose](),
  };
}

async function codeOf(call: Promise<unknown>): Promise<unknown> {
  const error = await errorOf(call);
  return error instanceof TodoApiError ? error.code : error.name;
}

describe("the client's keys", () => {
  test("are created, listed, rotated, renamed and revoked", async () => {
    await using service = start();
    const { keys } = service.admin;
    expect(await keys.list()).toEqual([]);

    const ci = await keys.create("ci", { expires: "90d", scope: "read" });
    expect(ci).toEqual({
      id: expect.stringMatching(/^\w{8}$/),
      name: "ci",
      scope: "read",
      createdAt: expect.stringMatching(TIME),
      expiresAt: expect.stringMatching(TIME),
      token: expect.stringMatching(/^todo_\w{49}$/),
    });
    expect(await service.clientOf({ token: ci.token }).whoami()).toBe("ci");

    const successor = await keys.rotate(ci.id, { overlap: "0" });
    expect([successor.name, successor.scope, successor.id === ci.id]).toEqual(["ci", "read", false]);
    expect(await codeOf(service.clientOf({ token: ci.token }).whoami())).toBe("unauthorized");
    expect((await keys.list()).map(({ id }) => id)).toEqual([ci.id, successor.id]);

    expect(await keys.rename(successor.id, "build")).toMatchObject({ id: successor.id, name: "build" });
    expect(await service.clientOf({ token: successor.token }).whoami()).toBe("build");
    expect(await codeOf(keys.rename("absent00", "x"))).toBe("key_not_found");

    await keys.revoke(successor.id);
    expect(await codeOf(service.clientOf({ token: successor.token }).whoami())).toBe("unauthorized");
    expect((await keys.list()).map(({ id }) => id)).toEqual([ci.id]);
  });

  test("have links in private mode", async () => {
    await using service = start(true);
    const { keys } = service.admin;
    const { id } = await keys.create("ben");
    const { link, qrCode, expiresAt } = await keys.createLink(id);
    expect([link, qrCode.size > 20, expiresAt]).toEqual([
      expect.stringContaining("/#sign-in="),
      true,
      expect.stringMatching(TIME),
    ]);
    expect(await codeOf(keys.createLink("absent00"))).toBe("key_not_found");
    await using open = start();
    expect(await codeOf(open.admin.keys.createLink(id))).toBe("route_not_found");
  });

  test("report the service's errors, and do not use the token", async () => {
    await using service = start();
    const { keys } = service.admin;
    await keys.create("ci");
    expect(await codeOf(keys.create("ci"))).toBe("key_exists");
    expect(await codeOf(keys.rotate("absent00"))).toBe("key_not_found");
    expect(await codeOf(keys.revoke("../whoami"))).toBe("key_not_found");
    expect(await codeOf(service.clientOf({ token: "unused" }).keys.list())).toBe("unauthorized");
  });

  test.each<[what: string, call: "list" | "create", body: string]>([
    ["an object instead of the list", "list", KEY],
    ["a list with null", "list", "[null]"],
    ["a key without a name", "list", '[{"id":"c7kcKWBu"}]'],
    ["a key whose id is a number", "list", '[{"id":1,"name":"ci"}]'],
    ["a list instead of a new key", "create", `[${KEY}]`],
    ["a new key without a token", "create", KEY],
    ["a token without a key", "create", '{"token":"todo_a"}'],
  ])("reject %s", async (_what, call, body) => {
    const { keys } = new TodoApi({ retries: 0, fetch: async () => new Response(body) });
    expect(await codeOf(call === "list" ? keys.list() : keys.create("ci"))).toBe("unexpected_answer");
  });
});
