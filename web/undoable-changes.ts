import { type Todo, TodoApiError, type TodoId } from "../src/sdk/client.ts";
import { DeletionRecord, takeExpiredRecords } from "./deletion-record.ts";
import { announce, quote, showProgress, showToast, TimedMessage } from "./notifications.ts";
import { type HeldChange, hasNoResponse, type PendingChange, type SendResult, type State } from "./state.ts";

const PAST = { done: "Marked as done", open: "Reopened", deleted: "Deleted" } as const;
const CONTINUOUS = { done: "Marking as done", open: "Reopening", deleted: "Deleting" } as const;
const FAILED = {
  done: "could not be marked as done",
  open: "could not be reopened",
  deleted: "could not be deleted",
} as const;
const UNKNOWN = {
  done: "may not have been marked as done",
  open: "may not have been reopened",
  deleted: "may not have been deleted",
} as const;
const UNDO_KEYS = /Mac|iPhone|iPad/.test(navigator.platform) ? "⌘Z" : "Ctrl+Z";

export const formatCount = (count: number): string => count.toLocaleString("en");

const countTodos = (count: number): string => (count === 1 ? "1 to-do" : `${formatCount(count)} to-dos`);

/** Only in private mode. The browser asks for the password when the page loads. */
const UNAUTHORIZED =
  "the service no longer accepts your API key or password. Reload this page and enter a valid one.";

/** Returns why the service did not confirm a request, as a sentence. Throws what is not an error of the service. */
export function errorMessage(error: unknown): string {
  if (!(error instanceof TodoApiError)) throw error;
  if (hasNoResponse(error)) return "the service cannot be reached.";
  if (error.code === "unauthorized") return UNAUTHORIZED;
  if (error.code === "todo_not_found") return "it was deleted elsewhere.";
  return error.detail ?? `${error.message}.`;
}

/** Returns what follows the name of a to-do in the message about a failed change. */
export const describeFailure = (change: PendingChange, error: unknown): string =>
  hasNoResponse(error)
    ? ` ${UNKNOWN[change]}: the service did not answer.`
    : ` ${FAILED[change]}: ${errorMessage(error)}`;

export interface ChangeRequest {
  readonly todos: readonly Todo[];
  readonly change: PendingChange;
  /** Affects only to-dos that stay in this state. */
  readonly onlyWhile?: "open" | "done";
  /** Says what happened, without a period. */
  readonly message: readonly (string | Node)[];
  /** Moves the focus back after an undo. */
  readonly restoreFocus: () => void;
}

interface Current {
  readonly held: HeldChange;
  readonly request: ChangeRequest;
  readonly message: TimedMessage;
  readonly record: DeletionRecord | undefined;
}

/** Changes that can be undone for six seconds and are then sent. */
export class UndoableChanges {
  readonly #state: State;
  readonly #render: () => void;
  /** The change that can be undone. */
  #current: Current | undefined;
  /** The changes that are being sent. */
  readonly #sending = new Map<
    HeldChange,
    { readonly stop: () => void; readonly record: DeletionRecord | undefined }
  >();

