/** Returns the first element that matches a selector. Throws if it is missing or has another type. */
export function requireElement<T extends Element>(
  selector: string,
  type: new () => T,
  root: ParentNode = document,
): T {
  const element = root.querySelector(selector);
  if (!(element instanceof type)) throw new Error(`the page has no ${type.name} ${selector}`);
  return element;
}

/** Writes a text only if it changes, so that the document does not. */
export function setText(element: Element, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}

/** Text and elements of a message. */
export type Content = readonly (string | Node)[];

/** Creates an element. Strings in `content` become text, never markup. */
export function createElement<Tag extends keyof HTMLElementTagNameMap>(
  tag: Tag,
  properties: Partial<Omit<HTMLElementTagNameMap[Tag], "style">> = {},
  ...content: Content
): HTMLElementTagNameMap[Tag] {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...content);
  return element;
}

/** Makes elements the children of another one. Those that stay in order are not touched, so they keep focus and selection. */
export function setChildren(parent: Element, children: readonly Element[]): void {
  const kept = new Set(children);
  for (const child of [...parent.children]) if (!kept.has(child)) child.remove();
  const put = (child: Element, before: Element | null): void => {
    // A browser that has it keeps the focus also in what moves.
    if (child.parentElement === parent && "moveBefore" in parent) parent.moveBefore(child, before);
    else parent.insertBefore(child, before);
  };
  let present = parent.firstElementChild;
  for (const child of children) {
    const next = present?.nextElementSibling ?? null;
    if (present !== null && next === child) {
      // One that moves down is moved itself, and not all below it.
      put(present, null);
      present = child;
    }
    if (present === child) present = child.nextElementSibling;
    else put(child, present);
  }
}

/** Returns user text in quotation marks. `bdi` keeps its writing direction apart from the surrounding sentence. */
export const quote = (text: string): HTMLElement => createElement("bdi", {}, `“${text}”`);

export const createButton = (
  label: string,
  onclick: () => unknown,
  properties: Partial<Omit<HTMLButtonElement, "style">> = {},
): HTMLButtonElement => createElement("button", { type: "button", ...properties, onclick }, label);

/** Two clicks within this time and distance count as a double click or a double tap. */
const DOUBLE_CLICK_MS = 500;
const DOUBLE_CLICK_PX = 24;

/** Ignores the second click of a double click whose first click moved another element of the selector under the pointer. */
export function ignoreAccidentalClicks(selector: string): void {
  let last: { readonly event: MouseEvent; readonly element: Element } | undefined;
  const onClick = (event: MouseEvent): void => {
    const element = event.target instanceof Element ? event.target.closest(selector) : null;
    // A click by keyboard or screen reader has no detail.
    if (element === null || event.detail === 0) return;
    if (
      last !== undefined &&
      last.element !== element &&
      event.timeStamp - last.event.timeStamp < DOUBLE_CLICK_MS &&
      Math.hypot(event.clientX - last.event.clientX, event.clientY - last.event.clientY) < DOUBLE_CLICK_PX
    ) {
      event.preventDefault();
      event.stopPropagation();
    } else last = { event, element };
  };
  addEventListener("click", onClick, { capture: true });
}

/** Runs an action when a form is submitted, unless the previous one is pending, and shows that at the button. */
export function onSubmit(form: HTMLFormElement, run: () => Promise<void>): void {
  form.onsubmit = async (event) => {
    event.preventDefault();
    const { submitter } = event;
    if (submitter === null || submitter.ariaDisabled === "true") return;
    submitter.ariaDisabled = "true";
    await run().finally(() => {
      submitter.ariaDisabled = null;
    });
  };
}

/** Shows an error message at a field until someone types there. Without a message, clears the error. */
export function showFieldError(input: HTMLInputElement, message = ""): void {
  requireElement(`#${input.id}-error`, HTMLElement).textContent = message;
  input.ariaInvalid = message === "" ? null : "true";
  if (message !== "") input.addEventListener("input", () => showFieldError(input), { once: true });
}
