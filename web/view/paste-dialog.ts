import type { Actions } from "./actions.ts";
import { requireElement } from "./dom.ts";
import { onKeyDown } from "./keyboard.ts";
import { countTodos, formatCount } from "./messages.ts";
import { MAX_TITLE_LENGTH, parseLines } from "./paste.ts";

/** The dialog that adds several to-dos, one for each line of a text. */
export class PasteDialog {
  readonly #actions: Actions;
  readonly #dialog = requireElement("#paste", HTMLDialogElement);
  readonly #box = requireElement("#paste-lines", HTMLTextAreaElement);
  readonly #message = requireElement("#paste-message", HTMLElement);
  readonly #submit = requireElement("#paste-submit", HTMLButtonElement);

  constructor(actions: Actions) {
    this.#actions = actions;
    this.#box.addEventListener("input", () => this.#update());
    onKeyDown(this.#box, (event) => {
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
    const lines = parseLines(text);
    if (lines.length < 2) return false;
    this.#box.value = lines.map(({ source }) => source).join("\n");
    this.#update();
    this.#dialog.showModal();
    this.#submit.focus();
    return true;
  }

  /** Returns the lines that can be added and those that are too long. */
  #read() {
    const lines = parseLines(this.#box.value);
    return {
      lines: lines.filter(({ isTooLong }) => !isTooLong),
      tooLong: lines.filter(({ isTooLong }) => isTooLong),
    };
  }

  #update(): void {
    const { lines, tooLong } = this.#read();
    this.#submit.textContent = `Add ${countTodos(lines.length)}`;
    const subject = tooLong.length === 1 ? "1 line is" : `${formatCount(tooLong.length)} lines are`;
    this.#message.textContent =
      tooLong.length === 0 ? "" : `${subject} longer than ${MAX_TITLE_LENGTH} characters.`;
  }

  /** Adds the lines. Those that are too long stay in the box. */
  #add(): void {
    const { lines, tooLong } = this.#read();
    if (tooLong.length === 0) this.#dialog.close();
    if (lines.length > 0) this.#actions.add(lines);
    if (tooLong.length === 0) return;
    this.#box.value = tooLong.map(({ source }) => source).join("\n");
    this.#update();
    const added = lines.length > 0 ? `Added ${countTodos(lines.length)}. ` : "";
    this.#message.textContent = `${added}Shorten the lines that are longer than ${MAX_TITLE_LENGTH} characters.`;
    this.#box.focus();
  }
}
