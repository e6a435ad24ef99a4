/** Returns the first element that matches a selector. Throws if it is missing or has another type. */
export function requireElement<T extends Element>(selector: string, type: new () => T): T {
  const element = document.querySelector(selector);
  if (!(element instanceof type)) throw new Error(`the page has no ${type.name} ${selector}`);
  return element;
}

/** Creates an element. Strings in `content` become text, never markup. */
export function createElement<Tag extends keyof HTMLElementTagNameMap>(
  tag: Tag,
  properties: Partial<Omit<HTMLElementTagNameMap[Tag], "style">> = {},
  ...content: readonly (string | Node)[]
): HTMLElementTagNameMap[Tag] {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...content);
  return element;
}

/** Shows an error message at a field. Without a message, clears the error. */
export function showFieldError(input: HTMLInputElement, message = ""): void {
  requireElement(`#${input.id}-error`, HTMLElement).textContent = message;
  if (message === "") input.removeAttribute("aria-invalid");
  else input.setAttribute("aria-invalid", "true");
}
