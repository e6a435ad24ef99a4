import type { Todo } from "../src/sdk/client.ts";
import { type Change, type ChangeKind, isNewId, newId, type Target } from "./change.ts";
import { copyText } from "./clipboard.ts";
import type { Line } from "./composer.ts";
import { ignoreAccidentalClicks, ignoreClicksThatClose, requireElement } from "./dom.ts";
import { inOrder, type ListView } from "./list-view.ts";
import { countTodos, describeChange, nameAll } from "./messages.ts";
import { announce, showStatus, showToast, TimedMessage } from "./notifications.ts";
import type { Outbox } from "./outbox.ts";
import { toMarkdown } from "./paste.ts";
import type { State } from "./state.ts";

const UNDO_KEYS = /Mac|iPhone|iPad/.test(navigator.platform) ? "⌘Z" : "Ctrl+Z";

const menu = requireElement("#menu", HTMLElement);
const menuButton = requireElement("#show-menu", HTMLButtonElement);

const toText = (message: readonly (string | Node)[]): string =>
  message.map((part) => (typeof part === "string" ? part : part.textContent)).join("");

export interface ActionsOptions {
  readonly outbox: Outbox;
  readonly state: State;
  readonly view: ListView;
}

/** What the user does to to-dos, and undoes. */
export class Actions {
  readonly #outbox: Outbox;
  readonly #state: State;
  readonly #view: ListView;
  /** What moves the focus back when a change is undone, by its key. */
  readonly #focusAfterUndo = new Map<string, () => void>();
  /** The change whose message offers to undo it. */
  #offered: { readonly change: Change; readonly message: TimedMessage } | undefined;

  constructor({ outbox, state, view }: ActionsOptions) {
    this.#outbox = outbox;
    this.#state = state;
    this.#view = view;
    outbox.addEventListener("change", () => this.#hideSent());
    ignoreAccidentalClicks(".todo, .fold, .menu button");
    // Its height is known when it is open, and this runs before it is painted.
    menu.addEventListener("beforetoggle", () => requestAnimationFrame(placeMenu));
    ignoreClicksThatClose(menu, menuButton);
    // Before the action runs, so that the button of the menu gets the focus back.
    menu.addEventListener("click", () => menu.hidePopover(), { capture: true });
    onClick("#mark-all", () => this.#changeAll("open", "done"));
    onClick("#reopen-all", () => this.#changeAll("done", "open"));
    for (const button of ["#clear-done", "#clear-all-done"])
      onClick(button, () => this.#changeAll("done", "cleared"));
    onClick("#copy-list", () => this.#copy());
  }

  /** Adds to-dos. @param lines in the order in which the page shows them */
  add(lines: readonly Line[]): void {
    const after = this.#state.confirmed.at(-1)?.id ?? "";
    const targets = inOrder(lines).map(
      ({ title, done }): Target => ({ id: newId(), title, after, ...(done && { done }) }),
    );
    const change = this.#outbox.add("created", targets);
    const isVisible = this.#view.showAdded(change.targets.map(({ id }) => id));
    const message = describeChange(change);
    if (isVisible) announce(toText(message));
    else if (this.#view.filter === "done") showStatus(...message, " to the open to-dos.");
    else if (!this.#view.isSearching) showStatus(...message, " to the completed to-dos.");
    else showStatus(...message, ". The search does not show it.");
  }

  change(kind: ChangeKind, todos: readonly Todo[], restoreFocus: () => void): void {
    if (todos.length === 0) return;
    const targets = todos.map(({ id, title }) => ({ id, title }));
    const added = this.#outbox.add(kind, targets);
    this.#focusAfterUndo.set(added.key, restoreFocus);
    this.#offerUndo(added);
    announce(`${toText(describeChange(added))}. Press ${UNDO_KEYS} to undo.`);
    this.#view.render();
  }

  /** Changes every to-do in a state that matches the search. */
  #changeAll(from: "open" | "done", kind: ChangeKind): void {
    this.change(kind, this.#view.find()[from], () => menuButton.focus());
  }

  #offerUndo(change: Change): void {
    const message = new TimedMessage("#undo", {
      message: describeChange(change),
      action: { label: "Undo", run: () => this.undo() },
      onDismiss: () => this.#outbox.release(change),
      onPause: () => this.#outbox.pause(change),
      onResume: () => this.#outbox.resume(change),
    });
    this.#offered = { change, message };
  }

  #hideSent(): void {
    const { key } = this.#offered?.change ?? {};
    if (this.#outbox.changes.some((one) => one.key === key && one.sentAt === undefined)) return;
    this.#offered?.message.hide();
    this.#offered = undefined;
  }

  /** Undoes the last change that was not sent. Returns whether there is one. */
  undo(): boolean {
    const last = this.#outbox.undoable;
    if (last === undefined) return false;
    this.#undoChange(last);
    return true;
  }

  async #undoChange(last: Change): Promise<void> {
    this.#offered?.message.hide();
    const { position, confirmed } = this.#state;
    const isUndone = this.#outbox.undo(last);
    this.#view.render();
    this.#focusAfterUndo.get(last.key)?.();
    const previous = this.#outbox.undoable;
    if (previous !== undefined) this.#offerUndo(previous);
    if (!(await isUndone)) {
      showToast(...describeChange(last), ": it was already sent.");
      return;
    }
    announce(toText(["Undone: ", ...describeChange(last)]));
    const ids = new Set(confirmed.map(({ id }) => id));
    const gone = last.targets.filter(({ id }) => position !== undefined && !isNewId(id) && !ids.has(id));
    if (gone.length > 0)
      showToast(
        ...nameAll(gone.map(({ title }) => title)),
        gone.length === 1
          ? " was deleted elsewhere, so it cannot be restored."
          : " were deleted elsewhere, so they cannot be restored.",
      );
  }

  async #copy(): Promise<void> {
    const { open, done } = this.#view.find();
    const todos = { all: [...open, ...done], open, done }[this.#view.filter];
    const isCopied = await copyText(toMarkdown(todos));
    if (isCopied) showStatus(`Copied ${countTodos(todos.length)}.`);
    else showToast("The browser forbids copying. Allow it in the site's settings.");
  }
}

function placeMenu(): void {
  const { bottom, right } = menuButton.getBoundingClientRect();
  menu.style.top = `${Math.max(0, Math.min(bottom + 4, innerHeight - menu.offsetHeight))}px`;
  menu.style.right = `${document.documentElement.clientWidth - right}px`;
}

function onClick(selector: string, run: () => void): void {
  requireElement(selector, HTMLButtonElement).addEventListener("click", run);
}
