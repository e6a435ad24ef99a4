import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import { TodoApi } from "../../src/sdk/client.ts";
import { startList, synchronize } from "../../src/sdk/confirmed-list.ts";
import type { TodoStore } from "../../src/todo.ts";
import { startService, type TestService } from "../../test/service.ts";
import { createStore, numbered, storedTitles, untilStored } from "../../test/todos-page.ts";
import { until } from "../../test/until.ts";
import { type Change, type ChangeKind, newId, type Rejection } from "../model/change.ts";
import { History } from "../model/history.ts";
import { Outbox } from "../model/outbox.ts";
import { State } from "../model/state.ts";
import { PageApi } from "./connection.ts";
import { Sender } from "./sender.ts";

/** What a browser keeps. Its entries are its own properties, as those of a `Storage` are. */
class MemoryStorage {
  [name: string]: unknown;
  getItem(name: string): unknown {
    return this[name];
  }
  setItem(name: string, text: string): void {
    this[name] = text;
  }
  removeItem(name: string): void {
    delete this[name];
  }
}

/** Stores a change as another window does. */
const storeChange = (change: Change): void =>
  localStorage.setItem(`todo-service.change.${change.key}`, JSON.stringify(change));

const asDone = (title: string): string => `(${title})`;

/** Lets the request of a page through, or not. */
type Network = (send: () => Promise<Response>, method: string, path: string) => Promise<Response>;

/** Resolves never, as an answer that gets lost. */
const never = (): Promise<never> => new Promise(() => {});
const cut = async (): Promise<never> => {
  throw new TypeError("the connection is cut");
};
const pass: Network = (send) => send();

/** A page of the only browser, without its view. Only one is open at a time. */
class Page implements Disposable {
  network: Network;
  readonly requests: string[] = [];
  readonly rejections: Rejection[] = [];
  readonly outbox = new Outbox();
  readonly state = new State(this.outbox);
  readonly history = new History(this.outbox, this.state);
  readonly sender: Sender;
  readonly #closing = new AbortController();
  #isClosed = false;

  constructor({ url }: TestService, network = pass) {
    this.network = network;
    // A browser finishes the requests of a closed page, but the page does not get their answers.
    const fetchHere = async (
      address: string,
      { signal: _signal, ...init }: RequestInit,
    ): Promise<Response> => {
      const { method = "" } = init;
      const path = address.slice(url.length);
      this.requests.push(`${method} ${path}`);
      const response = await this.network(() => fetch(address, init), method, path);
      return this.#isClosed ? never() : response;
    };
    this.sender = new Sender({
      api: new PageApi({ baseUrl: url, fetch: fetchHere, retries: 0 }),
      outbox: this.outbox,
      state: this.state,
      identify: async () => {},
      isOwnerSignedIn: () => true,
      onDelay: () => {},
      onRejected: (_change, rejections) => this.rejections.push(...rejections),
    });
    this.outbox.addEventListener("change", () => this.history.forgetSent());
    const api = new TodoApi({ baseUrl: url });
    const source = { list: api.list.bind(api, {}), events: api.events.bind(api) };
    const list = startList();
    const { signal } = this.#closing;
    synchronize(list, this.state.overlay, source, { signal }, () => {
      this.state.isLive = list.status === "connected";
      if (list.position !== undefined) this.state.setList(list.todos, list.position);
    });
    this.sender.run(signal);
  }

  get writes(): readonly string[] {
    return this.requests.filter((request) => !request.startsWith("GET "));
  }

  get titles(): readonly string[] {
    return this.state.todos.map(({ title, done }) => (done ? `(${title})` : title));
  }

  find(title: string) {
    const todo = this.state.todos.find((one) => one.title === title);
    if (todo === undefined) throw new Error(`there is no “${title}”`);
    return todo;
  }

  change(kind: ChangeKind, ...titles: readonly string[]) {
    return this.history.do(
      kind,
      titles.map((title) => this.find(title)),
      () => {},
    );
  }

  add(...titles: readonly string[]) {
    const targets = titles.map((text) => ({
      id: newId(),
      title: text.replace(/[()]/g, ""),
      done: text.startsWith("("),
    }));
    return this.history.do("created", targets, () => {});
  }

  untilShown(...titles: readonly string[]): Promise<void> {
    return until(() => Bun.deepEquals(this.titles, titles), `${titles} are shown`);
  }

