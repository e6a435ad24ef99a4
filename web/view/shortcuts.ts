import { readSetting, writeSetting } from "../settings.ts";
import { isDialogOpen, requireElement } from "./dom.ts";
import { onKeyDown, toLetter } from "./keyboard.ts";

export interface ShortcutActions {
  readonly newTodo: () => void;
  readonly search: () => void;
  /** Returns whether there was a change to undo. */
  readonly undo: () => boolean;
  /** Returns whether there was a change to do again. */
  readonly redo: () => boolean;
  /** Stops or clears what is in progress. */
  readonly cancel: () => void;
}

/** Devices with a mouse or a touchpad have a keyboard, as far as browsers tell. */
const hasKeyboard = matchMedia("(any-pointer: fine)").matches;
const UNDO_KEYS = /Mac|iPhone|iPad/.test(navigator.platform) ? "⌘Z" : "Ctrl+Z";

/** Follows an announcement. */
export const UNDO_HINT = hasKeyboard ? ` Press ${UNDO_KEYS} to undo.` : "";

/** Handles the keys that work anywhere on the page, and the dialog that lists all keys. */
export function installShortcuts({ newTodo, search, undo, redo, cancel }: ShortcutActions): void {
  const dialog = requireElement("#shortcuts", HTMLDialogElement);
  const singleKeys = requireElement("#single-keys", HTMLInputElement);
  singleKeys.checked = readSetting("single-keys") !== "off";
  // People who use speech input must be able to turn keys without a modifier off (WCAG 2.1.4).
  singleKeys.addEventListener("change", () => {
    writeSetting("single-keys", singleKeys.checked ? undefined : "off");
  });
  const button = requireElement("#show-shortcuts", HTMLButtonElement);
  button.hidden = !hasKeyboard;
  button.addEventListener("click", () => dialog.showModal());
  const actions: Readonly<Record<string, () => void>> = {
    n: newTodo,
    "/": search,
    "?": () => dialog.showModal(),
  };

  onKeyDown(document, (event) => {
    const { key, ctrlKey, metaKey, altKey, shiftKey, repeat } = event;
    if (event.defaultPrevented || isDialogOpen()) return;
    const field = textField(event.target);
    const letter = toLetter(event);
    if (letter === "z" && ctrlKey !== metaKey && !altKey) {
      // In a field with text, the browser undoes the typing.
      if (field !== undefined && field.value !== "") return;
      if (!repeat && (shiftKey ? redo() : undo())) event.preventDefault();
      return;
    }
    if (ctrlKey || metaKey || altKey) return;
    if (key === "Escape") return cancel();
    const action = actions[letter];
    if (action === undefined || field !== undefined || !singleKeys.checked) return;
    event.preventDefault();
    action();
  });
}

const textField = (target: EventTarget | null): HTMLInputElement | undefined =>
  target instanceof HTMLInputElement && target.type !== "checkbox" ? target : undefined;
