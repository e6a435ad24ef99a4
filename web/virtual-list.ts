import { compareIds, type Todo, type TodoId } from "../src/sdk/client.ts";
import { createElement } from "./dom.ts";
import { indexOf } from "./outbox.ts";

/** Rows per block. The document contains only the blocks near the viewport. */
const BLOCK_SIZE = 50;
const ROOT_MARGIN = "1000px 0px";

interface Block {
  readonly element: HTMLDivElement;
  isNear: boolean;
  /** The CSS height. Empty while the block contains its rows. */
  height: string;
}

interface Row {
  readonly element: HTMLDivElement;
  readonly checkbox: HTMLInputElement;
  readonly title: HTMLSpanElement;
  readonly button: HTMLButtonElement;
  todo: Todo | undefined;
}

export type Control = "checkbox" | "button";

export interface VirtualListOptions {
  readonly onToggle: (todo: Todo, done: boolean) => void;
  /** `control` had the focus. */
  readonly onDelete: (todo: Todo, control: Control) => void;
  /** The focused row was removed, and no other row is left. */
  readonly onFocusLost: () => void;
}

/** Renders a list of any length into an element with the role `list`. */
export class VirtualList {
  readonly #list: HTMLElement;
  readonly #onFocusLost: () => void;
  #todos: readonly Todo[] = [];
  readonly #blocks: Block[] = [];
  readonly #blockByElement = new WeakMap<Element, Block>();
  /** The rows in the document. */
  readonly #rows = new Map<TodoId, Row>();
  #isPrinting = false;
  #isReadOnly = false;
  /** In pixels. Updated by each measurement. */
  #rowHeight = 56;
  readonly #observer = new IntersectionObserver((entries) => this.#onScroll(entries), {
    rootMargin: ROOT_MARGIN,
  });

  constructor(list: HTMLElement, { onToggle, onDelete, onFocusLost }: VirtualListOptions) {
    this.#list = list;
    this.#onFocusLost = onFocusLost;
    list.addEventListener("change", ({ target }) => {
      const todo = this.#findRow(target)?.todo;
      if (todo !== undefined && target instanceof HTMLInputElement) onToggle(todo, target.checked);
    });
    list.addEventListener("click", ({ target }) => {
      const todo = this.#findRow(target)?.todo;
      if (todo !== undefined && target instanceof HTMLButtonElement) onDelete(todo, "button");
    });
    list.addEventListener("keydown", (event) => {
      const todo = this.#findRow(event.target)?.todo;
      if (todo === undefined || event.ctrlKey || event.altKey || event.metaKey) return;
      const { key, repeat } = event;
      if (key === "Delete" && !repeat && !this.#isReadOnly)
        onDelete(todo, this.#focused()?.control ?? "checkbox");
      else if (key === "ArrowDown") this.#moveFocus(todo.id, 1);
      else if (key === "ArrowUp") this.#moveFocus(todo.id, -1);
      else if (key === "Home") this.#moveFocus(todo.id, Number.NEGATIVE_INFINITY);
      else if (key === "End") this.#moveFocus(todo.id, Number.POSITIVE_INFINITY);
      // Ignore the repeats of a held key, so that it deletes one to-do. The browser handles Enter on a button itself.
      else if (!repeat || (key !== "Delete" && key !== "Enter")) return;
      event.preventDefault();
    });
    // A print must contain every row.
    addEventListener("beforeprint", () => {
      this.#isPrinting = true;
      this.#renderBlocks();
    });
    addEventListener("afterprint", () => {
      this.#isPrinting = false;
      this.#renderBlocks();
    });
  }

  get isReadOnly(): boolean {
    return this.#isReadOnly;
  }

  /** Shows no controls that change to-dos. */
  makeReadOnly(): void {
    this.#isReadOnly = true;
    for (const row of this.#rows.values()) this.#setControls(row);
  }

  #setControls({ checkbox, button }: Row): void {
    checkbox.disabled = this.#isReadOnly;
    button.hidden = this.#isReadOnly;
  }

  /** Gives the rows of new to-dos the ids that the service chose, so that they keep the focus. */
  #rename(created: ReadonlyMap<TodoId, Todo>): void {
    for (const [id, row] of this.#rows) {
      const todo = created.get(id);
      if (todo === undefined) continue;
      this.#rows.delete(id);
      this.#rows.set(todo.id, row);
      row.element.dataset.id = todo.id;
      // A copy, so that the row is updated.
      row.todo = { ...todo };
    }
  }

  /** Renders these to-dos, in ascending or descending order of id. Keeps the focus, or moves it to the next row. */
  render(todos: readonly Todo[], created: ReadonlyMap<TodoId, Todo>): void {
    this.#rename(created);
    const focused = this.#focused();
    const anchors = this.#visibleRows();
    this.#todos = todos;
    this.#resize();
    this.#renderBlocks();
    for (const [id, { element }] of this.#rows) if (!element.isConnected) this.#rows.delete(id);
    this.#restoreScrollAnchor(anchors);
    if (focused !== undefined) this.#focus(this.#indexOf(focused.id), focused.control);
  }

  #renderBlocks(): void {
    this.#blocks.forEach((_, index) => {
      this.#renderBlock(index);
    });
  }

  /** Returns the index of a to-do, or the index at which it would be. */
  #indexOf(id: TodoId): number {
    const isDescending = compareIds(this.#todos[0]?.id ?? "", this.#todos.at(-1)?.id ?? "") > 0;
    return indexOf(this.#todos, id, isDescending ? -1 : 1);
  }

  /** Focuses the row of a to-do. Returns false if the list does not contain it. */
  focusTodo(id: TodoId, control: Control): boolean {
    const index = this.#indexOf(id);
    if (this.#todos[index]?.id !== id) return false;
    this.#focus(index, control);
    return true;
  }

  /** Focuses the first row, if there is one. */
  focusFirst(): void {
    if (this.#todos.length > 0) this.#focus(0, "checkbox");
  }

  /** Returns the visible rows and their positions, from the top. Returns none while the top of the list is visible. */
  #visibleRows(): { readonly id: TodoId; readonly top: number }[] {
    if (this.#list.getBoundingClientRect().top >= 0) return [];
    return [...this.#rows]
      .map(([id, { element }]) => ({ id, top: element.getBoundingClientRect().top }))
      .filter(({ top }) => top >= 0 && top < innerHeight)
      .sort((a, b) => a.top - b.top);
  }

  /** Scrolls the first remaining anchor to its old position. Browsers do so only for elements that stay in the document. */
  #restoreScrollAnchor(anchors: readonly { readonly id: TodoId; readonly top: number }[]): void {
    for (const { id, top } of anchors) {
      const element = this.#rows.get(id)?.element;
      if (element === undefined) continue;
      scrollBy({ top: element.getBoundingClientRect().top - top, behavior: "instant" });
      return;
    }
  }

  /** Scrolls to a to-do and highlights it. Returns false if the list does not contain it. */
  scrollToTodo(id: TodoId): boolean {
    const row = this.#ensureRendered(this.#indexOf(id));
    if (row === undefined || row.todo?.id !== id) return false;
    row.element.scrollIntoView({ block: "nearest" });
    row.element.classList.add("new");
    return true;
  }

  #resize(): void {
    const count = Math.ceil(this.#todos.length / BLOCK_SIZE);
    for (const { element } of this.#blocks.splice(count)) {
      this.#observer.unobserve(element);
      element.remove();
    }
    while (this.#blocks.length < count) {
      const element = createElement("div", { role: "none" });
      const block = { element, isNear: this.#blocks.length === 0, height: "" };
      this.#blocks.push(block);
      this.#blockByElement.set(element, block);
      this.#list.append(element);
      this.#observer.observe(element);
    }
  }

  #onScroll(entries: readonly IntersectionObserverEntry[]): void {
    for (const { target, isIntersecting, boundingClientRect } of entries) {
      const block = this.#blockByElement.get(target);
      const index = block === undefined ? -1 : this.#blocks.indexOf(block);
      if (block === undefined || index < 0) continue;
      const { childElementCount } = block.element;
      if (childElementCount > 0) this.#rowHeight = boundingClientRect.height / childElementCount;
      block.isNear = isIntersecting || block.element.contains(document.activeElement);
      this.#renderBlock(index);
    }
  }

  #renderBlock(index: number): void {
    const block = this.#blocks[index];
    if (block === undefined) return;
    const start = index * BLOCK_SIZE;
    const { element } = block;
    if (block.isNear || this.#isPrinting) {
      const todos = this.#todos.slice(start, start + BLOCK_SIZE);
      todos.forEach((todo, offset) => {
        const row = this.#updateRow(todo, start + offset);
        let present = element.children.item(offset);
        // A row that moves would lose the focus, and with it a key that is held.
        const stays = row.parentElement === element && row.contains(document.activeElement);
        while (stays && present !== null && present !== row) {
          element.append(present);
          present = element.children.item(offset);
        }
        if (present !== row) element.insertBefore(row, present);
      });
      while (element.childElementCount > todos.length) element.lastElementChild?.remove();
      this.#setHeight(block, "");
    } else {
      // Only a block without a height contains rows.
      if (block.height === "") {
        for (const row of element.children) {
          const id = this.#findRow(row)?.todo?.id;
          if (id !== undefined) this.#rows.delete(id);
        }
        element.replaceChildren();
      }
      const count = Math.min(this.#todos.length - start, BLOCK_SIZE);
      this.#setHeight(block, `${count * this.#rowHeight}px`);
    }
  }

  /** Writes a height only if it changes: a long list has thousands of blocks. */
  #setHeight(block: Block, height: string): void {
    if (block.height === height) return;
    block.height = height;
    block.element.style.height = height;
  }

  /** Creates or updates the row of a to-do. Returns its element. */
  #updateRow(todo: Todo, index: number): HTMLElement {
    const row = this.#rows.get(todo.id) ?? this.#createRow(todo.id);
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

  #createRow(id: TodoId): Row {
    const checkbox = createElement("input", { type: "checkbox" });
    const title = createElement("span", { className: "title", dir: "auto" });
    const button = createElement("button", { type: "button" });
    const element = createElement(
      "div",
      { className: "todo", role: "listitem" },
      createElement("label", {}, checkbox, title),
      button,
    );
    element.dataset.id = id;
    const row = { element, checkbox, title, button, todo: undefined };
    this.#setControls(row);
    this.#rows.set(id, row);
    return row;
  }

  #findRow(target: EventTarget | null): Row | undefined {
    const id = target instanceof Element ? target.closest<HTMLElement>(".todo")?.dataset.id : undefined;
    return id === undefined ? undefined : this.#rows.get(id);
  }

  #focused(): { readonly id: TodoId; readonly control: Control } | undefined {
    const { activeElement } = document;
    const row = this.#findRow(activeElement);
    if (row?.todo === undefined) return undefined;
    return { id: row.todo.id, control: activeElement === row.button ? "button" : "checkbox" };
  }

  /** Returns the row at an index and adds its block to the document if necessary. */
  #ensureRendered(index: number): Row | undefined {
    const todo = this.#todos[index];
    const blockIndex = Math.floor(index / BLOCK_SIZE);
    const block = this.#blocks[blockIndex];
    if (todo === undefined || block === undefined) return undefined;
    if (!block.isNear) {
      block.isNear = true;
      this.#renderBlock(blockIndex);
    }
    return this.#rows.get(todo.id);
  }

  /** Focuses the row at an index, or the last row if the index is too large. */
  #focus(index: number, control: Control): void {
    const row = this.#ensureRendered(Math.min(index, this.#todos.length - 1));
    if (row === undefined) this.#onFocusLost();
    else if (row[control] !== document.activeElement) row[control].focus();
  }

  #moveFocus(from: TodoId, step: number): void {
    const focused = this.#focused();
    const index = this.#indexOf(from) + step;
    const isPast = index < 0 && Number.isFinite(step);
    if (focused !== undefined && !isPast) this.#focus(Math.max(index, 0), focused.control);
  }
}
