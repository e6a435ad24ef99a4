import type { Todo } from "../src/sdk/client.ts";
import { createElement, requireElement } from "./dom.ts";
import { announce } from "./notifications.ts";
import { MAX_TITLE_LENGTH, type PastedLine, parseLines } from "./paste.ts";
import { describeAddError, randomKey } from "./submission.ts";
import { formatCount } from "./undoable-changes.ts";

/** The preview shows this many lines, so that a long text does not block the page. */
const MAX_PREVIEW_LINES = 100;
/** The preview follows the text this long after the last key. */
const PREVIEW_DELAY_MS = 150;

/** A line with the idempotency key under which it is sent, however often. */
interface Entry extends PastedLine {
  readonly idempotencyKey: string;
}

export interface PasteDialogOptions {
  readonly create: (title: string, idempotencyKey: string) => Promise<Todo>;
  readonly markDone: (todo: Todo) => Promise<void>;
  /** Runs after the dialog added to-dos. */
  readonly onAdded: (todos: readonly Todo[]) => void;
}

/** The dialog that adds several to-dos, one for each line of a text. */
export class PasteDialog {
  readonly #options: PasteDialogOptions;
  readonly #dialog = requireElement("#paste", HTMLDialogElement);
  readonly #heading = requireElement("#paste-heading", HTMLElement);
  readonly #box = requireElement("#paste-lines", HTMLTextAreaElement);
  readonly #message = requireElement("#paste-message", HTMLElement);
  readonly #preview = requireElement("#paste-preview", HTMLElement);
  readonly #submit = requireElement("#paste-submit", HTMLButtonElement);
  #entries: readonly Entry[] = [];
  /** Present while lines are added. */
  #controller: AbortController | undefined;
  #previewTimer: ReturnType<typeof setTimeout> | undefined;

  constructor(options: PasteDialogOptions) {
    this.#options = options;
    // It scrolls, so the keyboard must reach it.
    this.#preview.tabIndex = 0;
    this.#box.addEventListener("input", () => {
      clearTimeout(this.#previewTimer);
      this.#previewTimer = setTimeout(() => {
        this.#message.textContent = "";
        this.#update();
      }, PREVIEW_DELAY_MS);
    });
    this.#box.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
      event.preventDefault();
      this.#add();
    });
    requireElement("#paste form", HTMLFormElement).addEventListener("submit", (event) => {
      event.preventDefault();
      this.#add();
    });
    this.#dialog.addEventListener("cancel", (event) => {
      event.preventDefault();
      this.#cancel();
    });
    // Browsers close a dialog at the second Esc, also while lines are added.
    this.#dialog.addEventListener("close", () => this.#controller?.abort());
    requireElement("#paste-cancel", HTMLButtonElement).addEventListener("click", () => this.#cancel());
  }

  /** Opens the dialog if the text has two or more lines that are not blank. Returns whether it did. */
  open(text: string): boolean {
    if (parseLines(text).length < 2) return false;
    this.#entries = [];
    this.#message.textContent = "";
    this.#box.value = text;
    this.#update();
    this.#dialog.showModal();
    this.#submit.focus();
    return true;
  }

  /** Stops adding, or closes the dialog. */
  #cancel(): void {
    if (this.#controller !== undefined) this.#controller.abort();
    else this.#dialog.close();
  }

  /** Reads the box. Lines that were in it before keep their idempotency keys. */
  #update(): void {
    clearTimeout(this.#previewTimer);
    const known = Map.groupBy(this.#entries, ({ source }) => source);
    this.#entries = parseLines(this.#box.value).map((line) => ({
      ...line,
      idempotencyKey: known.get(line.source)?.shift()?.idempotencyKey ?? randomKey(),
    }));
    const count = this.#entries.filter(({ isTooLong }) => !isTooLong).length;
    this.#heading.textContent = count === 1 ? "Add 1 to-do?" : `Add ${formatCount(count)} to-dos?`;
    const rows = this.#entries.slice(0, MAX_PREVIEW_LINES).map(createPreviewRow);
    const hidden = this.#entries.length - rows.length;
    if (hidden > 0)
      rows.push(createElement("li", { className: "hint" }, `… and ${formatCount(hidden)} more`));
    this.#preview.replaceChildren(...rows);
  }

  /** Adds the lines one after the other, so that they keep their order. Lines that fail stay in the box. */
  async #add(): Promise<void> {
    if (this.#controller !== undefined) return;
    this.#update();
    const controller = new AbortController();
    this.#controller = controller;
    this.#box.readOnly = true;
    this.#submit.ariaDisabled = "true";
    const todos: Todo[] = [];
    const remaining: Entry[] = [];
    let failure = "";
    const total = this.#entries.filter(({ isTooLong }) => !isTooLong).length;
    for (const entry of this.#entries) {
      if (entry.isTooLong || controller.signal.aborted) {
        remaining.push(entry);
        continue;
      }
      try {
        const todo = await this.#options.create(entry.title, entry.idempotencyKey);
        if (entry.done) await this.#options.markDone(todo);
        todos.push(todo);
        this.#message.textContent = `Adding: ${formatCount(todos.length)} of ${formatCount(total)}. Esc stops.`;
      } catch (error) {
        remaining.push(entry);
        const { outcome, reason, isUnreachable } = describeAddError(error);
        failure ||= ` “${entry.title}” ${outcome}: ${reason}`;
        if (isUnreachable) controller.abort();
      }
    }
    this.#controller = undefined;
    this.#box.readOnly = false;
    this.#submit.ariaDisabled = null;
    this.#finish(todos, remaining, failure);
  }

  #finish(todos: readonly Todo[], remaining: readonly Entry[], failure: string): void {
    if (todos.length > 0) this.#options.onAdded(todos);
    const added = `Added ${todos.length === 1 ? "1 to-do" : `${formatCount(todos.length)} to-dos`}.`;
    if (remaining.length === 0) {
      this.#dialog.close();
      announce(added);
      return;
    }
    this.#box.value = remaining.map(({ source }) => source).join("\n");
    this.#entries = remaining;
    this.#update();
    const tooLong = remaining.filter(({ isTooLong }) => isTooLong).length;
    const advice =
      tooLong > 0 ? ` Shorten the lines that are longer than ${MAX_TITLE_LENGTH} characters.` : "";
    this.#message.textContent = `${added}${failure}${advice}${failure === "" ? "" : " The lines above were not added."}`;
    if (!this.#dialog.open) this.#dialog.showModal();
    this.#box.focus();
  }
}

function createPreviewRow({ title, done, isTooLong }: PastedLine): HTMLElement {
  const row = createElement("li", { className: done ? "done" : "" }, createElement("bdi", {}, title));
  if (done) row.append(createElement("span", { className: "mark" }, "done"));
  if (isTooLong) row.append(createElement("span", { className: "mark error" }, `too long`));
  return row;
}
