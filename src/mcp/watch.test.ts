import { expect, test } from "bun:test";
import { startFaultyProxy } from "../../test/faulty-proxy.ts";
import { errorOf } from "../../test/rejection.ts";
import { startService } from "../../test/service.ts";
import { until } from "../../test/until.ts";
import { TodoApi } from "../sdk/client.ts";
import { openMemory } from "../storage/memory/store.ts";
import { ChangeWatch } from "./watch.ts";

/** Starts a service behind a proxy that can refuse connections, and a watch that counts its reports. */
async function startWatched() {
  await using stack = new AsyncDisposableStack();
  let isRevoked = false;
  const service = stack.use(
    startService({
      store: openMemory(),
      access: { privateMode: true },
      credentials: { lookupClient: () => (isRevoked ? undefined : { name: "client" }) },
    }),
  );
  let isAway = false;
  const proxy = stack.use(await startFaultyProxy(service.port, () => (isAway ? "refuse" : "pass")));
  let reports = 0;
  const ends: unknown[] = [];
  const api = new TodoApi({ baseUrl: proxy.url, ids: "string", token: "t0ken" });
  const direct = new TodoApi({ baseUrl: service.url, token: "t0ken" });
  const watch = new ChangeWatch(
    api,
    () => {
      reports++;
    },
    (error) => ends.push(error),
  );
  stack.defer(() => watch.close());
  const rest = stack.move();
  return {
    watch,
    ends,
    reports: () => reports,
    add: (title: string) => direct.create(title),
    /** Makes the service reject the token, and ends the streams that it has accepted. */
    revoke: (): void => {
      isRevoked = true;
      proxy.cut();
    },
    leave: (): void => {
      isAway = true;
      proxy.cut();
    },
    comeBack: (): void => {
      isAway = false;
    },
    [Symbol.asyncDispose]: () => rest.disposeAsync(),
  };
}

test("a watch combines many changes into fewer reports", async () => {
  await using watched = await startWatched();
  await watched.watch.add("subscriber");
  for (let count = 0; count < 50; count++) await watched.add(`to-do ${count}`);
  await until(() => watched.reports() > 0, "a report");
  expect(watched.reports()).toBeLessThan(50);
});

test("a watch that starts while the service is down reports a change when the service is up again", async () => {
  await using watched = await startWatched();
  watched.leave();
  await watched.watch.add("subscriber");
  await watched.add("missed");
  watched.comeBack();
  await until(() => watched.reports() > 0, "a report");
  expect(watched.ends).toEqual([]);
});

test("a watch reports changes that were made while the connection was lost", async () => {
  await using watched = await startWatched();
  await watched.watch.add("subscriber");
  watched.leave();
  await watched.add("during the loss");
  expect(watched.reports()).toBe(0);
  watched.comeBack();
  await until(() => watched.reports() > 0, "a report");
});

test("a watch reports changes until its last subscriber is removed, and again for a new subscriber", async () => {
  await using watched = await startWatched();
  await watched.watch.add("first");
  await watched.watch.add("second");
  watched.watch.delete("first");
  watched.watch.delete("unknown");
  await watched.add("seen");
  await until(() => watched.reports() > 0, "a report");
  watched.watch.delete("second");
  await watched.watch.add("third");
  const before = watched.reports();
  await watched.add("seen again");
  await until(() => watched.reports() > before, "another report");
});

test("a watch reports once that the service rejects its stream, also if a client subscribes later", async () => {
  await using watched = await startWatched();
  await watched.watch.add("subscriber");
  watched.revoke();
  await until(() => watched.ends.length > 0, "the end of the stream");
  for (const subscriber of ["second", "third"])
    expect(await errorOf(watched.watch.add(subscriber))).toMatchObject({ code: "unauthorized" });
  expect(watched.ends).toEqual([expect.objectContaining({ code: "unauthorized" })]);
});
