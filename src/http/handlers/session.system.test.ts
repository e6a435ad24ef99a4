import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { type Databases, openDatabases, whyNoDatabase } from "../../../test/postgres.ts";
import { ANN, cookieOf, startPrivate } from "../../../test/service.ts";
import { skipFor } from "../../../test/skip.ts";
import { PATIENT } from "../../../test/stores.ts";
import { openPostgres } from "../../storage/postgres/store.ts";

async function startReplica(url: string) {
  const store = await openPostgres(url, PATIENT);
  const service = startPrivate(store, { limits: { heartbeatMs: 50 } });
  const signIn = async (body: object) => {
    const response = await service.sendJson("POST", "/api/session", body);
    return { status: response.status, init: cookieOf(response) };
  };
  const close = async () => {
    await service[Symbol.asyncDispose]();
    await store.close();
  };
  return { ...service, signIn, [Symbol.asyncDispose]: close };
}

describe.skipIf(skipFor(whyNoDatabase))("on three replicas", () => {
  let databases: Databases;
  beforeAll(async () => {
    databases = await openDatabases();
  });
  afterAll(() => databases[Symbol.asyncDispose]());

  test("a browser that signs in on one is signed in on another, until a third revokes it", async () => {
    const url = await databases.newDatabase();
    await using first = await startReplica(url);
    await using second = await startReplica(url);
    await using third = await startReplica(url);
    const { init } = await first.signIn(ANN);
    const { init: other } = await third.signIn(ANN);
    const events = await second.send("GET", "/api/events", init);
    expect(events.status).toBe(200);
    const { devices } = JSON.parse(await (await third.send("GET", "/api/session", other)).text());
    const [{ id }] = devices;
    expect((await third.send("DELETE", `/api/session/devices/${id}`, other)).status).toBe(204);
    for (const { send } of [first, second, third])
      expect((await send("GET", "/api/todos", init)).status).toBe(401);
    // The stream ends, too.
    await events.text();
    expect((await second.send("GET", "/api/todos", other)).status).toBe(200);
  });

  test("a link signs in one of the browsers that use it together", async () => {
    const url = await databases.newDatabase();
    await using first = await startReplica(url);
    await using second = await startReplica(url);
    await using third = await startReplica(url);
    const { init } = await first.signIn(ANN);
    const { link } = JSON.parse(await (await second.send("POST", "/api/session/links", init)).text());
    const code = link.split("=")[1];
    const uses = [first, second, third].flatMap(({ signIn }) => [signIn({ code }), signIn({ code })]);
    const statuses = (await Promise.all(uses)).map(({ status }) => status);
    expect(statuses.toSorted()).toEqual([201, 401, 401, 401, 401, 401]);
  });
});