  untilSent(): Promise<void> {
    return until(() => this.outbox.size === 0, "all changes have their answers");
  }

  /** Closes the page as a browser does, which finishes the requests that have begun. */
  async close(): Promise<void> {
    this.sender.sendBeforeClosing();
    this.#isClosed = true;
    // The callbacks of what has happened already still run.
    await new Promise((resolve) => setImmediate(resolve));
    this[Symbol.dispose]();
  }

  [Symbol.dispose](): void {
    this.#closing.abort();
  }
}

describe("the unsent changes", () => {
  let used = new AsyncDisposableStack();
  beforeEach(() => {
    Object.assign(globalThis, { localStorage: new MemoryStorage(), window: globalThis });
    Object.defineProperty(navigator, "onLine", { value: true, configurable: true });
  });
  afterEach(async () => {
    await used.disposeAsync();
    used = new AsyncDisposableStack();
  });

  async function open(list: TodoStore | readonly string[]) {
    const store = "insert" in list ? list : await createStore(list);
    const service = used.use(startService({ store }));
    return { page: await openNext(service), store, service };
  }

  async function openNext(service: TestService, network = pass): Promise<Page> {
    const page = used.use(new Page(service, network));
    await until(() => page.state.isLive, "the list is live");
    return page;
  }

  test("are sent by the next page after a crash or a close within them, with the ticks of new to-dos", async () => {
    const { page, store, service } = await open(["one"]);
    let created = 0;
    page.network = (send, method) => (method === "POST" && ++created > 1 ? cut() : send());
    page.add("(two)", "(three)");
    await until(() => created > 1, "the page tries to create the second");
    await page.close();
    const next = await openNext(service);
    await untilStored(store, ["1 one", "2 (two)", "3 (three)"]);
    await next.untilSent();
  });

  test.each<[when: string, answer: () => Promise<Response>, find: Network, closes: boolean]>([
    ["its answer is lost", cut, pass, false],
    ["the page closes before its answer", never, pass, true],
    ["the page closes and could not find out whether it has arrived", cut, never, true],
  ])("are not repeated for a tick undone by another device when %s", async (_when, answer, find, closes) => {
    const { page, store, service } = await open(["one"]);
    const reopened = Promise.withResolvers<void>();
    page.network = async (send, method, path) => {
      if (method === "GET") return find(send, method, path);
      await send();
      await reopened.promise;
      return answer();
    };
    page.change("done", "one");
    await untilStored(store, ["1 (one)"]);
    await store.setDone(1n, false);
    reopened.resolve();
    if (find === never)
      await until(() => page.requests.length > 1, "the page asks whether the tick has arrived");
    if (closes) await page.close();
    const last = closes ? await openNext(service) : page;
    await last.untilSent();
    expect(await storedTitles(store)).toEqual(["1 one"]);
    expect([...page.writes, ...(closes ? last.writes : [])]).toEqual(["PATCH /api/todos/1"]);
  });

  test("with an answer are not repeated beside others of the same change that have none when the page closes", async () => {
    const { page, store, service } = await open(["one", "two"]);
    page.network = (send, _method, path) => (path.endsWith("/2") ? never() : send());
    page.change("done", "one", "two");
    await untilStored(store, ["1 (one)", "2 two"]);
    await store.setDone(1n, false);
    await page.close();
    const next = await openNext(service);
    await untilStored(store, ["1 one", "2 (two)"]);
    await next.untilSent();
    expect(await storedTitles(store)).toEqual(["1 one", "2 (two)"]);
  });

  test("are sent again after a temporary failure, which is not reported", async () => {
    const { page, store } = await open(["one"]);
    for (const [index, status] of [0, 408, 421, 429, 500, 503].entries()) {
      const kind = index % 2 === 0 ? "done" : "open";
      page.network = async () => {
        page.network = pass;
        const headers = { "Content-Type": "application/problem+json" };
        const problem = { title: "Problem", status, code: "overloaded" };
        return status === 0 ? cut() : Response.json(problem, { status, headers });
      };
      page.change(kind, "one");
      await page.untilSent();
      expect(await storedTitles(store)).toEqual([kind === "done" ? "1 (one)" : "1 one"]);
    }
    expect(page.rejections).toEqual([]);
  });

  test("to one to-do are sent once with the last value, although the first answer is lost", async () => {
    const { page, store } = await open(["one"]);
    const changed = Promise.withResolvers<void>();
    page.network = async (send) => {
      await send();
      await changed.promise;
      page.network = pass;
      return cut();
    };
    page.change("done", "one");
    await untilStored(store, ["1 (one)"]);
    for (const kind of ["open", "done", "open"] as const) page.change(kind, "one");
    changed.resolve();
    await page.untilSent();
    expect(page.writes).toEqual(["PATCH /api/todos/1", "PATCH /api/todos/1"]);
    expect(await storedTitles(store)).toEqual(["1 one"]);
  });

  test("are sent in the order of the releases: a deletion follows the tick of another window", async () => {
    const { page, store } = await open(["one", "two"]);
    const ticked = Promise.withResolvers<void>();
    page.network = async (send, method) => {
      if (method === "PATCH") await ticked.promise;
      return send();
    };
    const todo = page.find("one");
    page.change("deleted", "one");
    storeChange({ key: newId(), kind: "done", targets: [todo] });
    page.outbox.sendsAll = true;
    page.outbox.reload();
    await until(() => page.writes.length > 0, "the tick is sent");
    page.outbox.release();
    // As when another window has stored something.
    page.outbox.reload();
    ticked.resolve();
    await untilStored(store, ["2 two"]);
  });

  test("are in the order of the clicks although the clock was set back", async () => {
    const { page, store, service } = await open([]);
    await page.close();
    const later = `${(Date.now() + 3600_000) * 1000}`.padEnd(36, "0");
    storeChange({ key: later, kind: "created", targets: [{ id: later, title: "one", done: false }] });
    const next = await openNext(service, cut);
    next.change("done", "one");
    next.outbox.reload();
    expect(next.titles).toEqual(["(one)"]);
    next.network = pass;
    await untilStored(store, ["1 (one)"]);
  });

  test("are sent without storage, and those that cannot be read are ignored", async () => {
    for (const text of ["{", "null", "{}"]) localStorage.setItem(`todo-service.change.${text}`, text);
    const { page, store } = await open(["one"]);
    expect(page.outbox.size).toBe(0);
    Object.assign(localStorage, {
      setItem: () => {
        throw new DOMException("full", "QuotaExceededError");
      },
    });
    page.change("done", "one");
    page.add("two");
    await untilStored(store, ["1 (one)", "2 two"]);
    await page.untilSent();
  });

  test("need one request each at once, but a deletion waits for its release, which ends the undo of its to-do", async () => {
    const { page, store } = await open(["one", "two", "three"]);
    page.change("deleted", "two");
    page.change("done", "three");
    page.add("four");
    await untilStored(store, ["1 one", "2 two", "3 (three)", "4 four"]);
    await page.untilShown("one", "(three)", "four");
    page.outbox.release(page.change("deleted", "four").changes);
    await untilStored(store, ["1 one", "2 two", "3 (three)"]);
    await until(() => page.outbox.size === 1, "the deletion has its answer");
    expect(page.requests.toSorted()).toEqual([
      "DELETE /api/todos/4",
      "PATCH /api/todos/3",
      "POST /api/todos",
    ]);
    page.history.undo();
    expect(page.titles).toEqual(["one", "three"]);
  });

  test("to many to-dos are sent four at a time, and a clearing keeps what someone reopens", async () => {
    const titles = numbered(12);
    const { page, store } = await open([...titles.map(asDone), "open"]);
    let pending = 0;
    let maxPending = 0;
    const released = Promise.withResolvers<void>();
    page.network = async (send) => {
      maxPending = Math.max(maxPending, ++pending);
      await released.promise;
      pending--;
      return send();
    };
    page.change("cleared", ...titles);
    await store.setDone(2n, false);
    await page.untilShown("to-do 2", "open");
    page.outbox.release();
    await until(() => pending === 4, "four requests wait");
    released.resolve();
    await untilStored(store, ["2 to-do 2", "13 open"]);
    expect(maxPending).toBe(4);
  });

  test("a clearing keeps what someone reopens also when the page closes", async () => {
    const { page, store } = await open(["(one)", "(two)"]);
    page.change("cleared", "one", "two");
    await store.setDone(1n, false);
    await page.untilShown("one");
    await page.close();
    await untilStored(store, ["1 one"]);
    expect(page.writes).toEqual(["DELETE /api/todos/2"]);
    expect(new Outbox().changes.flatMap(({ targets }) => targets.map(({ id }) => id))).not.toContain("1");
  });

  test("are sent at once when the page closes, however many there are", async () => {
    const titles = numbered(120);
    const { page, store } = await open(titles.map(asDone));
    page.network = (send, method) => (method === "POST" ? send().then(never) : send());
    page.add("one", "two", "three");
    await until(() => page.writes.length > 0, "the first is sent");
    page.change("cleared", ...titles);
    await page.close();
    const left = async () => (await storedTitles(store)).map((title) => title.replace(/\d+ /, "")).toSorted();
    await until(async () => Bun.deepEquals(await left(), ["one", "three", "two"]), "all changes arrive");
  });

  test("that wait for others are sent, too, when the page closes", async () => {
    const titles = numbered(120);
    const { page, store } = await open(titles);
    page.network = (send) => send().then(never);
    page.change("done", ...titles);
    await until(() => page.writes.length > 0, "the first are sent");
    await page.close();
    const all = titles.map((title, index) => `${index + 1} ${asDone(title)}`);
    await untilStored(store, all);
  });

  test("wait for the next visit when a page closes that may have missed a restart of the service", async () => {
    const { page } = await open(["one"]);
    page.change("deleted", "one");
    page.state.isLive = false;
    await page.close();
    expect(page.writes).toEqual([]);
  });

  test("are taken back by an undo: nothing is sent when the page closes", async () => {
    const { page } = await open(["one"]);
    page.change("deleted", "one");
    page.history.undo();
    expect(page.titles).toEqual(["one"]);
    await page.close();
    expect(page.writes).toEqual([]);
  });

  test("include the undo of an add without an answer, and a redo adds a new to-do", async () => {
    const { page, store } = await open([]);
    const answer = Promise.withResolvers<void>();
    page.network = async (send) => {
      const response = await send();
      await answer.promise;
      return response;
    };
    page.add("milk");
    await untilStored(store, ["1 milk"]);
    page.history.undo();
    expect(page.titles).toEqual([]);
    answer.resolve();
    await untilStored(store, []);
    page.history.redo();
    expect(page.titles).toEqual(["milk"]);
    await untilStored(store, ["2 milk"]);
  });

  test("include the undo of an add that another window has just sent, before this one knows the answer", () => {
    const events: Event[] = [];
    const [outbox, sending] = [new Outbox(), new Outbox()];
    const state = new State(outbox);
    const history = new History(outbox, state);
    state.setList([], "a-1");
    const target = { id: newId(), title: "milk", done: false };
    const [creation] = history.do("created", [target], () => {}).changes;
    if (creation === undefined) throw new Error("nothing was added");
    history.do("done", [target], () => {});
    sending.reload();
    const { setItem, removeItem } = MemoryStorage.prototype;
    const log = (key: string, newValue: string | null): void => {
      events.push(Object.assign(new Event("storage"), { key, newValue }));
    };
    Object.assign(localStorage, {
      setItem: (key: string, text: string) => {
        setItem.call(localStorage, key, text);
        log(key, text);
      },
      removeItem: (key: string) => {
        removeItem.call(localStorage, key);
        log(key, null);
      },
    });
    sending.claim(creation, "a-1");
    const todo = { ...target, id: "1" };
    const answer = { id: target.id, kind: "create", todo, position: "a-2" } as const;
    sending.settle(creation, new Set([target.id]), [answer]);
    // The first event says that the creation is sent.
    for (const event of events.splice(0, 1)) dispatchEvent(event);
    history.undo();
    history.undo();
    expect(state.todos).toEqual([]);
    for (const event of events.splice(0)) dispatchEvent(event);
    const [last] = sending.changes.slice(-1);
    expect([last?.kind, last?.targets]).toEqual(["deleted", [todo]]);
    expect(outbox.changes).toEqual(sending.changes);
    expect(state.todos).toEqual([]);
  });

  test("an undo that changes nothing leaves the one before to redo", async () => {
    const { page, store } = await open(["one", "two"]);
    page.change("done", "one");
    page.change("done", "two");
    await untilStored(store, ["1 (one)", "2 (two)"]);
    page.history.undo();
    await store.setDone(1n, false);
    await page.untilShown("one", "two");
    expect(page.history.undo()).toEqual({ changed: ["one"], gone: [] });
    expect(page.history.undone?.targets.map(({ title }) => title)).toEqual(["two"]);
  });
});
