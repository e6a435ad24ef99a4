import type { Todo, TodoId } from "../src/sdk.ts";
import { make } from "./element.ts";
import { indexOf } from "./state.ts";

/** Rows come and go in blocks of so many: only those near what is seen are in the document. */
const BLOCK = 50;
const NEAR = "1000px 0px";
/** Two clicks at one place within this time are a double click. */
const DOUBLE_CLICK_MS = 500;
const DOUBLE_CLICK_PX = 8;

interface Block {
  readonly element: HTMLDivElement;
  isNear: boolean;
}

interface Row {
  readonly element: HTMLDivElement;
  readonly checkbox: HTMLInputElement;
  readonly title: HTMLSpanElement;
  readonly button: HTMLButtonElement;
  todo: Todo | undefined;
}

interface Click extends Pick<MouseEvent, "clientX" | "clientY" | "timeStamp"> {
  readonly id: TodoId;
}

type Control = "checkbox" | "button";

export interface RowsOptions {
  readonly onMark: (todo: Todo, done: boolean) => void;
  readonly onDelete: (todo: Todo) => void;
  /** The row that had the focus is gone, and there is no other. */
  readonly onFocusLost: () => void;
}

/** The rows of a list that may be very long, in an element with the role of a list. */
export class Rows {
  readonly #list: HTMLElement;
  readonly #onFocusLost: () => void;
  #todos: readonly Todo[] = [];
  readonly #blocks: Block[] = [];
  readonly #byElement = new WeakMap<Element, Block>();
  /** Those in the document. */
  readonly #rows = new Map<TodoId, Row>();
  #lastClick: Click | undefined;
  /** In pixels, as measured last. */
  #rowHeight = 56;
  readonly #observer = new IntersectionObserver((entries) => this.#onScroll(entries), { rootMargin: NEAR });

  constructor(list: HTMLElement, { onMark, onDelete, onFocusLost }: RowsOptions) {
    this.#list = list;
    this.#onFocusLost = onFocusLost;
    list.addEventListener("change", ({ target }) => {
      const todo = this.#rowOf(target)?.todo;
      if (todo !== undefined && target instanceof HTMLInputElement) onMark(todo, target.checked);
    });
    list.addEventListener("click", (event) => {
      const { target } = event;
      const todo = this.#rowOf(target)?.todo;
      if (todo === undefined) return;
      // This keeps a checkbox as it is.
      if (this.#isSlip(event, todo.id)) event.preventDefault();
      else if (target instanceof HTMLButtonElement) onDelete(todo);
    });
    list.addEventListener("keydown", (event) => {
      const todo = this.#rowOf(event.target)?.todo;
      if (todo === undefined || event.ctrlKey || event.altKey || event.metaKey) return;
      const { key, repeat } = event;
      if (key === "Delete" && !repeat) onDelete(todo);
      else if (key === "ArrowDown") this.#move(todo.id, 1);
      else if (key === "ArrowUp") this.#move(todo.id, -1);
      // A key that is held down means one to-do, not thirty a second; Enter presses the button by itself.
      else if (!repeat || (key !== "Delete" && key !== "Enter")) return;
      event.preventDefault();
    });
  }

  /** Shows these to-dos, by ascending id, and nothing else. The focus stays where it is, or goes to the next row. */
  show(todos: readonly Todo[]): void {
    const focused = this.#focused();
    const seen = this.#seen();
    this.#todos = todos;
    this.#resize();
    this.#blocks.forEach((_, at) => {
      this.#render(at);
    });
    for (const [id, { element }] of this.#rows) if (!element.isConnected) this.#rows.delete(id);
    this.#holdStill(seen);
    if (focused !== undefined) this.#focus(indexOf(todos, focused.id), focused.control);
  }

  /** The rows that are seen, from the top, and where; none while the list is seen from its beginning. */
  #seen(): { readonly id: TodoId; readonly top: number }[] {
    if (this.#list.getBoundingClientRect().top >= 0) return [];
    return [...this.#rows]
      .map(([id, { element }]) => ({ id, top: element.getBoundingClientRect().top }))
      .filter(({ top }) => top >= 0 && top < innerHeight)
      .sort((one, other) => one.top - other.top);
  }

  /** Scrolls so that what went above moves no row under the pointer. A browser does so by itself only for rows that stay in place in the document. */
  #holdStill(seen: readonly { readonly id: TodoId; readonly top: number }[]): void {
    for (const { id, top } of seen) {
      const element = this.#rows.get(id)?.element;
      if (element === undefined) continue;
      scrollBy({ top: element.getBoundingClientRect().top - top, behavior: "instant" });
      return;
    }
  }

  /** Brings a to-do into sight, if it is among those shown. */
  reveal(id: TodoId): void {
    const row = this.#bring(indexOf(this.#todos, id));
    if (row === undefined || row.todo?.id !== id) return;
    row.element.scrollIntoView({ block: "nearest" });
    row.element.classList.add("new");
  }

