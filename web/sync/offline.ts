import { parseTodo } from "../../src/sdk/json.ts";
import type { LastList, State } from "../model/state.ts";

/** Trusted Types, which the compiler's library does not declare. A URL of theirs counts as a string, as `register` declares it. */
declare global {
  interface Window {
    readonly trustedTypes?: {
      readonly createPolicy: (
        name: string,
        rules: { readonly createScriptURL: () => string },
      ) => { readonly createScriptURL: (input: string) => string };
    };
  }
}

/** The stored list contains the newest to-dos up to this number, so that storing it takes a few milliseconds. */
const MAX_TODOS = 5000;
/** Delay between a change and the next store of the list, so that many changes are stored once. */
const SAVE_DELAY_MS = 2000;
const WORKER_URL = "/service-worker.js";
const LIST_CACHE = "todo-service.list";
/** The name of the list in its cache. No request uses this address. */
const LIST_ENTRY = "/last-list";

/** Keeps the page and the last list in the browser, so that they can be read without a connection. */
export class OfflineCopy {
  readonly #state: Pick<State, "confirmed" | "position">;
  #registration: Promise<boolean> | undefined;
  /** The list is connected, so it is current. */
  #isCurrent = false;
  #isForgotten = false;
  #saveTimer: ReturnType<typeof setTimeout> | undefined;
  /** Resolves when the last use of the cache is done. */
  #lastUse: Promise<unknown> = Promise.resolve();

  constructor(state: Pick<State, "confirmed" | "position">) {
    this.#state = state;
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) this.#save();
    });
  }

  /** The list is current from now on. Registers the service worker and stores the list. */
  onConnected(): void {
    this.#isCurrent = true;
    this.#registration ??= registerServiceWorker();
    this.onChanged();
  }

  /** Stores the changed list soon. */
  onChanged(): void {
    if (this.#isCurrent) this.#saveTimer ??= setTimeout(() => this.#save(), SAVE_DELAY_MS);
  }

  /** The list may be outdated from now on. */
  onDisconnected(): void {
    this.#save();
    this.#isCurrent = false;
  }

  /** An answer is not the service's. If another program has its address now, its pages must not be covered by the stored one. */
  async onForeignAnswer(): Promise<void> {
    if (!isSupported()) return;
    const registration = await unlessBlocked(() => navigator.serviceWorker.getRegistration("/"));
    if (registration !== undefined && (await unlessBlocked(isReplaced)) === true)
      await unlessBlocked(() => registration.unregister());
  }

  /** Deletes the list that the browser keeps, and keeps none from now on. The stored page contains no data. */
  async forget(): Promise<void> {
    this.#isForgotten = true;
    if (!isSupported()) return;
    await this.#lastUse;
    await unlessBlocked(() => caches.delete(LIST_CACHE));
  }

  /** Stores the list and the time if it is current, after earlier uses of the cache. */
  #save(): void {
    clearTimeout(this.#saveTimer);
    this.#saveTimer = undefined;
    const { confirmed: todos, position } = this.#state;
    if (!this.#isCurrent || position === undefined) return;
    const total = todos.length;
    const list: LastList = { todos: todos.slice(-MAX_TODOS), total, position, readAt: new Date() };
    const response = Response.json(list);
    this.#lastUse = this.#lastUse.then(async () => {
      if (!(await this.#registration) || this.#isForgotten) return;
      await unlessBlocked(async () => (await caches.open(LIST_CACHE)).put(LIST_ENTRY, response));
    });
  }
}

/** Returns the last list that a connected page stored, or undefined if there is none. */
export async function readLastList(): Promise<LastList | undefined> {
  if (!isSupported()) return undefined;
  return unlessBlocked(async () => {
    const stored = await caches.match(LIST_ENTRY, { cacheName: LIST_CACHE });
    return stored && parseLastList(await stored.json());
  });
}

/** Throws a SyntaxError if the value is not a list, such as one that another version of the page stored. */
function parseLastList(value: { readonly [Name in keyof LastList]?: unknown }): LastList {
  const { todos, total, position, readAt } = value;
  if (Array.isArray(todos) && typeof total === "number" && typeof position === "string")
    return { todos: todos.map(parseTodo), total, position, readAt: new Date(String(readAt)) };
  throw new SyntaxError("not a list");
}

/** Returns false on pages over plain HTTP from another machine, where browsers have neither API, and in some private windows. */
const isSupported = (): boolean => "serviceWorker" in navigator && "caches" in globalThis;

/** Returns whether another program answers. A proxy that fails or asks for a login shows nothing. */
async function isReplaced(): Promise<boolean> {
  const ask = (url: string): Promise<Response> => fetch(url, { cache: "no-store", redirect: "manual" });
  const [worker, health] = await Promise.all([ask(WORKER_URL), ask("/livez")]);
  const isForeign = health.status === 404 || (health.ok && (await health.text()) !== "ok\n");
  return worker.status === 404 && isForeign;
}

async function registerServiceWorker(): Promise<boolean> {
  if (!isSupported()) return false;
  // The only policy of the page: it creates this one URL, whatever its input is.
  const policy = window.trustedTypes?.createPolicy("service-worker", { createScriptURL: () => WORKER_URL });
  const url = policy?.createScriptURL("") ?? WORKER_URL;
  const options = { scope: "/", updateViaCache: "none" } as const;
  return (await unlessBlocked(() => navigator.serviceWorker.register(url, options))) !== undefined;
}

/** Returns undefined if the browser's storage is blocked, full or damaged: the page works without it. */
async function unlessBlocked<T>(use: () => Promise<T>): Promise<T | undefined> {
  try {
    return await use();
  } catch (error) {
    // Browsers report a script that cannot be loaded, such as after a network error, as a TypeError.
    const isExpected = [DOMException, TypeError, SyntaxError].some((type) => error instanceof type);
    if (isExpected) return undefined;
    throw error;
  }
}
