import { createButton, createElement, requireElement } from "./dom.ts";

/** How long a status message stays. */
const STATUS_MS = 6000;

/** Announces a message to screen readers only. */
export function announce(message: string): void {
  requireElement("#announcement", HTMLElement).textContent = message;
}

/** Returns user text in quotation marks. `bdi` keeps its writing direction apart from the surrounding sentence. */
export const quote = (text: string): HTMLElement => createElement("bdi", {}, `“${text}”`);

export type Content = readonly (string | Node)[];

/** The most messages that stay at the same time, besides questions. */
const MAX_TOASTS = 3;

/** Shows a message until the user dismisses it. */
export function showToast(...message: Content): void {
  for (const old of [...document.querySelectorAll("#toast > :not(.question)")].slice(MAX_TOASTS - 1))
    old.remove();
  ask(message, { Dismiss: () => {} }).classList.remove("question");
}

/** Asks a question, which stays until the user answers it. Returns its element. */
export function ask(message: Content, answers: Readonly<Record<string, () => void>>): HTMLElement {
  const question = createElement(
    "div",
    { className: "toast question" },
    createElement("span", {}, ...message),
  );
  for (const [label, onAnswer] of Object.entries(answers))
    question.append(
      createButton(label, () => {
        question.remove();
        onAnswer();
      }),
    );
  requireElement("#toast", HTMLElement).prepend(question);
  return question;
}

/** Removes all messages and announcements, which can contain titles. */
export function clearMessages(): void {
  for (const selector of ["#toast", "#undo", "#status", "#notice", "#announcement"])
    requireElement(selector, HTMLElement).replaceChildren();
}

/** Shows and announces a message that disappears by itself. */
export function showStatus(...message: Content): void {
  const status = new TimedMessage("#status", { message });
  announce(status.text);
}

export interface TimedMessageOptions {
  readonly message: Content;
  readonly action?: { readonly label: string; readonly run: () => void };
  /** Runs when it is dismissed or its time is over, also if another message has replaced it. */
  readonly onEnd?: () => void;
}

/** A message that disappears after six seconds. The time starts again after the pointer or the focus leaves it. */
export class TimedMessage {
  readonly #text: HTMLElement;
  readonly #content: readonly HTMLElement[];
  readonly #onEnd: () => void;
  readonly #bar: HTMLElement;
  #timer: ReturnType<typeof setTimeout> | undefined;

  /** @param bar the selector of the element that shows the message. The next message there replaces it. */
  constructor(bar: string, { message, action, onEnd = () => {} }: TimedMessageOptions) {
    this.#bar = requireElement(bar, HTMLElement);
    this.#onEnd = onEnd;
    const pause = (): void => clearTimeout(this.#timer);
    const resume = (): void => this.#start();
    this.#text = createElement("span", {}, ...message);
    const dismiss = createElement("button", {
      type: "button",
      className: "dismiss",
      ariaLabel: "Dismiss",
      onclick: () => this.#end(),
    });
    if (action === undefined) this.#content = [this.#text, dismiss];
    else {
      const separator = createElement("span", { className: "separator", ariaHidden: "true" }, "·");
      this.#content = [this.#text, separator, createButton(action.label, action.run), dismiss];
    }
    // The pointer may be on the message that this one replaces.
    for (const element of this.#bar.children) element.dispatchEvent(new Event("pointerleave"));
    this.#bar.replaceChildren(...this.#content);
    for (const element of this.#content) {
      element.addEventListener("focusin", pause);
      element.addEventListener("focusout", resume);
      element.addEventListener("pointerenter", ({ pointerType }) => {
        if (pointerType === "mouse") pause();
      });
      element.addEventListener("pointerleave", resume);
    }
    this.#start();
  }

  get text(): string {
    return this.#text.textContent ?? "";
  }

  #start(): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#end(), STATUS_MS);
  }

  #end(): void {
    this.hide();
    this.#onEnd();
  }

  hide(): void {
    clearTimeout(this.#timer);
    if (this.#text.isConnected) this.#bar.replaceChildren();
  }
}
