import type { Todo, TodoId } from "../../src/sdk/client.ts";
import { type ChangeKind, isDeletion, newId, type Target } from "../model/change.ts";
import { History, type Step } from "../model/history.ts";
import type { Outbox } from "../model/outbox.ts";
import { type Choice, inOrder, isSearching, select } from "../model/selection.ts";
import type { State } from "../model/state.ts";
import { copyText } from "./clipboard.ts";
import { ignoreAccidentalClicks, requireElement } from "./dom.ts";
import { undoHint } from "./keyboard.ts";
import type { ListView } from "./list.ts";
import { countTodos, describeChange, nameAll } from "./messages.ts";
import { type Line, toMarkdown } from "./paste.ts";
import { announce, showStatus, showTimed, showToast } from "./toasts.ts";

/** What the user does to to-dos, and undoes. */
export class Actions {
  readonly #outbox: Outbox;
  readonly #state: State;
  readonly #choice: Choice;
  readonly #view: ListView;
  readonly #history: History;
  readonly #menuButton = requireElement("#show-menu", HTMLButtonElement);
  /** The step that the message offers to take back. */
  #offered: Step | undefined;
  /** Hide the messages of steps. When the time of one is over, its deletion is sent. */
  readonly #hide = new WeakMap<Step["changes"], () => void>();

  constructor(outbox: Outbox, state: State, choice: Choice, view: ListView) {
    this.#outbox = outbox;
    this.#state = state;
    this.#choice = choice;
    this.#view = view;
    this.#history = new History(outbox, state);
    view.rows.onChange = (kind, todo, control) =>
      this.#change(kind, [todo], (id) => view.rows.focusTodo(id, control));
    outbox.addEventListener("change", () => this.#hideSent());
    ignoreAccidentalClicks(".todo, .fold, .menu button");
    const menu = requireElement("#menu", HTMLElement);
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
    const choice = this.#choice;
    const added = inOrder(lines, choice.isOldestFirst);
    const targets = added.map(({ title, done }): Target => ({ id: newId(), title, done }));
    const step = this.#history.do("created", targets, () => {});
    const ids = new Set(targets.map(({ id }) => id));
    this.#view.showAdded([...ids]);
    const isVisible = this.#find().rows.some((todo) => todo !== undefined && ids.has(todo.id));
    if (isVisible) this.#offerUndo(step);
    else if (choice.filter === "done") this.#offerUndo(step, " to the open to-dos");
    else if (!isSearching(choice)) this.#offerUndo(step, " to the completed to-dos");
    else this.#offerUndo(step, ". The search does not show it");
  }

  /** @param restoreFocus moves the focus back to the to-do with an id when the change is undone */
  #change(kind: ChangeKind, todos: readonly Todo[], restoreFocus: (id: TodoId) => void): void {
    if (todos.length === 0) return;
    const step = this.#history.do(kind, todos, restoreFocus);
    this.#offerUndo(step);
    this.#view.render();
  }

  #find() {
    return select(this.#state.todos, this.#choice);
  }

  /** Changes every to-do in a state that matches the search. */
  #changeAll(from: "open" | "done", kind: ChangeKind): void {
    this.#change(kind, this.#find()[from], () => this.#menuButton.focus());
  }

  /** @param place where new to-dos are, unless the page shows them */
  #offerUndo(step: Step, place = ""): void {
    const { changes } = step;
    const content = [...describeChange(step), place];
    this.#hideMessage(step);
    const hide = showTimed("undo", content, { Undo: () => this.undo() }, () => this.#outbox.release(changes));
    this.#hide.set(changes, hide);
    this.#offered = step;
    announce(...content, ".", undoHint());
  }

  /** A deletion that was sent cannot be undone. */
  #hideSent(): void {
    this.#history.forgetSent();
    if (this.#offered === undefined || this.#history.last === this.#offered) return;
    this.#hideMessage(this.#offered);
    this.#offered = undefined;
  }

  #hideMessage({ changes }: Step): void {
    this.#hide.get(changes)?.();
  }

  /** Undoes the last change of this window. Returns whether there is one. */
  undo(): boolean {
    const step = this.#history.last;
    if (step === undefined) return false;
    if (this.#offered !== undefined) this.#hideMessage(this.#offered);
    const { changed, gone } = this.#history.undo();
    this.#view.render();
    const [first] = step.targets;
    if (first !== undefined) step.restoreFocus(this.#history.resolve(first.id));
    const { last: previous, undone } = this.#history;
    // The time of a deletion that is held runs out.
    if (previous !== undefined && this.#outbox.isHeld(previous.changes)) this.#offerUndo(previous);
    else if (undone?.changes === step.changes)
      showTimed("undo", ["Undone: ", ...describeChange(undone)], { Redo: () => this.redo() });
    if (changed.length + gone.length < step.targets.length)
      announce("Undone: ", ...describeChange(undone ?? step));
    report(
      gone,
      isDeletion(step.kind) ? "deleted elsewhere, so it cannot be restored." : "deleted elsewhere.",
    );
    report(changed, "changed elsewhere, and stays as it is.");
    return true;
  }

  /** Does what was undone last again. Returns whether there is something. */
  redo(): boolean {
    const result = this.#history.redo();
    if (result === undefined) return false;
    const { step, changed, gone } = result;
    if (step !== undefined) this.#offerUndo(step);
    report(gone, "deleted elsewhere, so this was not redone.");
    report(changed, "changed elsewhere, so this was not redone.");
    this.#view.render();
    return true;
  }

  /** The service has rejected the last changes to these to-dos. */
  forget(ids: readonly TodoId[]): void {
    this.#history.forget(new Set(ids));
  }

  async #copy(): Promise<void> {
    const { open, done } = this.#find();
    const todos = { all: [...open, ...done], open, done }[this.#choice.filter];
    const isCopied = await copyText(toMarkdown(todos));
    if (isCopied) showStatus(`Copied ${countTodos(todos.length)}.`);
    else showToast("The browser forbids copying. Allow it in the site's settings.");
  }
}

/** Says what became of to-dos, if there are any. */
function report(titles: readonly string[], result: string): void {
  if (titles.length > 0) showToast(...nameAll(titles), ` ${titles.length === 1 ? "was" : "were"} ${result}`);
}

function onClick(selector: string, run: () => void): void {
  requireElement(selector, HTMLButtonElement).addEventListener("click", run);
}
