import type { Actions } from "./actions.ts";
import { requireElement, showFieldError } from "./dom.ts";
import { MAX_TITLE_LENGTH, parseLines, VISIBLE } from "./paste.ts";
import { PasteDialog } from "./paste-dialog.ts";
import { announce } from "./toasts.ts";

/** The field for new to-dos: what the user types, pastes and shares. */
export class Composer {
  readonly #form = requireElement("#new-todo", HTMLFormElement);
  readonly #input = requireElement("#title", HTMLInputElement);
  readonly #actions: Actions;
  readonly #pasteDialog: PasteDialog;

  constructor(actions: Actions) {
    this.#actions = actions;
    this.#pasteDialog = new PasteDialog(actions);
    this.#form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#submit();
    });
    // The clipboard of a phone's keyboard sends `beforeinput` only.
    for (const type of ["paste", "drop", "beforeinput"] as const)
      this.#input.addEventListener(type, (event) => {
        if (event.cancelable && this.#insert(readInserted(event))) event.preventDefault();
      });
    // A tap on "Add" would take the focus, which closes the keyboard of a phone.
    requireElement("#new-todo button", HTMLButtonElement).addEventListener("mousedown", (event) =>
      event.preventDefault(),
    );
    requireElement("#focus-title", HTMLButtonElement).addEventListener("click", () => this.focus());
  }

  focus(): void {
    this.#input.focus();
  }

  setReadOnly(): void {
    this.#form.hidden = true;
    requireElement("#read-only", HTMLElement).hidden = false;
  }

  /** Takes what the share sheet of the device sent: several lines into the dialog, other text into the field. */
  takeSharedText(): void {
    const search = new URLSearchParams(location.search);
    const shared = ["title", "text", "url"].map((name) => search.get(name)?.trim() ?? "");
    const text = [...new Set(shared)].filter((part) => part !== "").join(" ");
    if (text === "") return;
    history.replaceState(undefined, "", "/");
    if (this.#pasteDialog.open(shared[1] ?? "")) return;
    this.#input.value = text;
    this.#input.focus();
  }

  /** Opens the dialog for several lines, and inserts a single one without its check box. Returns whether it did either. */
  #insert(text: string): boolean {
    if (this.#pasteDialog.open(text)) return true;
    const [line] = parseLines(text);
    if (line?.hasCheckBox !== true) return false;
    this.#input.focus();
    // The browser can undo this, unlike a new value.
    return document.execCommand("insertText", false, line.title);
  }

  #submit(): void {
    const title = this.#input.value;
    const error = !VISIBLE.test(title)
      ? "The title must not be empty."
      : [...title].length > MAX_TITLE_LENGTH
        ? `The title must be at most ${MAX_TITLE_LENGTH} characters.`
        : "";
    showFieldError(this.#input, error);
    if (error === "") {
      this.#input.value = "";
      this.#actions.add([{ title, done: false }]);
    } else {
      this.#input.focus();
      announce(error);
    }
  }
}

/** Returns the text that an event is about to insert into a field. */
function readInserted(event: Event): string {
  if (event instanceof InputEvent) return event.data ?? "";
  const isPaste = event instanceof ClipboardEvent;
  const data = isPaste ? event.clipboardData : event instanceof DragEvent ? event.dataTransfer : null;
  return data?.getData("text/plain") ?? "";
}
