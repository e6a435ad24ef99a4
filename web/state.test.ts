import { expect, setDefaultTimeout, test } from "bun:test";
import { TodoApi, type TodoEvent } from "../src/sdk.ts";
import { openMemory } from "../src/storage/memory.ts";
import { startService } from "../test/service.ts";
import { State } from "./state.ts";

setDefaultTimeout(10_000);

type Change = Extract<TodoEvent, { type: "created" | "updated" | "deleted" }>;

const isChange = (event: TodoEvent): event is Change =>
  event.type === "created" || event.type === "updated" || event.type === "deleted";

/**
 * A state of a page, as loaded; answers to its writes arrive when they are let through, events when they are applied.
 * @param between what happens before the second piece of a long list is sent
 */
async function start(titles: readonly string[], between = async (_api: TodoApi): Promise<void> => {}) {
  const store = openMemory();
  for (const title of titles) await store.insert(title);
  const service = startService({ store });
  const gate = Promise.withResolvers<void>();
  const elsewhere = new TodoApi({ baseUrl: service.url });
  const here = new TodoApi({
    baseUrl: service.url,
    fetch: async (url, init) => {
      if (url.includes("after=")) await between(elsewhere);
      const response = await fetch(url, init);
      if (init.method !== "GET") await gate.promise;
      return response;
    },
  });
  const state = new State(here, () => {});
  const ending = new AbortController();
  await state.load(ending.signal);
  const events = elsewhere.events({ since: state.position ?? "", signal: ending.signal });
  return {
    state,
    store,
    elsewhere,
    letThrough: gate.resolve,
    reload: () => state.load(ending.signal),
    /** Applies the next so many events. */
    hear: async (count: number): Promise<void> => {
      for (let left = count; left > 0; ) {
        const next = await events.next();
        if (next.done) throw new Error("the events have ended");
        if (!isChange(next.value)) continue;
        state.apply(next.value);
        left--;
      }
    },
    titles: () => state.view("all").todos.map(({ title, done }) => (done ? `(${title})` : title)),
    /** Resolves when the store holds so many changes. */
    changes: async (n: number): Promise<void> => {
      while ((await store.position()).n < n) await Bun.sleep(1);
    },
    [Symbol.asyncDispose]: () => {
      ending.abort();
      return service[Symbol.asyncDispose]();
    },
  };
}

test("State shows a wish at once, and what the service says of it", async () => {
  await using page = await start(["one", "two"]);
  const [one, two] = page.state.view("all").todos;
  if (one === undefined || two === undefined) throw new Error("no to-dos");
  const asked = [page.state.ask(one, "done"), page.state.ask(two, "deleted")];
  expect(page.titles()).toEqual(["(one)"]);
  page.letThrough();
  await Promise.all(asked);
  expect(page.titles()).toEqual(["(one)"]);
});

test.each(["events", "a new list"])("State does not let a late answer undo what %s told", async (teller) => {
  await using page = await start(["one"]);
  const [one] = page.state.view("all").todos;
  if (one === undefined) throw new Error("no to-do");
  const asked = page.state.ask(one, "done");
  await page.changes(2);
  await page.elsewhere.setDone(one.id, false);
  if (teller === "events") await page.hear(2);
  else await page.reload();
  page.letThrough();
  await asked;
  expect(page.titles()).toEqual(["one"]);
});

test("State shows a wish until its own event, when older ones are heard late", async () => {
  await using page = await start(["one"]);
  const [one] = page.state.view("all").todos;
  if (one === undefined) throw new Error("no to-do");
  await page.elsewhere.setDone(one.id, true);
  await page.elsewhere.setDone(one.id, false);
  const asked = page.state.ask(one, "done");
  await page.changes(4);
  await page.hear(2);
  page.letThrough();
  await Bun.sleep(50);
  expect(page.titles()).toEqual(["(one)"]);
  await page.hear(1);
  await asked;
  expect(page.titles()).toEqual(["(one)"]);
});

test("State does not bring back a to-do that it has deleted when older events are heard late", async () => {
  await using page = await start(["one"]);
  const [one] = page.state.view("all").todos;
  if (one === undefined) throw new Error("no to-do");
  await page.elsewhere.setDone(one.id, true);
  page.letThrough();
  await page.state.ask(one, "deleted");
  await page.hear(1);
  expect(page.titles()).toEqual([]);
});

test("State takes a to-do that is gone already for deleted", async () => {
  await using page = await start(["one"]);
  const [one] = page.state.view("all").todos;
  if (one === undefined) throw new Error("no to-do");
  await page.elsewhere.delete(one.id);
  page.letThrough();
  await page.state.ask(one, "deleted");
  expect(page.titles()).toEqual([]);
});

test("State does not bring back a to-do whose end came before the answer that made it", async () => {
  await using page = await start(["one"]);
  const made = page.state.create("two", "k");
  await page.changes(2);
  await page.elsewhere.delete(2n);
  await page.hear(2);
  page.letThrough();
  await made;
  expect(page.titles()).toEqual(["one"]);
});

test("State has each to-do once, whether the event or the answer comes first", async () => {
  for (const first of ["event", "answer"]) {
    await using page = await start([]);
    const made = page.state.create("one", "k");
    await page.changes(1);
    if (first === "event") await page.hear(1);
    page.letThrough();
    await made;
    if (first === "answer") await page.hear(1);
    expect(page.titles()).toEqual(["one"]);
  }
});

test("State is right after a list in two pieces between which something has changed", async () => {
  const titles = Array.from({ length: 600 }, (_, n) => `${n + 1}`);
  await using page = await start(titles, async (elsewhere) => {
    await elsewhere.delete(3n);
    await elsewhere.setDone(599n, true);
    await elsewhere.delete((await elsewhere.create("not for long")).id);
    await elsewhere.create("last");
  });
  expect(page.titles()).toEqual([...titles.with(598, "(599)"), "last"]);
  await page.hear(5);
  expect(page.titles()).toEqual([...titles.with(598, "(599)").toSpliced(2, 1), "last"]);
});

test("State shows a long list until it has all of the next", async () => {
  const shown: (number | undefined)[] = [];
  let count = (): number | undefined => undefined;
  const titles = Array.from({ length: 600 }, (_, n) => `${n + 1}`);
  await using page = await start(titles, async () => {
    shown.push(count());
  });
  count = () => page.titles().length;
  await page.reload();
  expect(shown).toEqual([undefined, 600]);
});
