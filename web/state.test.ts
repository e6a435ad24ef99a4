import { expect, test } from "bun:test";
import { TodoApi, type TodoEvent } from "../src/sdk/client.ts";
import { openMemory } from "../src/storage/memory/store.ts";
import { startService } from "../test/service.ts";
import { State } from "./state.ts";

type Change = Extract<TodoEvent, { type: "created" | "updated" | "deleted" }>;

const isChange = (event: TodoEvent): event is Change =>
  event.type === "created" || event.type === "updated" || event.type === "deleted";

/**
 * Loads a state from a service with these titles. Responses to its writes wait for `releaseResponses`, events for
 * `applyEvents`.
 * @param beforeSecondPage runs before the request for the second page of a long list
 */
async function start(
  titles: readonly string[],
  beforeSecondPage = async (_api: TodoApi): Promise<void> => {},
) {
  const store = openMemory();
  for (const title of titles) await store.insert(title);
  const service = startService({ store });
  const responsesReleased = Promise.withResolvers<void>();
  const otherClient = new TodoApi({ baseUrl: service.url });
  const requests: string[] = [];
  let pending = 0;
  let maxPending = 0;
  let areResponsesLost = false;
  const pageClient = new TodoApi({
    baseUrl: service.url,
    retries: 1,
    fetch: async (url, init) => {
      if (url.includes("after=")) await beforeSecondPage(otherClient);
      if (init.method !== "GET") {
        requests.push(`${init.method} ${new URL(url).pathname.replace("/api/todos", "")}`);
        pending++;
        maxPending = Math.max(maxPending, pending);
      }
      const response = await fetch(url, init);
      if (init.method !== "GET") {
        await responsesReleased.promise;
        pending--;
        if (areResponsesLost) throw new TypeError("connection reset");
      }
      return response;
    },
  });
  const state = new State(pageClient, () => {});
  const controller = new AbortController();
  await state.load(controller.signal);
  const events = otherClient.events({ since: state.position ?? "", signal: controller.signal });
  return {
    state,
    store,
    otherClient,
    releaseResponses: responsesReleased.resolve,
    loseResponses: () => {
      areResponsesLost = true;
    },
    /** The requests of the page that change the list. */
    requests,
    maxPending: () => maxPending,
    reload: () => state.load(controller.signal),
    /** Applies the next `count` changes. */
    applyEvents: async (count: number): Promise<void> => {
      for (let remaining = count; remaining > 0; ) {
        const next = await events.next();
        if (next.done) throw new Error("the events have ended");
        if (!isChange(next.value)) continue;
        state.apply(next.value);
        remaining--;
      }
    },
    titles: () => state.view("all").todos.map(({ title, done }) => (done ? `(${title})` : title)),
    /** Resolves when the store contains `count` changes. */
    storeHasChanges: async (count: number): Promise<void> => {
      while ((await store.position()).sequence < count) await Bun.sleep(1);
    },
    [Symbol.asyncDispose]: () => {
      controller.abort();
      return service[Symbol.asyncDispose]();
    },
  };
}

test("State shows a change before and after the service confirms it", async () => {
  await using page = await start(["one", "two"]);
  const [one, two] = page.state.view("all").todos;
  if (one === undefined || two === undefined) throw new Error("no to-dos");
  const requests = [page.state.requestChange(one, "done"), page.state.requestChange(two, "deleted")];
  expect(page.titles()).toEqual(["(one)"]);
  page.releaseResponses();
  await Promise.all(requests);
  expect(page.titles()).toEqual(["(one)"]);
});

test.each(["a newer event", "a reloaded list"])(
  "State ignores a late response that %s contradicts",
  async (source) => {
    await using page = await start(["one"]);
    const [one] = page.state.view("all").todos;
    if (one === undefined) throw new Error("no to-do");
    const request = page.state.requestChange(one, "done");
    await page.storeHasChanges(2);
    await page.otherClient.setDone(one.id, false);
    if (source === "a newer event") await page.applyEvents(2);
    else await page.reload();
    page.releaseResponses();
    await request;
    expect(page.titles()).toEqual(["one"]);
  },
);

