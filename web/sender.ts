import { type Todo, type TodoApiCore, TodoApiError, type TodoId } from "../src/sdk/client.ts";
import { delay, retryDelay } from "../src/sdk/retry.ts";
import { type Change, type ChangeKind, isDeletion, isNewId, type Target } from "./change.ts";
import { findLocks } from "./locks.ts";
import type { Outbox } from "./outbox.ts";

/** The maximum number of concurrent requests of one change. */
const MAX_CONCURRENT = 4;
/** The targets of a change are settled in steps of this size. */
const STEP_SIZE = 100;
/** Requests that a closing page may leave to the browser, which limits their bodies to 64 KiB. */
const MAX_CLOSING = 500;
const MAX_RETRY_MS = 5000;
/** Changes of other windows become ready as time passes. */
const RECHECK_MS = 5000;
/** The service forgets idempotency keys after 24 hours. */
const MAX_CREATE_AGE_MS = 23 * 3600_000;

/** What the service did not do, and why. */
export interface Rejection {
  readonly target: Target;
  /** `gone`: the to-do was deleted elsewhere. `other`: the id belongs to another to-do now. */
  readonly reason: "gone" | "other" | TodoApiError;
}

export interface SenderOptions {
  /** It sends each request once. */
  readonly api: TodoApiCore;
  readonly outbox: Outbox;
  /** Asks the service who is signed in, as a browser that was offline may have another cookie. Rejects without an answer. */
  readonly identify: () => Promise<void>;
  /** Returns whether the browser is still signed in as the owner of the changes. */
  readonly isOwnerSignedIn: () => boolean;
  /** Returns the list as the service reported it last. */
  readonly getList: () => { readonly todos: readonly Todo[]; readonly position: string | undefined };
  /** A request failed and will be sent again. Without an error, requests succeed again. */
  readonly onDelay: (error?: TodoApiError) => void;
  readonly onRejected: (change: Change, rejections: readonly Rejection[]) => void;
  /** The service may or may not have created these to-dos, and no longer knows their idempotency keys. */
  readonly onUncertain: (change: Change) => void;
}

/** Sends the changes of the outbox, one after another. */
export class Sender {
  readonly #options: SenderOptions;
  /** The keys of the changes that wait for an answer of the user's. */
  readonly #uncertain = new Set<string>();

  constructor(options: SenderOptions) {
    this.#options = options;
  }

  /**
   * Sends changes until the signal aborts, or until the service rejects the credentials. Only one window does so at a time.
   * A window without locks or without stored changes sends its own.
   */
  async run(signal: AbortSignal): Promise<void> {
    const { outbox } = this.#options;
    const locks = await findLocks();
    if (locks === undefined) return this.#run(signal);
    const shared = AbortSignal.any([signal, outbox.unstored]);
    try {
      await locks.request("todo-service.outbox", { signal: shared }, async () => {
        outbox.sendsAll = true;
        await this.#run(shared);
      });
    } catch (error) {
      if (!shared.aborted) throw error;
    } finally {
      outbox.sendsAll = false;
    }
    if (outbox.unstored.aborted) await this.#run(signal);
  }

