import { createElement, requireElement } from "./dom.ts";

/** How long a status message stays. */
const STATUS_MS = 6000;

/** Announces a message to screen readers only. */
export function announce(message: string): void {
  requireElement("#announcement", HTMLElement).textContent = message;
}

/** Returns user text in quotation marks. `bdi` keeps its writing direction apart from the surrounding sentence. */
export const quote = (text: string): HTMLElement => createElement("bdi", {}, `“${text}”`);

type Content = readonly (string | Node)[];

const createButton = (label: string, onclick: () => void): HTMLButtonElement =>
  createElement("button", { type: "button", onclick }, label);

/** Shows a message until the user dismisses it or the next one replaces it. Returns a function that hides it. */
export function showToast(...message: Content): () => void {
  const toast = requireElement("#toast", HTMLElement);
  const text = createElement("span", {}, ...message);
  const hide = (): void => {
    if (text.isConnected) toast.replaceChildren();
  };
  toast.replaceChildren(text, createButton("Dismiss", hide));
  return hide;
}

/** Shows and announces a message that disappears by itself. */
export function showStatus(...message: Content): void {
  const status = new TimedMessage({ message, onTimeout: () => {} });
  announce(status.text);
}

/** Shows the progress of a change, with a button that stops it. Returns functions that update the text and hide it. */
export function showProgress(onStop: () => void): {
  readonly update: (text: string) => void;
  readonly hide: () => void;
} {
  const bar = requireElement("#progress", HTMLElement);
  const text = createElement("span");
  return {
    update: (message) => {
      if (!text.isConnected) bar.replaceChildren(text, createButton("Stop", onStop));
      text.textContent = message;
    },
    hide: () => {
      if (text.isConnected) bar.replaceChildren();
    },
  };
}

export interface TimedMessageOptions {
  readonly message: Content;
  readonly action?: { readonly label: string; readonly run: () => void };
  /** Runs when the time is over or the user dismisses the message, but not after `hide()`. */
  readonly onTimeout: () => void;
}

/** A message that disappears after six seconds. The time starts again after the pointer or the focus leaves it. */
export class TimedMessage {
  readonly #text: HTMLElement;
  readonly #content: readonly HTMLElement[];
  readonly #onTimeout: () => void;
  readonly #bar = requireElement("#status", HTMLElement);
  #timer: ReturnType<typeof setTimeout> | undefined;
  #isOver = false;

  constructor({ message, action, onTimeout }: TimedMessageOptions) {
    this.#onTimeout = onTimeout;
    this.#text = createElement("span", {}, ...message);
    const dismiss = createElement("button", {
      type: "button",
      className: "dismiss",
      ariaLabel: "Dismiss",
      onclick: () => this.end(),
    });
    if (action === undefined) this.#content = [this.#text, dismiss];
    else {
      const separator = createElement("span", { className: "separator", ariaHidden: "true" }, "·");
      this.#content = [this.#text, separator, createButton(action.label, action.run), dismiss];
    }
    this.#bar.replaceChildren(...this.#content);
    for (const element of this.#content) {
      element.addEventListener("focusin", () => this.#pause());
      element.addEventListener("focusout", () => this.#start());
      element.addEventListener("pointerenter", ({ pointerType }) => {
        if (pointerType === "mouse") this.#pause();
      });
      element.addEventListener("pointerleave", () => this.#start());
    }
    this.#start();
  }

  get text(): string {
    return this.#text.textContent ?? "";
  }

  #pause(): void {
    clearTimeout(this.#timer);
  }

  #start(): void {
    clearTimeout(this.#timer);
    if (!this.#isOver) this.#timer = setTimeout(() => this.end(), STATUS_MS);
  }

  /** Hides the message as if its time were over. */
  end(): void {
    if (this.#isOver) return;
    this.hide();
    this.#onTimeout();
  }

  hide(): void {
    this.#isOver = true;
    clearTimeout(this.#timer);
    if (this.#text.isConnected) this.#bar.replaceChildren();
  }
}
