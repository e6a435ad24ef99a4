import { createElement, requireElement } from "./dom.ts";

/** Announces a message to screen readers only. */
export function announce(message: string): void {
  requireElement("#announcement", HTMLElement).textContent = message;
}

/** Returns user text in quotation marks. `bdi` keeps its writing direction apart from the surrounding sentence. */
export const quote = (text: string): HTMLElement => createElement("bdi", {}, `“${text}”`);

/** Shows a message until the user dismisses it or the next one replaces it. */
export function showToast(...message: readonly (string | Node)[]): void {
  const toast = requireElement("#toast", HTMLElement);
  const dismiss = createElement(
    "button",
    { type: "button", onclick: () => toast.replaceChildren() },
    "Dismiss",
  );
  toast.replaceChildren(createElement("span", {}, ...message), dismiss);
}
