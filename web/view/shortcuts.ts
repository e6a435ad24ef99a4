import { readSetting, writeSetting } from "../settings.ts";
import type { Actions } from "./actions.ts";
import type { Composer } from "./composer.ts";
import { requireElement } from "./dom.ts";
import { hasMouse, onKeyDown, toLetter } from "./keyboard.ts";
import type { ListView } from "./list.ts";

/** Handles the keys that work anywhere on the page, and the dialog that lists all keys. */
export function installShortcuts(composer: Composer, view: ListView, actions: Actions): void {
  const dialog = requireElement("#shortcuts", HTMLDialogElement);
  const singleKeys = requireElement("#single-keys", HTMLInputElement);
  singleKeys.checked = readSetting("single-keys") !== "off";
  // People who use speech input must be able to turn keys without a modifier off (WCAG 2.1.4).
  singleKeys.addEventListener("change", () => {
    writeSetting("single-keys", singleKeys.checked ? undefined : "off");
  });
  const button = requireElement("#show-shortcuts", HTMLButtonElement);
  button.hidden = !hasMouse();
  button.addEventListener("click", () => dialog.showModal());
  const runs: Readonly<Record<string, () => void>> = {
    n: () => composer.focus(),
    "/": () => view.focusSearch(),
    "?": () => dialog.showModal(),
  };
  /** What the user left in each field. If the page has set another text, the browser has nothing to undo. */
  const typed = new WeakMap<HTMLInputElement, string>();
  document.addEventListener("input", ({ target }) => {
    const field = textField(target);
    if (field !== undefined) typed.set(field, field.value);
  });

  onKeyDown(document, (event) => {
    const { key, ctrlKey, metaKey, altKey, shiftKey, repeat } = event;
    if (event.defaultPrevented || document.querySelector("dialog[open], :popover-open") !== null) return;
    const field = textField(event.target);
    const letter = toLetter(event);
    const isRedo = letter === "y" ? ctrlKey && !shiftKey : letter === "z" && shiftKey;
    if ((isRedo || letter === "z") && ctrlKey !== metaKey && !altKey) {
      if (field !== undefined && typed.get(field) === field.value) return;
      if (!repeat && (isRedo ? actions.redo() : actions.undo())) event.preventDefault();
      return;
    }
    if (ctrlKey || metaKey || altKey) return;
    if (key === "Escape") return view.clearSearch();
    const run = runs[letter];
    if (run === undefined || field !== undefined || !singleKeys.checked) return;
    event.preventDefault();
    run();
  });
}

const textField = (target: EventTarget | null): HTMLInputElement | undefined =>
  target instanceof HTMLInputElement && target.type !== "checkbox" ? target : undefined;
