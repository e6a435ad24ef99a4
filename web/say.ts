import { make, the } from "./element.ts";

/** Says something to those who hear the page; others see it anyway. */
export function announce(message: string): void {
  the("#announcement", HTMLElement).textContent = message;
}

/** Tells everybody of what went wrong, until it is dismissed or something else did. */
export function warn(message: string): void {
  const toast = the("#toast", HTMLElement);
  const dismiss = make("button", { type: "button", onclick: () => toast.replaceChildren() }, "Dismiss");
  toast.replaceChildren(make("span", { dir: "auto" }, message), dismiss);
}
