import { type Content, createButton, createElement, requireElement } from "./dom.ts";

/** How long a message stays that disappears by itself. */
const TIMED_MS = 6000;
/** The most messages to dismiss that stay at the same time. */
const MAX_TOASTS = 3;

// Found once, because the page may remove its content before the last message.
const stack = requireElement("#toasts", HTMLElement);
const announcement = requireElement("#announcement", HTMLElement);

type Buttons = Readonly<Record<string, () => void>>;

/** Announces a message to screen readers only. */
export function announce(...message: Content): void {
  announcement.textContent = message
    .map((part) => (typeof part === "string" ? part : part.textContent))
    .join("");
}

/**
 * Shows a message on top of the stack, so that the others stay where they are, or in place of the one with the same id. Each of
 * its buttons removes it.
 */
function show(message: Content, buttons: Buttons, properties: Partial<HTMLElement>): HTMLElement {
  const toast = createElement(
    "div",
    { className: "toast", ...properties },
    createElement("span", {}, ...message),
  );
  for (const [label, onClick] of Object.entries(buttons)) {
    const run = (): void => {
      toast.remove();
      onClick();
    };
    const isDismiss = label === "Dismiss";
    toast.append(isDismiss ? createButton("", run, { ariaLabel: label }) : createButton(label, run));
  }
  const replaced = [...stack.children].find(({ id }) => id !== "" && id === toast.id);
  if (replaced === undefined) stack.prepend(toast);
  else replaced.replaceWith(toast);
  return toast;
}

/** Shows a message until the user dismisses it. */
export function showToast(...message: Content): void {
  const toasts = stack.querySelectorAll(".toast[role=alert]:has([aria-label=Dismiss])");
  for (const old of [...toasts].slice(MAX_TOASTS - 1)) old.remove();
  show(message, { Dismiss: () => {} }, { role: "alert" });
}

/** Shows and announces a message that disappears by itself. */
export function showStatus(...message: Content): void {
  showTimed("status", message);
  announce(...message);
}

/**
 * Shows a message that disappears after six seconds. The time starts again after the pointer or the focus leaves it. Returns a
 * function that hides it.
 * @param id the next message with it replaces this one
 * @param onEnd runs when the time of the message is over, also after another one has replaced it, and when the user dismisses it
 */
export function showTimed(id: string, message: Content, buttons: Buttons = {}, onEnd = () => {}): () => void {
  // The pointer may be on the message that this one replaces.
  stack.querySelector(`#${id}`)?.dispatchEvent(new Event("pointerleave"));
  let timer: ReturnType<typeof setTimeout>;
  const hide = (): void => {
    toast.remove();
    clearTimeout(timer);
  };
  const end = (): void => {
    hide();
    onEnd();
  };
  const pause = (): void => clearTimeout(timer);
  const resume = (): void => {
    clearTimeout(timer);
    timer = setTimeout(end, TIMED_MS);
  };
  const toast = show(message, { ...buttons, Dismiss: end }, { id });
  toast.addEventListener("focusin", pause);
  toast.addEventListener("focusout", resume);
  toast.addEventListener("pointerenter", ({ pointerType }) => {
    if (pointerType === "mouse") pause();
  });
  toast.addEventListener("pointerleave", resume);
  resume();
  return hide;
}
