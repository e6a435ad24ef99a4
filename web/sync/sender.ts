import { TodoApiError, type TodoId } from "../../src/sdk/client.ts";
import { findTodo } from "../../src/sdk/json.ts";
import type { Confirmation } from "../../src/sdk/overlay.ts";
import { lead } from "../../src/sdk/position.ts";
import { delay, retryDelay } from "../../src/sdk/retry.ts";
import {
  type Change,
  type ChangeKind,
  isDeletion,
  type Rejection,
  type Target,
  toWrite,
} from "../model/change.ts";
import type { Answer, Outbox } from "../model/outbox.ts";
import type { State } from "../model/state.ts";
import { isBrowserRejected, type PageApi } from "./connection.ts";
import { findLocks } from "./locks.ts";
import { isMultiplexed } from "./stream-slots.ts";

/** The maximum number of concurrent requests of one change. Over HTTP/1.1, one of six connections stays free for others. */
const MAX_CONCURRENT = isMultiplexed() ? 20 : 4;
/** The maximum when the page closes: the browser limits the bodies of these requests to 64 KiB together. */
const MAX_CLOSING = 100;
/** Firefox ends the event stream before it tells a page that the user leaves it. */
const CUT_MS = 1000;
const MAX_RETRY_MS = 5000;
const RECHECK_MS = 5000;

export interface SenderOptions {
  /** Sends each request once. */
  readonly api: Pick<PageApi, "list" | "changesBetween" | "writes">;
  readonly outbox: Outbox;
  readonly state: State;
  /** Asks the service who is signed in, as a browser that was offline may have another cookie. Rejects without an answer. */
  readonly identify: () => Promise<void>;
  /** Returns whether the browser is still signed in as the owner of the changes. */
  readonly isOwnerSignedIn: () => boolean;
  /** A request failed and will be sent again. Without an error, requests succeed again. */
  readonly onDelay: (error?: TodoApiError) => void;
  readonly onRejected: (change: Change, rejections: readonly Rejection[]) => void;
}

/** What became of one target. */
interface Result {
  readonly confirmation?: Confirmation;
  /** Why the service did not do it. */
  readonly reason?: Rejection["reason"];
}

/** Sends the changes of the outbox. Changes to one to-do keep their order; different to-dos do not wait for each other. */
export class Sender {
  readonly #options: SenderOptions;
  /** Send one target after another of the changes that are being sent. */
  readonly #working = new Set<() => Promise<void>>();
  #isClosing = false;
  /** The number of failures since the service answered last. */
  #failures = 0;

  constructor(options: SenderOptions) {
    this.#options = options;
  }