  async #run(signal: AbortSignal): Promise<void> {
    const { outbox, identify, onDelay } = this.#options;
    for (let attempt = 0; !signal.aborted; ) {
      const change = outbox.next((one) => this.isBlocked(one));
      if (change === undefined) {
        await changed(outbox, signal);
        continue;
      }
      try {
        if (attempt > 0) await identify();
        await this.#send(change, signal);
        attempt = 0;
        onDelay();
      } catch (error) {
        if (signal.aborted) return;
        if (!(error instanceof TodoApiError)) throw error;
        onDelay(error);
        if (error.code === "unauthorized") return;
        await delay(retryDelay(attempt++, error, MAX_RETRY_MS), signal);
      }
    }
  }

  /** Returns whether a change waits for the user, or for a new to-do that waits for the user. */
  isBlocked({ key, kind, targets }: Change): boolean {
    return this.#uncertain.has(key) || (kind !== "created" && targets.some(({ id }) => isNewId(id)));
  }

  async #send(change: Change, signal: AbortSignal): Promise<void> {
    const { api, outbox, getList, isOwnerSignedIn, onUncertain, onRejected } = this.#options;
    const isCreate = change.kind === "created";
    if (isCreate && Date.now() - (change.sentAt ?? Number.POSITIVE_INFINITY) > MAX_CREATE_AGE_MS) {
      this.#uncertain.add(change.key);
      onUncertain(change);
      return;
    }
    const { position } = isCreate ? getList() : await api.list({ limit: 1 }, { signal });
    // After a restart, an id may belong to another to-do. The list of the new epoch comes soon.
    if (parseEpoch(position) !== parseEpoch(getList().position)) return changed(outbox, signal);
    const claimed = await outbox.claim(change);
    if (claimed === undefined) return;
    const rejections: Rejection[] = [];
    try {
      for (let start = 0; start < claimed.targets.length; start += STEP_SIZE) {
        signal.throwIfAborted();
        if (!isOwnerSignedIn()) return await changed(outbox, signal);
        rejections.push(...(await this.#sendStep(claimed, claimed.targets.slice(start, start + STEP_SIZE))));
      }
    } finally {
      if (rejections.length > 0) onRejected(claimed, rejections);
    }
  }

  /** Sends the requests of some targets, at most four at a time. Throws after all have ended if one must be sent again. */
  async #sendStep(change: Change, targets: readonly Target[]): Promise<Rejection[]> {
    const rejections: Rejection[] = [];
    const done = new Set<TodoId>();
    const todos = new Map<TodoId, Todo>();
    let failure: unknown;
    const remaining = targets.values();
    const work = async (): Promise<void> => {
      for (const target of remaining) {
        if (failure !== undefined) return;
        try {
          const result = await this.#sendOne(change.kind, target);
          if (typeof result === "object") todos.set(target.id, result);
          else if (result !== undefined) rejections.push({ target, reason: result });
        } catch (error) {
          if (!isRejection(error)) {
            failure = error;
            return;
          }
          rejections.push({ target, reason: error });
        }
        done.add(target.id);
      }
    };
    // New to-dos keep their order.
    const length = change.kind === "created" ? 1 : MAX_CONCURRENT;
    await Promise.all(Array.from({ length }, work));
    await this.#options.outbox.settle(change, done, todos);
    if (failure !== undefined) throw failure;
    return rejections;
  }

  /** Returns the to-do after its change, or why the change does not apply, or undefined if nothing is left to do. */
  async #sendOne(kind: ChangeKind, target: Target): Promise<Todo | "gone" | "other" | undefined> {
    const { api, outbox, getList } = this.#options;
    const { id, title } = target;
    if (kind === "created") {
      const todo = await api.create(title, { idempotencyKey: id });
      return target.done ? api.setDone(todo.id, true) : todo;
    }
    const todo = outbox.findConfirmed(getList().todos, id);
    if (todo === undefined) return isDeletion(kind) || outbox.isDeleting(id) ? undefined : "gone";
    if (todo.title !== title) return "other";
    if (kind === "cleared" && !todo.done) return undefined;
    try {
      if (!isDeletion(kind)) return await api.setDone(id, kind === "done");
      await api.delete(id);
    } catch (error) {
      if (!(error instanceof TodoApiError && error.code === "todo_not_found")) throw error;
      if (!isDeletion(kind)) return "gone";
    }
    return todo;
  }

  /** Lets the browser send changes while the page closes. The outbox keeps them, because nobody sees the responses. */
  sendBeforeClosing(): void {
    /** The last change to each to-do. */
    const last = new Map<TodoId, { readonly kind: ChangeKind; readonly target: Target }>();
    for (const { kind, targets } of this.#options.outbox.releaseBeforeClosing(Date.now()))
      for (const target of targets) {
        // The service does not know yet that the to-do is done.
        const isCleared = kind === "cleared" && last.get(target.id)?.kind === "done";
        last.set(target.id, { kind: isCleared ? "deleted" : kind, target });
      }
    // If the page stays after all, the outbox reports failures.
    for (const { kind, target } of [...last.values()].slice(0, MAX_CLOSING))
      this.#sendOne(kind, target).catch(() => {});
  }
}

/** Returns whether the service rejected the change itself. Other failures can pass. */
function isRejection(error: unknown): error is TodoApiError {
  if (!(error instanceof TodoApiError)) return false;
  const { status = 0, code } = error;
  if (code === "unexpected_answer") return false;
  // A full store would block the deletions that make room.
  if (code === "store_full") return true;
  return status >= 400 && status < 500 && ![401, 408, 421, 429].includes(status);
}

/** Resolves when the outbox changes, or after a while. */
async function changed(outbox: Outbox, signal: AbortSignal): Promise<void> {
  const waiting = new AbortController();
  outbox.addEventListener("change", () => waiting.abort(), { signal: waiting.signal });
  await delay(RECHECK_MS, AbortSignal.any([signal, waiting.signal]));
  waiting.abort();
}

export const parseEpoch = (position = ""): string => position.slice(0, position.lastIndexOf("-"));
