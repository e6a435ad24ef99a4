/** Whether the device has a mouse or a touchpad. Then it has a keyboard, too, as far as browsers tell. */
export const hasMouse = (): boolean => matchMedia("(any-pointer: fine)").matches;

/** Returns what follows an announcement: the keys that undo. */
export function undoHint(): string {
  const keys = /Mac|iPhone|iPad/.test(navigator.platform) ? "⌘Z" : "Ctrl+Z";
  return hasMouse() ? ` Press ${keys} to undo.` : "";
}

/**
 * Runs for each key that is pressed, except the keys of an input method: they belong to the text that it composes, for example
 * Enter and the arrow keys.
 */
export function onKeyDown(
  target: GlobalEventHandlers,
  run: (event: KeyboardEvent) => void,
  options: AddEventListenerOptions = {},
): void {
  const onEvent = (event: KeyboardEvent): void => {
    // Safari ends a composition before the event of the key that ended it. That event has this code.
    if (!event.isComposing && event.keyCode !== 229) run(event);
  };
  target.addEventListener("keydown", onEvent, options);
}

/**
 * Returns the lowercase character of a key. On a layout without Latin letters, it is the one at the same place of a US keyboard.
 * A Latin layout decides itself, so that a German Z is a Z.
 */
export function toLetter({ key, code, shiftKey }: Pick<KeyboardEvent, "key" | "code" | "shiftKey">): string {
  if (/^[\p{ASCII}\p{Script=Latin}]/u.test(key)) return key.toLowerCase();
  if (code === "Slash") return shiftKey ? "?" : "/";
  return code.replace("Key", "").toLowerCase();
}