test("State shows a change until its own event when older events arrive late", async () => {
  await using page = await start(["one"]);
  const [one] = page.state.view("all").todos;
  if (one === undefined) throw new Error("no to-do");
  await page.otherClient.setDone(one.id, true);
  await page.otherClient.setDone(one.id, false);
  const request = page.state.requestChange(one, "done");
  await page.storeHasChanges(4);
  await page.applyEvents(2);
  page.releaseResponses();
  await Bun.sleep(50);
  expect(page.titles()).toEqual(["(one)"]);
  await page.applyEvents(1);
  await request;
  expect(page.titles()).toEqual(["(one)"]);
});

test("State does not restore a deleted to-do when older events arrive late", async () => {
  await using page = await start(["one"]);
  const [one] = page.state.view("all").todos;
  if (one === undefined) throw new Error("no to-do");
  await page.otherClient.setDone(one.id, true);
  page.releaseResponses();
  await page.state.requestChange(one, "deleted");
  await page.applyEvents(1);
  expect(page.titles()).toEqual([]);
});

test("State accepts the deletion of a to-do that another client deleted", async () => {
  await using page = await start(["one"]);
  const [one] = page.state.view("all").todos;
  if (one === undefined) throw new Error("no to-do");
  await page.otherClient.delete(one.id);
  page.releaseResponses();
  await page.state.requestChange(one, "deleted");
  expect(page.titles()).toEqual([]);
});

test("State does not show a to-do that was deleted before the response to its creation", async () => {
  await using page = await start(["one"]);
  const created = page.state.create("two", "k");
  await page.storeHasChanges(2);
  await page.otherClient.delete(2n);
  await page.applyEvents(2);
  page.releaseResponses();
  await created;
  expect(page.titles()).toEqual(["one"]);
});

test("State contains a new to-do once, whether the event or the response comes first", async () => {
  for (const first of ["event", "response"]) {
    await using page = await start([]);
    const created = page.state.create("one", "k");
    await page.storeHasChanges(1);
    if (first === "event") await page.applyEvents(1);
    page.releaseResponses();
    await created;
    if (first === "response") await page.applyEvents(1);
    expect(page.titles()).toEqual(["one"]);
  }
});

test("State is correct after the list changed between its two pages", async () => {
  const titles = Array.from({ length: 600 }, (_, n) => `${n + 1}`);
  await using page = await start(titles, async (otherClient) => {
    await otherClient.delete(3n);
    await otherClient.setDone(599n, true);
    await otherClient.delete((await otherClient.create("short-lived")).id);
    await otherClient.create("last");
  });
  expect(page.titles()).toEqual([...titles.with(598, "(599)"), "last"]);
  await page.applyEvents(5);
  expect(page.titles()).toEqual([...titles.with(598, "(599)").toSpliced(2, 1), "last"]);
});

test("State shows the old list until every page of the new one has loaded", async () => {
  const counts: (number | undefined)[] = [];
  let count = (): number | undefined => undefined;
  const titles = Array.from({ length: 600 }, (_, n) => `${n + 1}`);
  await using page = await start(titles, async () => {
    counts.push(count());
  });
  count = () => page.titles().length;
  await page.reload();
  expect(counts).toEqual([undefined, 600]);
});

/** Returns the to-dos that the page shows. Throws unless it shows `count`. */
function shown(page: Awaited<ReturnType<typeof start>>, count: number) {
  const { todos } = page.state.view("all");
  if (todos.length !== count) throw new Error(`the page shows ${todos.length} to-dos`);
  return todos;
}

test("State shows a delayed deletion, excludes it from the counts, and sends it only after send()", async () => {
  await using page = await start(["one", "two"]);
  page.releaseResponses();
  const [one] = shown(page, 2);
  if (one === undefined) throw new Error("no to-do");
  const held = page.state.hold([one], "deleted");
  expect(page.titles()).toEqual(["two"]);
  expect(page.state.view("all")).toMatchObject({ open: 1, done: 0, total: 1, totalOpen: 1 });
  expect(page.requests).toEqual([]);
  expect(await page.state.send(held)).toEqual({ succeeded: 1, failures: [], unsent: 0 });
  expect(page.requests).toEqual(["DELETE /1"]);
  expect(page.titles()).toEqual(["two"]);
});

