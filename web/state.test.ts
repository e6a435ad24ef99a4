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
  const pageClient = new TodoApi({
    baseUrl: service.url,
    fetch: async (url, init) => {
      if (url.includes("after=")) await beforeSecondPage(otherClient);
      const response = await fetch(url, init);
      if (init.method !== "GET") await responsesReleased.promise;
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
