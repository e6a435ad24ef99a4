import { type TodoApiCore, TodoApiError, type TodoId } from "../src/sdk/client.ts";
import { findTodo } from "../src/sdk/json.ts";
import { type Confirmation, isNewId } from "../src/sdk/overlay.ts";
import { lead } from "../src/sdk/position.ts";
import { delay, retryDelay } from "../src/sdk/retry.ts";
import type { Writes } from "../src/sdk/writes.ts";
import { type Change, type ChangeKind, isDeletion, type Target, toEffect } from "./change.ts";
import { findLocks } from "./locks.ts";
import type { Answer, Outbox } from "./outbox.ts";
import type { State } from "./state.ts";

/** The maximum number of changes that are sent at the same time, besides new to-dos. */
const MAX_CHANGES = 20;
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
  /** Sends each request once. */
  readonly api: Pick<TodoApiCore, "list"> & { readonly writes: Writes };
  readonly outbox: Outbox;
  readonly state: State;
  /** Asks the service who is signed in, as a browser that was offline may have another cookie. Rejects without an answer. */
  readonly identify: () => Promise<void>;
  /** Returns whether the browser is still signed in as the owner of the changes. */
  readonly isOwnerSignedIn: () => boolean;
  /** A request failed and will be sent again. Without an error, requests succeed again. */
  readonly onDelay: (error?: TodoApiError) => void;
  readonly onRejected: (change: Change, rejections: readonly Rejection[]) => void;
  /** The service may or may not have created these to-dos, and no longer knows their idempotency keys. */
  readonly onUncertain: (change: Change) => void;
}

/** What became of one target. */
interface Result {
  readonly confirmation?: Confirmation;
  readonly rejection?: Rejection["reason"];
}