  #resize(): void {
    const count = Math.ceil(this.#todos.length / BLOCK);
    for (const { element } of this.#blocks.splice(count)) {
      this.#observer.unobserve(element);
      element.remove();
    }
    while (this.#blocks.length < count) {
      const element = make("div", { role: "none" });
      const block = { element, isNear: this.#blocks.length === 0 };
      this.#blocks.push(block);
      this.#byElement.set(element, block);
      this.#list.append(element);
      this.#observer.observe(element);
    }
  }

  #onScroll(entries: readonly IntersectionObserverEntry[]): void {
    for (const { target, isIntersecting, boundingClientRect } of entries) {
      const block = this.#byElement.get(target);
      const at = block === undefined ? -1 : this.#blocks.indexOf(block);
      if (block === undefined || at < 0) continue;
      const { childElementCount } = block.element;
      if (childElementCount > 0) this.#rowHeight = boundingClientRect.height / childElementCount;
      block.isNear = isIntersecting || block.element.contains(document.activeElement);
      this.#render(at);
    }
  }

  #render(at: number): void {
    const block = this.#blocks[at];
    if (block === undefined) return;
    const todos = this.#todos.slice(at * BLOCK, (at + 1) * BLOCK);
    const { element } = block;
    if (block.isNear) {
      let place = element.firstElementChild;
      todos.forEach((todo, index) => {
        const row = this.#rowFor(todo, at * BLOCK + index);
        if (row === place) place = place.nextElementSibling;
        else element.insertBefore(row, place);
      });
      while (place !== null) {
        const leftover = place;
        place = place.nextElementSibling;
        leftover.remove();
      }
      element.style.height = "";
    } else {
      for (const { id } of todos) {
        if (this.#rows.get(id)?.element.parentElement === element) this.#rows.delete(id);
      }
      element.replaceChildren();
      element.style.height = `${todos.length * this.#rowHeight}px`;
    }
  }

  /** The element of a to-do's row, as the to-do is now. */
  #rowFor(todo: Todo, index: number): HTMLElement {
    const row = this.#rows.get(todo.id) ?? this.#newRow(todo.id);
    if (row.todo !== todo) {
      row.todo = todo;
      row.title.textContent = todo.title;
      row.checkbox.checked = todo.done;
      row.button.ariaLabel = `Delete: ${todo.title}`;
      row.element.classList.toggle("done", todo.done);
    }
    row.element.ariaPosInSet = String(index + 1);
    row.element.ariaSetSize = String(this.#todos.length);
    return row.element;
  }

  #newRow(id: TodoId): Row {
    const checkbox = make("input", { type: "checkbox" });
    const title = make("span", { className: "title", dir: "auto" });
    const button = make("button", { type: "button" });
    const element = make(
      "div",
      { className: "todo", role: "listitem" },
      make("label", {}, checkbox, title),
      button,
    );
    element.dataset.id = String(id);
    const row = { element, checkbox, title, button, todo: undefined };
    this.#rows.set(id, row);
    return row;
  }

  #rowOf(target: EventTarget | null): Row | undefined {
    const id = target instanceof Element ? target.closest<HTMLElement>(".todo")?.dataset.id : undefined;
    return id === undefined ? undefined : this.#rows.get(BigInt(id));
  }

  #focused(): { readonly id: TodoId; readonly control: Control } | undefined {
    const { activeElement } = document;
    const row = this.#rowOf(activeElement);
    if (row?.todo === undefined) return undefined;
    return { id: row.todo.id, control: activeElement === row.button ? "button" : "checkbox" };
  }

  /** The row at an index, in the document whether it is seen or not. */
  #bring(index: number): Row | undefined {
    const todo = this.#todos[index];
    const at = Math.floor(index / BLOCK);
    const block = this.#blocks[at];
    if (todo === undefined || block === undefined) return undefined;
    if (!block.isNear) {
      block.isNear = true;
      this.#render(at);
    }
    return this.#rows.get(todo.id);
  }

  /** Gives the focus to the row at an index, or to the last one before it. */
  #focus(index: number, control: Control): void {
    const row = this.#bring(Math.min(index, this.#todos.length - 1));
    if (row === undefined) this.#onFocusLost();
    else if (row[control] !== document.activeElement) row[control].focus();
  }

  /** Whether a click is the second half of a double click whose first half let another row slip under the pointer. */
  #isSlip({ detail, clientX, clientY, timeStamp }: MouseEvent, id: TodoId): boolean {
    // By keyboard or a reader of the screen.
    if (detail === 0) return false;
    const last = this.#lastClick;
    const isSlip =
      last !== undefined &&
      last.id !== id &&
      timeStamp - last.timeStamp < DOUBLE_CLICK_MS &&
      Math.hypot(clientX - last.clientX, clientY - last.clientY) < DOUBLE_CLICK_PX;
    if (!isSlip) this.#lastClick = { id, clientX, clientY, timeStamp };
    return isSlip;
  }

  #move(from: TodoId, step: number): void {
    const focused = this.#focused();
    const index = indexOf(this.#todos, from) + step;
    if (focused !== undefined && index >= 0) this.#focus(index, focused.control);
  }
}
