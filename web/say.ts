import { make, the } from "./element.ts";

/** Says something to those who hear the page; others see it anyway. */
export function announce(message: string): void {
  the("#announcement", HTMLElement).textContent = message;
}

/** A text of somebody's in a sentence of ours: neither turns the other's direction. */
export const quote = (text: string): HTMLElement => make("bdi", {}, `“${text}”`);

/** Tells everybody of what went wrong, until it is dismissed or something else did. */
export function warn(...message: readonly (string | Node)[]): void {
  const toast = the("#toast", HTMLElement);
  const dismiss = make("button", { type: "button", onclick: () => toast.replaceChildren() }, "Dismiss");
  toast.replaceChildren(make("span", {}, ...message), dismiss);
}
