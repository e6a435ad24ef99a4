import { createElement, requireElement } from "./dom.ts";
import { countTodos, formatCount } from "./messages.ts";
import { MAX_TITLE_LENGTH, type PastedLine, parseLines } from "./paste.ts";

/** The preview shows this many lines, so that a long text does not block the page. */
const MAX_PREVIEW_LINES = 100;

/** The dialog that adds several to-dos, one for each line of a text. */
export class PasteDialog {
  readonly #onAdd: (lines: readonly PastedLine[]) => void;
  readonly #dialog = requireElement("#paste", HTMLDialogElement);
  readonly #heading = requireElement("#paste-heading", HTMLElement);
  readonly #box = requireElement("#paste-lines", HTMLTextAreaElement);
  readonly #message = requireElement("#paste-message", HTMLElement);
  readonly #preview = requireElement("#paste-preview", HTMLElement);
  readonly #submit = requireElement("#paste-submit", HTMLButtonElement);
  #lines: readonly PastedLine[] = [];

  /** @param onAdd gets the lines that are not too long */
  constructor(onAdd: (lines: readonly PastedLine[]) => void) {
    this.#onAdd = onAdd;
    // It scrolls, so the keyboard must reach it.
    this.#preview.tabIndex = 0;
    this.#box.addEventListener("input", () => {
      this.#message.textContent = "";
      this.#update();
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
    requireElement("#paste-cancel", HTMLButtonElement).addEventListener("click", () => this.#dialog.close());
  }

  /** Opens the dialog if the text has two or more lines that are not blank. Returns whether it did. */
  open(text: string): boolean {
    if (parseLines(text).length < 2) return false;
    this.#message.textContent = "";
    this.#box.value = text;
    this.#update();
    this.#dialog.showModal();
    this.#submit.focus();
    return true;
  }

  #update(): void {
    this.#lines = parseLines(this.#box.value);
    const count = this.#lines.filter(({ isTooLong }) => !isTooLong).length;
    this.#heading.textContent = `Add ${countTodos(count)}?`;
    const rows = this.#lines.slice(0, MAX_PREVIEW_LINES).map(createPreviewRow);
    const hidden = this.#lines.length - rows.length;
    if (hidden > 0)
      rows.push(createElement("li", { className: "hint" }, `… and ${formatCount(hidden)} more`));
    this.#preview.replaceChildren(...rows);
  }

  /** Adds the lines. Those that are too long stay in the box. */
  #add(): void {
    this.#update();
    const tooLong = this.#lines.filter(({ isTooLong }) => isTooLong);
    const lines = this.#lines.filter(({ isTooLong }) => !isTooLong);
    if (tooLong.length === 0) this.#dialog.close();
    if (lines.length > 0) this.#onAdd(lines);
    if (tooLong.length === 0) return;
    this.#box.value = tooLong.map(({ source }) => source).join("\n");
    this.#update();
    const added = lines.length > 0 ? `Added ${countTodos(lines.length)}. ` : "";
    this.#message.textContent = `${added}Shorten the lines that are longer than ${MAX_TITLE_LENGTH} characters.`;
    this.#box.focus();
  }
}

function createPreviewRow({ title, done, isTooLong }: PastedLine): HTMLElement {
  const row = createElement("li", { className: done ? "done" : "" }, createElement("bdi", {}, title));
  if (done) row.append(createElement("span", { className: "mark" }, "done"));
  if (isTooLong) row.append(createElement("span", { className: "mark error" }, `too long`));
  return row;
}