test("State restores a delayed deletion and never sends it", async () => {
  await using page = await start(["one", "two"]);
  page.releaseResponses();
  const [one] = shown(page, 2);
  if (one === undefined) throw new Error("no to-do");
  const held = page.state.hold([one], "deleted");
  expect(page.state.restore(held)).toEqual({ restored: [one], deleted: [] });
  expect(page.titles()).toEqual(["one", "two"]);
  expect(await page.state.send(held)).toEqual({ succeeded: 0, failures: [], unsent: 0 });
  await page.state.sendBeforeClosing(held);
  expect(page.requests).toEqual([]);
});

test("State reports a to-do with a delayed deletion that another client deleted", async () => {
  await using page = await start(["one", "two"]);
  const todos = shown(page, 2);
  const held = page.state.hold(todos, "deleted");
  await page.otherClient.delete(1n);
  await page.applyEvents(1);
  expect(page.state.restore(held)).toEqual({ restored: todos.slice(1), deleted: todos.slice(0, 1) });
  expect(page.titles()).toEqual(["two"]);
});

test("State sends a delayed change with at most four concurrent requests, and reports progress", async () => {
  await using page = await start(Array.from({ length: 12 }, (_, n) => `${n + 1}`));
  const held = page.state.hold(shown(page, 12), "done", "open");
  expect(page.state.view("all")).toMatchObject({ open: 0, done: 12 });
  let progress = 0;
  const sent = page.state.send(held, {
    onProgress: () => {
      progress++;
    },
  });
  await page.storeHasChanges(16);
  expect(page.requests).toHaveLength(4);
  page.releaseResponses();
  expect(await sent).toEqual({ succeeded: 12, failures: [], unsent: 0 });
  expect(page.maxPending()).toBe(4);
  expect(progress).toBe(12);
  expect(page.state.view("all")).toMatchObject({ open: 0, done: 12 });
});

test("State restores the to-dos of an aborted change that it has not sent", async () => {
  await using page = await start(Array.from({ length: 12 }, (_, n) => `${n + 1}`));
  const held = page.state.hold(shown(page, 12), "deleted");
  const controller = new AbortController();
  const sent = page.state.send(held, { signal: controller.signal });
  controller.abort();
  page.releaseResponses();
  expect(await sent).toEqual({ succeeded: 4, failures: [], unsent: 8 });
  expect(page.titles()).toEqual(["5", "6", "7", "8", "9", "10", "11", "12"]);
});

test("State reports the to-dos that it could not change, and stops if the service does not respond", async () => {
  await using page = await start(Array.from({ length: 12 }, (_, n) => `${n + 1}`));
  page.releaseResponses();
  page.loseResponses();
  const { succeeded, failures, unsent } = await page.state.send(page.state.hold(shown(page, 12), "deleted"));
  expect({ succeeded, unsent, failures: failures.length }).toEqual({ succeeded: 0, unsent: 0, failures: 12 });
  expect(page.titles()).toHaveLength(12);
  expect(new Set(page.requests).size).toBe(4);
});

test("State does not apply a bulk change to to-dos that another client changed meanwhile", async () => {
  await using page = await start(["one", "two", "three"]);
  page.releaseResponses();
  for (const id of [1n, 2n, 3n]) await page.otherClient.setDone(id, true);
  await page.applyEvents(3);
  const held = page.state.hold(page.state.view("done").todos, "deleted", "done");
  await page.otherClient.setDone(2n, false);
  await page.applyEvents(1);
  expect(page.titles()).toEqual(["two"]);
  await page.state.send(held);
  expect(page.requests).toEqual(["DELETE /1", "DELETE /3"]);
  expect(page.titles()).toEqual(["two"]);
});

test("State deletes a single to-do that another client marks as done meanwhile", async () => {
  await using page = await start(["one"]);
  page.releaseResponses();
  const held = page.state.hold(shown(page, 1), "deleted");
  await page.otherClient.setDone(1n, true);
  await page.applyEvents(1);
  expect(page.titles()).toEqual([]);
  await page.state.send(held);
  expect(page.requests).toEqual(["DELETE /1"]);
});

test("State removes a to-do from a delayed change when the user changes it back", async () => {
  await using page = await start(["one", "two"]);
  page.releaseResponses();
  const [one, two] = shown(page, 2);
  if (one === undefined || two === undefined) throw new Error("no to-dos");
  const held = page.state.hold([one, two], "done", "open");
  await page.state.requestChange(one, "open");
  expect(page.titles()).toEqual(["one", "(two)"]);
  await page.state.send(held);
  expect(page.requests).toEqual(["PATCH /2"]);
});