  /**
   * Sends changes until the signal aborts, or until the service rejects the credentials, when it is known whose they are. Only one
   * window does so at a time. A window without locks or without stored changes sends its own.
   */
  async run(signal: AbortSignal): Promise<void> {
    const { outbox, identify } = this.#options;
    await this.#retry(signal, identify);
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

  #run(signal: AbortSignal): Promise<void> {
    /** The changes that are being sent, by their keys. */
    const sending = new Map<string, Promise<void>>();
    return this.#retry(signal, async () => {
      if (this.#failures > 0) await this.#options.identify();
      await this.#sendUntilFailure(sending, signal);
    });
  }

  /** Tries until it succeeds, the signal aborts, or the service rejects the credentials. */
  async #retry(signal: AbortSignal, attempt: () => Promise<void>): Promise<void> {
    const { onDelay } = this.#options;
    while (!signal.aborted) {
      try {
        return await attempt();
      } catch (error) {
        if (signal.aborted) return;
        if (!(error instanceof TodoApiError)) throw error;
        onDelay(error);
        if (isBrowserRejected(error)) return;
        await delay(retryDelay(this.#failures++, error, MAX_RETRY_MS), signal);
      }
    }
  }

  /** Sends changes as they become ready, until the signal aborts. Throws the error of a change that must be sent again. */
  async #sendUntilFailure(sending: Map<string, Promise<void>>, signal: AbortSignal): Promise<void> {
    const { outbox } = this.#options;
    while (!signal.aborted) {
      // A change that was never sent can be taken back. When the device is online again, the page connects and sends.
      const ready = outbox.selectReady(new Set(sending.keys()), this.#isClosing ? MAX_CONCURRENT : 1);
      for (const changes of navigator.onLine ? ready : []) {
        const sendInOrder = async (): Promise<void> => {
          for (const change of changes) await this.#send(change, signal);
        };
        const sent = sendInOrder().finally(() => {
          for (const { key } of changes) sending.delete(key);
        });
        for (const { key } of changes) sending.set(key, sent);
      }
      await Promise.race([changed(outbox, signal), ...sending.values()]);
    }
  }

  async #send(change: Change, signal: AbortSignal): Promise<void> {
    const { api, outbox, state, isOwnerSignedIn, onRejected } = this.#options;
    const isCreate = change.kind === "created";
    let { position = "" } = state;
    const wasLive = this.#isClosing && performance.now() < state.liveUntil + CUT_MS;
    if (!isCreate && (!(state.isLive || wasLive) || (change.sent !== undefined && !this.#isClosing))) {
      ({ position } = await api.list({ limit: 1 }, { signal }));
      // After a restart, an id may belong to another to-do. The list of the new epoch comes soon.
      if (Number.isNaN(lead(position, state.position))) return changed(outbox, signal);
    }
    const reopened = change.kind === "cleared" ? state.findReopened(change) : [];
    if (reopened.length > 0) return outbox.settle(change, new Set(reopened.map(({ id }) => id)), []);
    await this.#settleSent(change, position, signal);
    // A change that is marked as sent cannot be taken back.
    if (!isOwnerSignedIn()) return changed(outbox, signal);
    const rejections: Rejection[] = [];
    try {
      const claimed = outbox.claim(change, position);
      if (claimed !== undefined) await this.#sendTargets(claimed, rejections, signal);
    } finally {
      if (rejections.length > 0) onRejected(change, rejections);
    }
  }

  /**
   * Does not repeat ticks that may have arrived, if the service has set the same value since: later changes would be lost. Values
   * alternate, so without such an event nobody has changed the to-do.
   */
  async #settleSent(change: Change, position: string, signal: AbortSignal): Promise<void> {
    const { api, outbox } = this.#options;
    const { kind, sent, targets } = change;
    if (sent === undefined || (kind !== "done" && kind !== "open")) return;
    const seen = new Map<TodoId, Answer>();
    for (const event of await api.changesBetween(sent, position, signal)) {
      if (event.type !== "updated") continue;
      const { todo, position } = event;
      const { id, done } = todo;
      if (seen.has(id) || done === (kind === "done")) seen.set(id, { kind: "setDone", todo, position, id });
    }
    const answers = targets.flatMap(({ id }) => seen.get(id) ?? []);
    if (answers.length === 0) return;
    outbox.settle(change, new Set(answers.map(({ id }) => id)), answers);
    this.#onAnswered();
  }

  /** Sends the requests of a change, many at a time. Throws after all have ended if one must be sent again. */
  async #sendTargets(change: Change, rejections: Rejection[], signal: AbortSignal): Promise<void> {
    const { outbox } = this.#options;
    const { kind, targets } = change;
    const answers: Answer[] = [];
    const done = new Set<TodoId>();
    let failure: unknown;
    const remaining = targets.values();
    const work = async (): Promise<void> => {
      for (const target of remaining) {
        if (failure !== undefined || signal.aborted) return;
        const { id } = target;
        try {
          const { confirmation, reason } = await this.#sendOne(kind, target, signal);
          if (confirmation !== undefined) answers.push({ ...confirmation, id });
          if (reason !== undefined) rejections.push({ target, reason });
          done.add(id);
        } catch (error) {
          failure = error;
        }
      }
    };
    this.#working.add(work);
    // New to-dos keep their order.
    const length = this.#isClosing ? MAX_CLOSING : kind === "created" ? 1 : MAX_CONCURRENT;
    await Promise.all(Array.from({ length }, work));
    this.#working.delete(work);
    if (done.size > 0) outbox.settle(change, done, answers);
    if (failure !== undefined) throw failure;
  }

  /** Sends the request of one target. Throws if it must be sent again. */
  async #sendOne(kind: ChangeKind, target: Target, signal: AbortSignal): Promise<Result> {
    const { api, state } = this.#options;
    const { id, title } = target;
    const known = findTodo(state.confirmed, id);
    if (known !== undefined && known.title !== title) return { reason: "other" };
    try {
      const { result, position } = await (kind === "created"
        ? api.writes.create(title, { signal, idempotencyKey: id })
        : isDeletion(kind)
          ? api.writes.delete(id, { signal })
          : api.writes.setDone(id, kind === "done", { signal }));
      this.#onAnswered();
      const { kind: effect, todo } = toWrite(kind, target);
      return { confirmation: { kind: effect, todo: result ?? todo, position } };
    } catch (error) {
      if (!isRejection(error)) throw error;
      this.#onAnswered();
      if (error.code !== "todo_not_found") return { reason: error };
      const confirmation = { kind: "delete", todo: target, position: error.position } as const;
      return isDeletion(kind) ? { confirmation } : { confirmation, reason: "gone" };
    }
  }

  #onAnswered(): void {
    this.#failures = 0;
    this.#options.onDelay();
  }

  /**
   * Sends what waits for no answer at once, because the page closes. Browsers finish these requests, but nobody sees the responses,
   * so the outbox keeps the changes. The rest is sent by another window, or at the next visit.
   */
  sendBeforeClosing(): void {
    this.#isClosing = true;
    for (const work of this.#working) for (let count = 0; count < MAX_CLOSING; count++) work();
    this.#options.outbox.close();
  }

  /** Sends as before, because the browser has kept the page that was closing, and shows it again. */
  continueAfterClosing(): void {
    this.#isClosing = false;
    this.#options.outbox.reload();
  }
}

/** Returns whether the service rejected the change itself. Other failures can pass. */
function isRejection(error: unknown): error is TodoApiError {
  if (!(error instanceof TodoApiError) || isBrowserRejected(error)) return false;
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