  /** @param render updates the list at once */
  constructor(state: State, render: () => void) {
    this.#state = state;
    this.#render = render;
    addEventListener("pagehide", () => this.#onPageHide());
  }

  /** Whether a change to several to-dos is being sent. */
  get isSending(): boolean {
    return [...this.#sending.keys()].some(({ todos }) => todos.size > 0);
  }

  /** Shows a change. Sends the previous one. */
  start(request: ChangeRequest): void {
    this.#current?.message.end();
    const { epoch } = this.#state;
    const { todos, change, onlyWhile } = request;
    if (epoch === undefined || todos.length === 0) return;
    const held = this.#state.hold(todos, change, onlyWhile);
    const record = change === "deleted" ? new DeletionRecord(epoch, held.todos.keys()) : undefined;
    const message = new TimedMessage({
      message: request.message,
      action: { label: "Undo", run: () => this.undo() },
      onTimeout: () => this.#send(),
    });
    this.#current = { held, request, message, record };
    announce(`${message.text}. Press ${UNDO_KEYS} to undo.`);
    this.#render();
  }

  /** Undoes the current change. Returns whether there was one. */
  undo(): boolean {
    const current = this.#current;
    if (current === undefined) return false;
    this.#current = undefined;
    current.message.hide();
    current.record?.remove();
    const { restored, deleted } = this.#state.restore(current.held);
    this.#render();
    current.request.restoreFocus();
    const [first] = deleted;
    if (first === undefined) announce(restored.length === 1 ? `Restored: ${restored[0]?.title}` : "Undone.");
    else if (restored.length === 0 && deleted.length === 1)
      showToast(quote(first.title), " was deleted elsewhere, so it cannot be restored.");
    else
      showToast(
        `${formatCount(deleted.length)} of ${countTodos(restored.length + deleted.length)} `,
        "were deleted elsewhere, so they cannot be restored.",
      );
    return true;
  }

  /** Stops the changes that are being sent. Returns whether there were any. */
  stop(): boolean {
    if (!this.isSending) return false;
    for (const { stop } of this.#sending.values()) stop();
    return true;
  }

  async #send(): Promise<void> {
    const current = this.#current;
    if (current === undefined) return;
    this.#current = undefined;
    const { held, record, request } = current;
    const total = held.todos.size;
    const controller = new AbortController();
    const progress = showProgress(() => controller.abort());
    let count = 0;
    const onProgress = (): void => {
      count++;
      if (held.todos.size > 0)
        progress.update(
          `${CONTINUOUS[held.change]}: ${formatCount(count)} of ${formatCount(total)}. Esc stops.`,
        );
    };
    this.#sending.set(held, { stop: () => controller.abort(), record });
    try {
      this.#report(request, await this.#state.send(held, { signal: controller.signal, onProgress }));
    } finally {
      record?.remove();
      progress.hide();
      this.#sending.delete(held);
      this.#render();
    }
  }

  #report({ todos, change }: ChangeRequest, { succeeded, failures, unsent }: SendResult): void {
    const [first] = failures;
    if (unsent > 0)
      announce(`Stopped. ${PAST[change]}: ${formatCount(succeeded)} of ${countTodos(todos.length)}.`);
    else if (todos.length > 1 && first === undefined) announce(`${PAST[change]}: ${countTodos(succeeded)}.`);
    if (first === undefined) return;
    if (todos.length === 1) this.#reportFailure(first.todo, change, first.error);
    else {
      const subject = `${formatCount(failures.length)} of ${countTodos(todos.length)}`;
      showToast(subject, describeFailure(change, first.error));
    }
  }

  #unconfirmed:
    | { readonly id: TodoId; readonly change: PendingChange; readonly hide: () => void }
    | undefined;

  #reportFailure({ id, title }: Todo, change: PendingChange, error: unknown): void {
    const hide = showToast(quote(title), describeFailure(change, error));
    this.#unconfirmed = hasNoResponse(error) ? { id, change, hide } : undefined;
  }

  /** Sends a change at once and reports its failure. */
  async requestChange(todo: Todo, change: PendingChange): Promise<void> {
    try {
      await this.#state.requestChange(todo, change);
    } catch (error) {
      this.#reportFailure(todo, change, error);
    }
  }

  /** Hides the message about a change without an answer when the list shows that the service applied it. */
  hideConfirmedFailure(): void {
    const failure = this.#unconfirmed;
    if (failure === undefined || !this.#state.isSettled(failure.id, failure.change)) return;
    failure.hide();
    this.#unconfirmed = undefined;
  }

  #onPageHide(): void {
    const current = this.#current;
    this.#current = undefined;
    current?.message.hide();
    const unsent = [...this.#sending].map(([held, { record }]) => ({
      held,
      record,
      todos: [...held.todos.values()],
    }));
    if (current !== undefined) {
      const { held, record, request } = current;
      unsent.push({ held, record, todos: [...request.todos] });
    }
    // A later change replaces earlier changes to the same to-dos.
    for (const { held, record, todos } of unsent.reverse()) {
      record?.expireSoon();
      // The page may come back from the back/forward cache.
      this.#state.sendBeforeClosing(held).then((result) => {
        record?.remove();
        this.#report({ todos, change: held.change, message: [], restoreFocus: () => {} }, result);
      });
    }
  }

  #checkTimer: ReturnType<typeof setTimeout> | undefined;

  /** Says which deletions a page that was killed or offline could not send. Call it when the list has loaded. */
  reportUnsentDeletions(): void {
    clearTimeout(this.#checkTimer);
    const { epoch } = this.#state;
    if (epoch === undefined) return;
    const { ids, nextCheckMs } = takeExpiredRecords(epoch);
    const unsent = new Set(ids);
    const [first, ...others] = this.#state.view("all").todos.filter(({ id }) => unsent.has(id));
    const reason = "because the browser closed or was offline before the request was sent.";
    if (first !== undefined && others.length === 0)
      showToast(quote(first.title), ` was not deleted, ${reason}`);
    else if (first !== undefined) showToast(`${countTodos(others.length + 1)} were not deleted, ${reason}`);
    if (nextCheckMs !== undefined)
      this.#checkTimer = setTimeout(() => this.reportUnsentDeletions(), nextCheckMs + 100);
  }
}