test("State sends all of a change whose to-dos a later change hides until it is undone", async () => {
  await using page = await start(Array.from({ length: 12 }, (_, n) => `${n + 1}`));
  const sent = page.state.send(page.state.hold(shown(page, 12), "done", "open"));
  const later = page.state.hold(page.state.view("done").todos, "deleted", "done");
  expect(page.titles()).toEqual([]);
  page.state.restore(later);
  expect(page.state.view("all")).toMatchObject({ open: 0, done: 12 });
  page.releaseResponses();
  expect(await sent).toEqual({ succeeded: 12, failures: [], unsent: 0 });
  expect(page.requests).toHaveLength(12);
  expect(page.state.view("all")).toMatchObject({ open: 0, done: 12 });
});

test("State sends only the later of two delayed changes to the same to-do", async () => {
  await using page = await start(Array.from({ length: 12 }, (_, n) => `${n + 1}`));
  const earlier = page.state.send(page.state.hold(shown(page, 12), "done", "open"));
  const later = page.state.send(page.state.hold(page.state.view("done").todos.slice(4), "deleted", "done"));
  page.releaseResponses();
  expect(await earlier).toMatchObject({ failures: [], unsent: 0 });
  expect(await later).toEqual({ succeeded: 8, failures: [], unsent: 0 });
  const deleted = page.requests.filter((request) => request.startsWith("DELETE"));
  expect(deleted).toHaveLength(8);
  // The store has received some of the earlier changes, but none after a deletion of the same to-do.
  for (const request of deleted)
    expect(page.requests.lastIndexOf(request.replace("DELETE", "PATCH"))).toBeLessThan(
      page.requests.indexOf(request),
    );
  expect(page.titles()).toEqual(["(1)", "(2)", "(3)", "(4)"]);
});

test("State sends all requests of a delayed change concurrently before the page closes", async () => {
  await using page = await start(Array.from({ length: 12 }, (_, n) => `${n + 1}`));
  const todos = shown(page, 12);
  const [one] = todos;
  if (one === undefined) throw new Error("no to-do");
  const marked = page.state.requestChange(one, "done");
  const sent = page.state.sendBeforeClosing(page.state.hold(todos, "deleted"));
  await page.storeHasChanges(24);
  expect(page.requests.filter((request) => request.startsWith("DELETE"))).toHaveLength(12);
  page.releaseResponses();
  expect((await sent).failures).toEqual([]);
  await marked;
  expect(page.titles()).toEqual([]);
});

test("State discards a delayed change and counts the missing to-dos when the service has another list", async () => {
  await using first = startService({ store: openMemory() });
  await using second = startService({ store: openMemory() });
  let { url } = first;
  const api = new TodoApi({
    baseUrl: "http://x",
    fetch: (path, init) => fetch(path.replace("http://x", url), init),
  });
  for (const title of ["one", "two"]) await api.create(title);
  const state = new State(api, () => {});
  const { signal } = new AbortController();
  expect(await state.load(signal)).toBe(0);
  const { epoch } = state;
  expect(await state.load(signal)).toBe(0);
  expect(state.epoch).toBe(epoch);
  const held = state.hold(state.view("all").todos, "deleted");
  url = second.url;
  for (const title of ["one", "else"]) await api.create(title);
  expect(await state.load(signal)).toBe(1);
  expect(state.epoch).not.toBe(epoch);
  expect(state.view("all").todos.map(({ title }) => title)).toEqual(["one", "else"]);
  expect(await state.send(held)).toMatchObject({ succeeded: 0 });
});

test("State accepts a change whose response is lost if its event arrives", async () => {
  await using page = await start(["one", "two"]);
  const [one, two] = shown(page, 2);
  if (one === undefined || two === undefined) throw new Error("no to-dos");
  page.loseResponses();
  const requests = [page.state.requestChange(one, "done"), page.state.requestChange(two, "deleted")];
  await page.storeHasChanges(4);
  await page.applyEvents(2);
  page.releaseResponses();
  await Promise.all(requests);
  expect(page.titles()).toEqual(["(one)"]);
  expect(page.state.isSettled("1", "done")).toBe(true);
});