/** Sends the changes of the outbox. Changes to one to-do keep their order; different to-dos do not wait for each other. */
export class Sender {
  readonly #options: SenderOptions;
  /** The keys of the changes that wait for an answer of the user's. */
  readonly #uncertain = new Set<string>();
  /** Looks again for changes that are ready. */
  #wake = (): void => {};

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
    const { identify, onDelay } = this.#options;
    /** The keys of the changes that are being sent. */
    const sending = new Set<string>();
    let attempt = 0;
    const onSent = (): void => {
      attempt = 0;
      onDelay();
    };
    while (!signal.aborted) {
      try {
        if (attempt > 0) await identify();
        await this.#sendUntilFailure(sending, onSent, signal);
      } catch (error) {
        if (signal.aborted) return;
        if (!(error instanceof TodoApiError)) throw error;
        onDelay(error);
        if (error.code === "unauthorized") return;
        await delay(retryDelay(attempt++, error, MAX_RETRY_MS), signal);
      }
    }
  }

  /** Sends changes as they become ready, until the signal aborts. Throws the error of a change that must be sent again. */
  async #sendUntilFailure(sending: Set<string>, onSent: () => void, signal: AbortSignal): Promise<void> {
    let failure: { readonly error: unknown } | undefined;
    while (!signal.aborted) {
      const waiting = new AbortController();
      for (const changes of this.#ready(sending)) {
        for (const { key } of changes) sending.add(key);
        this.#sendInOrder(changes, signal)
          .then(onSent, (error) => {
            failure ??= { error };
          })
          .finally(() => {
            for (const { key } of changes) sending.delete(key);
            this.#wake();
          });
      }
      this.#wake = () => waiting.abort();
      await changed(this.#options.outbox, AbortSignal.any([signal, waiting.signal]));
      if (failure !== undefined) throw failure.error;
    }
  }

  /** Returns the changes that may be sent now, in groups that do not wait for each other. New to-dos are in one group. */
  #ready(sending: ReadonlySet<string>): readonly (readonly Change[])[] {
    const { outbox } = this.#options;
    // A change that was never sent can be taken back. When the device is online again, the page connects and sends.
    if (!navigator.onLine) return [];
    const earlier = new Set<TodoId>();
    const ready: Change[] = [];
    const current = outbox.changes.filter(({ key }) => sending.has(key));
    const isCreating = current.some(({ kind }) => kind === "created");
    const free = MAX_CHANGES - current.filter(({ kind }) => kind !== "created").length;
    for (const change of outbox.changes) {
      // An add that was renewed comes after the changes to its to-dos.
      const isFirst = change.kind === "created" || change.targets.every(({ id }) => !earlier.has(id));
      for (const { id } of change.targets) earlier.add(id);
      if (isFirst && !sending.has(change.key) && !this.isBlocked(change) && outbox.isReady(change))
        ready.push(change);
    }
    const created = ready.filter(({ kind }) => kind === "created");
    const others = ready.filter(({ kind }) => kind !== "created").slice(0, free);
    // New to-dos keep their order, so only one group of them is sent at a time.
    const groups = others.map((change) => [change]);
    return created.length > 0 && !isCreating ? [created, ...groups] : groups;
  }

  /** Returns whether a change waits for the user, or for a new to-do that waits for the user. */
  isBlocked({ key, kind, targets }: Change): boolean {
    return this.#uncertain.has(key) || (kind !== "created" && targets.some(({ id }) => isNewId(id)));
  }

  async #sendInOrder(changes: readonly Change[], signal: AbortSignal): Promise<void> {
    for (const change of changes) await this.#send(change, signal);
  }

  async #send(change: Change, signal: AbortSignal): Promise<void> {
    const { api, outbox, state, isOwnerSignedIn, onUncertain, onRejected } = this.#options;
    const isCreate = change.kind === "created";
    if (isCreate && Date.now() - (change.sentAt ?? Number.POSITIVE_INFINITY) > MAX_CREATE_AGE_MS) {
      this.#uncertain.add(change.key);
      onUncertain(change);
      return;
    }
    // After a restart, an id may belong to another to-do. The list of the new epoch comes soon.
    if (!isCreate && !state.isLive) {
      const { position } = await api.list({ limit: 1 }, { signal });
      if (Number.isNaN(lead(position, state.position))) return changed(outbox, signal);
    }
    if (change.kind === "cleared") {
      const reopened = state.findReopened(change);
      if (reopened.length > 0) return outbox.drop(change, reopened);
    }
    // A change that is marked as sent cannot be taken back.
    if (!isOwnerSignedIn()) return changed(outbox, signal);
    const claimed = await outbox.claim(change);
    if (claimed === undefined) return;
    const rejections: Rejection[] = [];
    try {
      for (let start = 0; start < claimed.targets.length; start += STEP_SIZE) {
        signal.throwIfAborted();
        if (!isOwnerSignedIn()) return await changed(outbox, signal);
        const targets = claimed.targets.slice(start, start + STEP_SIZE);
        rejections.push(...(await this.#sendStep(claimed, targets, signal)));
      }
    } finally {
      if (rejections.length > 0) onRejected(claimed, rejections);
    }
  }

  /** Sends the requests of some targets, at most four at a time. Throws after all have ended if one must be sent again. */
  async #sendStep(change: Change, targets: readonly Target[], signal: AbortSignal): Promise<Rejection[]> {
    const rejections: Rejection[] = [];
    const done = new Set<TodoId>();
    const answers: Answer[] = [];
    let failure: unknown;
    const remaining = targets.values();
    const work = async (): Promise<void> => {
      for (const target of remaining) {
        if (failure !== undefined) return;
        try {
          const { confirmation, rejection } = await this.#sendOne(change.kind, target, signal);
          if (confirmation !== undefined) answers.push({ ...confirmation, key: change.key, id: target.id });
          if (rejection !== undefined) rejections.push({ target, reason: rejection });
          done.add(target.id);
        } catch (error) {
          failure = error;
        }
      }
    };
    // New to-dos keep their order.
    const length = change.kind === "created" ? 1 : MAX_CONCURRENT;
    await Promise.all(Array.from({ length }, work));
    if (done.size > 0) await this.#options.outbox.settle(change, done, answers);
    if (failure !== undefined) throw failure;
    return rejections;
  }

  /** Sends the request of one target. Throws if it must be sent again. */
  async #sendOne(kind: ChangeKind, target: Target, signal?: AbortSignal): Promise<Result> {
    const { api, outbox, state } = this.#options;
    const { id, title } = target;
    const known = findTodo(state.confirmed, id);
    if (known !== undefined && known.title !== title) return { rejection: "other" };
    try {
      return { confirmation: await sendTarget(api.writes, kind, target, signal) };
    } catch (error) {
      if (!isRejection(error)) throw error;
      if (error.code !== "todo_not_found") return { rejection: error };
      const { todo } = toEffect(kind, target);
      const isExpected = isDeletion(kind) || outbox.isDeleting(id);
      return {
        confirmation: { kind: "delete", todo, position: error.position },
        ...(!isExpected && { rejection: "gone" }),
      };
    }
  }

  /** Lets the browser send changes while the page closes. The outbox keeps them, because nobody sees the responses. */
  sendBeforeClosing(): void {
    /** The last change to each to-do. */
    const last = new Map<TodoId, { readonly kind: ChangeKind; readonly target: Target }>();
    // A new to-do must be created first.
    for (const { kind, targets } of this.#options.outbox.releaseBeforeClosing(Date.now()))
      for (const target of targets)
        if (!isNewId(target.id) || kind === "created") last.set(target.id, { kind, target });
    // If the page stays after all, the outbox reports failures.
    for (const { kind, target } of [...last.values()].slice(0, MAX_CLOSING))
      this.#sendOne(kind, target).catch(() => {});
  }
}

async function sendTarget(
  writes: Writes,
  kind: ChangeKind,
  { id, title, done = false }: Target,
  signal?: AbortSignal,
): Promise<Confirmation> {
  const call = { signal };
  if (isDeletion(kind)) {
    const { position } = await writes.delete(id, call);
    return { ...toEffect(kind, { id, title }), position };
  }
  const isCreate = kind === "created";
  let answer = isCreate
    ? await writes.create(title, { ...call, idempotencyKey: id })
    : await writes.setDone(id, kind === "done", call);
  if (isCreate && done) answer = await writes.setDone(answer.result.id, true, call);
  return { kind: isCreate ? "create" : "setDone", todo: answer.result, position: answer.position };
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
