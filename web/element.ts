/** The one element of the page that a selector means, of the type that is expected there. */
export function the<T extends Element>(selector: string, type: new () => T): T {
  const found = document.querySelector(selector);
  if (!(found instanceof type)) throw new Error(`the page has no ${selector}`);
  return found;
}

/** An element with text or elements in it; text is never markup. */
export function make<Tag extends keyof HTMLElementTagNameMap>(
  tag: Tag,
  properties: Partial<Omit<HTMLElementTagNameMap[Tag], "style">> = {},
  ...content: readonly (string | Node)[]
): HTMLElementTagNameMap[Tag] {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...content);
  return element;
}

/** Says beside a field what is wrong with it; without a message, that nothing is. */
export function showFieldError(input: HTMLInputElement, message = ""): void {
  the(`#${input.id}-error`, HTMLElement).textContent = message;
  if (message === "") input.removeAttribute("aria-invalid");
  else input.setAttribute("aria-invalid", "true");
}
