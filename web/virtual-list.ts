import type { Todo, TodoId } from "../src/sdk/client.ts";
import { indexOf } from "../src/sdk/json.ts";
import { createElement } from "./dom.ts";

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

/** Where the focus is. Without a to-do, it is on the fold. */
interface Focused {
  readonly todo: Todo | undefined;
  readonly control: Control;
}

/** The rows of the list. */
export interface ListContent {
  /** Both arrays are in ascending order of id if this is 1, and in descending order if it is -1. */
  readonly direction: 1 | -1;
  readonly open: readonly Todo[];
  readonly done: readonly Todo[];
  /** The button between the two, which shows and hides the done ones. */
  readonly fold?: { readonly label: string; readonly isExpanded: boolean };
}

/** Where a row is in the window. */
interface Place {
  readonly row: Row;
  readonly isDone: boolean | undefined;
  readonly top: number;
}

export interface VirtualListOptions {
  readonly onToggle: (todo: Todo, done: boolean) => void;
  /** `control` had the focus. */
  readonly onDelete: (todo: Todo, control: Control) => void;
  readonly onFold: () => void;
  /** The focused row was removed, and no other row is left. */
  readonly onFocusLost: () => void;
}

/** Renders a list of any length into an element with the role `list`. */
export class VirtualList {
  readonly #list: HTMLElement;
  readonly #onFocusLost: () => void;
  #content: ListContent = { direction: 1, open: [], done: [] };
  readonly #foldButton = createElement("button", { type: "button" });
  readonly #foldRow = createElement("div", { className: "fold", role: "listitem" }, this.#foldButton);
  readonly #blocks: Block[] = [];
  /** The rows in the document. */
  readonly #rows = new Map<TodoId, Row>();
  /** The row under the pointer or the finger, while the user does not type. */
  #pointed: Element | null = null;
  #isPrinting = false;
  /** Rows have no controls that change to-dos, from the next rendering on. */
  isReadOnly = false;
  /** In pixels. Updated by each measurement. */
  #rowHeight = 56;
  readonly #observer = new IntersectionObserver((entries) => this.#onScroll(entries), {
    rootMargin: ROOT_MARGIN,
  });

  constructor(list: HTMLElement, { onToggle, onDelete, onFold, onFocusLost }: VirtualListOptions) {
    this.#list = list;
    this.#onFocusLost = onFocusLost;
    this.#foldButton.addEventListener("click", onFold);
    list.addEventListener("change", ({ target }) => {
      const row = this.#findRow(target);
      if (target instanceof HTMLInputElement) this.#leave(row, (todo) => onToggle(todo, target.checked));
    });
    list.addEventListener("click", ({ target }) => {
      const row = this.#findRow(target);
      if (target instanceof HTMLButtonElement) this.#leave(row, (todo) => onDelete(todo, "button"));
    });
    list.addEventListener("keydown", (event) => {
      const focused = this.#focused();
      if (focused === undefined || event.ctrlKey || event.altKey || event.metaKey) return;
      const { key, repeat } = event;
      // Backspace is the key "delete" of a Mac.
      const isDelete = key === "Delete" || key === "Backspace";
      if (isDelete && !repeat && !this.isReadOnly)
        this.#leave(this.#findRow(event.target), (todo) => onDelete(todo, focused.control));
      else if (key === "ArrowDown") this.#moveFocus(focused, 1);
      else if (key === "ArrowUp") this.#moveFocus(focused, -1);
      else if (key === "Home") this.#moveFocus(focused, Number.NEGATIVE_INFINITY);
      else if (key === "End") this.#moveFocus(focused, Number.POSITIVE_INFINITY);
      // Ignore the repeats of a held key, so that it deletes one to-do. The browser handles Enter on a button itself.
      else if (!repeat || (!isDelete && key !== "Enter")) return;
      event.preventDefault();
    });
    for (const type of ["pointerover", "pointermove"] as const)
      list.addEventListener(type, ({ target }) => {
        this.#pointed = target instanceof Element ? target.closest(".todo") : null;
      });
    const releasePlace = (): void => {
      this.#pointed = null;
      list.style.top = "";
      document.body.style.minHeight = "";
    };
    // Not `pointerleave`, which comes before the click of a finger.
    list.addEventListener("mouseleave", releasePlace);
    addEventListener("keydown", releasePlace, { capture: true });
    // A print must contain every row.
    for (const type of ["beforeprint", "afterprint"])
      addEventListener(type, () => {
        this.#isPrinting = type === "beforeprint";
        this.#renderBlocks();
      });
  }

  /** Gives the rows of new to-dos the ids that the service chose, so that they keep the focus. */
  #rename(created: ReadonlyMap<TodoId, Todo>): void {
    for (const [id, row] of this.#rows) {
      const todo = created.get(id);
      if (todo === undefined) continue;
      this.#rows.delete(id);
      this.#rows.set(todo.id, row);
      row.element.dataset.id = todo.id;
      // The rest stays as it is shown, so that the row is found at its place.
      row.todo &&= { ...row.todo, id: todo.id };
    }
  }

  /** Renders these rows. The focus stays, or moves to the next row if its own leaves its part of the list. */
  render(content: ListContent, created: ReadonlyMap<TodoId, Todo>): void {
    this.#rename(created);
    const focused = this.#focused();
    const places = this.#places();
    this.#content = content;
    this.#foldButton.textContent = content.fold?.label ?? "";
    this.#foldButton.ariaExpanded = String(content.fold?.isExpanded);
    this.#resize();
    this.#renderBlocks();
    this.#restorePlace(places);
    if (focused !== undefined) this.#focus(this.#indexOf(focused.todo), focused.control);
  }

  /** Runs the user's change of a row. If the row is gone then, it leaves with the motion that the styles give it. */
  #leave(row: Row | undefined, change: (todo: Todo) => void): void {
    if (row?.todo === undefined) return;
    const { element } = row;
    const { offsetTop } = element;
    change(row.todo);
    if (element.isConnected) return;
    element.inert = true;
    element.classList.add("leaving");
    element.style.top = `${offsetTop}px`;
    this.#list.prepend(element);
    const motions = element.getAnimations().map(({ finished }) => finished);
    Promise.allSettled(motions).then(() => element.remove());
  }

  #renderBlocks(): void {
    for (const index of this.#blocks.keys()) this.#renderBlock(index);
    this.#forgetRows();
  }

  #forgetRows(): void {
    for (const [id, { element }] of this.#rows) if (!element.isConnected) this.#rows.delete(id);
  }

  /** The index of the first done to-do. */
  get #doneStart(): number {
    const { open, fold } = this.#content;
    return open.length + (fold === undefined ? 0 : 1);
  }

  get #length(): number {
    return this.#doneStart + this.#content.done.length;
  }

  /** Returns the to-do at an index. The index of the fold has none. */
  #todoAt(index: number): Todo | undefined {
    return this.#content.open[index] ?? this.#content.done[index - this.#doneStart];
  }

  /** Returns the index of a to-do, or the index at which it would be. Without a to-do, returns the index of the fold. */
  #indexOf(todo: Pick<Todo, "id" | "done"> | undefined): number {
    const { open, done, direction } = this.#content;
    if (todo === undefined) return open.length;
    if (todo.done) return this.#doneStart + indexOf(done, todo.id, direction);
    return indexOf(open, todo.id, direction);
  }

  /** Returns the index of a to-do, or undefined if the list does not contain it. */
  #find(id: TodoId): number | undefined {
    return [false, true]
      .map((done) => this.#indexOf({ id, done }))
      .find((index) => this.#todoAt(index)?.id === id);
  }

  /** Focuses the row of a to-do if the list contains it. */
  focusTodo(id: TodoId, control: Control): void {
    const index = this.#find(id);
    if (index !== undefined) this.#focus(index, control);
  }

  /** Focuses the first row, if there is one. */
  focusFirst(): void {
    if (this.#length > 0) this.#focus(0, "checkbox");
  }

  /** Returns the places of the row under the pointer, and of all visible rows while the top of the list is not visible. */
  #places(): readonly Place[] {
    const isScrolled = this.#list.getBoundingClientRect().top < 0;
    const isPointed = ({ element }: Row): boolean => element === this.#pointed;
    return [...this.#rows.values()]
      .filter((row) => isScrolled || isPointed(row))
      .map((row) => ({ row, isDone: row.todo?.done, top: row.element.getBoundingClientRect().top }))
      .filter(({ top }) => top >= 0 && top < innerHeight)
      .sort((a, b) => Number(isPointed(b.row)) - Number(isPointed(a.row)) || a.top - b.top);
  }

  /**
   * Keeps the first row that stays in its part of the list at its place. The page scrolls, and is extended above or below the
   * list if necessary. Browsers scroll so only for elements that stay in the document.
   */
  #restorePlace(places: readonly Place[]): void {
    const place = places.find(({ row, isDone }) => row.element.isConnected && row.todo?.done === isDone);
    if (place === undefined) return;
    const { style } = this.#list;
    const shift = place.row.element.getBoundingClientRect().top - place.top;
    if (shift === 0) return;
    const scroll = scrollY + shift - (Number.parseFloat(style.top) || 0);
    style.top = `${Math.max(0, -scroll)}px`;
    document.body.style.minHeight = `calc(100vh + ${Math.max(0, scroll)}px)`;
    scrollTo({ top: scroll, behavior: "instant" });
  }

  /** Scrolls to a to-do and highlights it. Returns false if the list does not contain it. */
  scrollToTodo(id: TodoId): boolean {
    const index = this.#find(id);
    if (index === undefined) return false;
    const element = this.#ensureRendered(index);
    element?.scrollIntoView({ block: "nearest" });
    element?.classList.add("new");
    return true;
  }

  #resize(): void {
    const count = Math.ceil(this.#length / BLOCK_SIZE);
    for (const { element } of this.#blocks.splice(count)) {
      this.#observer.unobserve(element);
      element.remove();
    }
    while (this.#blocks.length < count) {
      const element = createElement("div", { role: "none" });
      this.#blocks.push({ element, isNear: this.#blocks.length === 0, height: "" });
      this.#list.append(element);
      this.#observer.observe(element);
    }
  }

  #onScroll(entries: readonly IntersectionObserverEntry[]): void {
    for (const { target, isIntersecting, boundingClientRect } of entries) {
      const index = this.#blocks.findIndex(({ element }) => element === target);
      const block = this.#blocks[index];
      if (block === undefined) continue;
      const { childElementCount } = block.element;
      if (childElementCount > 0) this.#rowHeight = boundingClientRect.height / childElementCount;
      block.isNear = isIntersecting || block.element.contains(document.activeElement);
      this.#renderBlock(index);
    }
    this.#forgetRows();
  }

  #renderBlock(index: number): void {
    const block = this.#blocks[index];
    if (block === undefined) return;
    const start = index * BLOCK_SIZE;
    const { element } = block;
    const count = Math.min(this.#length - start, BLOCK_SIZE);
    if (block.isNear || this.#isPrinting) {
      for (let offset = 0; offset < count; offset++) {
        const row = this.#updateRow(start + offset);
        let present = element.children.item(offset);
        // A row that moves would lose the focus, and with it a key that is held.
        const stays = row.parentElement === element && row.contains(document.activeElement);
        while (stays && present !== null && present !== row) {
          element.append(present);
          present = element.children.item(offset);
        }
        if (present !== row) element.insertBefore(row, present);
      }
      while (element.childElementCount > count) element.lastElementChild?.remove();
      this.#setHeight(block, "");
    } else {
      // Only a block without a height contains rows.
      if (block.height === "") element.replaceChildren();
      this.#setHeight(block, `${count * this.#rowHeight}px`);
    }
  }

  /** Writes a height only if it changes: a long list has thousands of blocks. */
  #setHeight(block: Block, height: string): void {
    if (block.height === height) return;
    block.height = height;
    block.element.style.height = height;
  }

  /** Creates or updates the row at an index. Returns its element. */
  #updateRow(index: number): HTMLElement {
    const todo = this.#todoAt(index);
    const element = todo === undefined ? this.#foldRow : this.#updateTodo(todo).element;
    element.ariaPosInSet = String(index + 1);
    element.ariaSetSize = String(this.#length);
    return element;
  }

  #updateTodo(todo: Todo): Row {
    const row = this.#rows.get(todo.id) ?? this.#createRow(todo.id);
    if (row.todo !== todo) {
      row.todo = todo;
      row.title.textContent = todo.title;
      row.checkbox.checked = todo.done;
      row.button.ariaLabel = `Delete: ${todo.title}`;
      row.element.classList.toggle("done", todo.done);
    }
    row.checkbox.disabled = this.isReadOnly;
    row.button.hidden = this.isReadOnly;
    return row;
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
    this.#rows.set(id, row);
    return row;
  }

  #findRow(target: EventTarget | null): Row | undefined {
    const id = target instanceof Element ? target.closest<HTMLElement>(".todo")?.dataset.id : undefined;
    return id === undefined ? undefined : this.#rows.get(id);
  }

  #focused(): Focused | undefined {
    const { activeElement } = document;
    if (activeElement === this.#foldButton) return { todo: undefined, control: "checkbox" };
    const row = this.#findRow(activeElement);
    if (row?.todo === undefined) return undefined;
    return { todo: row.todo, control: activeElement === row.button ? "button" : "checkbox" };
  }

  /** Returns the row at an index and adds its block to the document if necessary. Without rows, returns undefined. */
  #ensureRendered(index: number): HTMLElement | undefined {
    const blockIndex = Math.floor(index / BLOCK_SIZE);
    const block = this.#blocks[blockIndex];
    if (block === undefined) return undefined;
    if (!block.isNear) {
      block.isNear = true;
      this.#renderBlock(blockIndex);
    }
    return this.#updateRow(index);
  }

  /** Focuses the row at an index, or the last row if the index is too large. */
  #focus(index: number, control: Control): void {
    const element = this.#ensureRendered(Math.min(index, this.#length - 1));
    const target = this.#findRow(element ?? null)?.[control] ?? this.#foldButton;
    if (element === undefined) this.#onFocusLost();
    else if (target !== document.activeElement) target.focus();
  }

  #moveFocus({ todo, control }: Focused, step: number): void {
    const index = this.#indexOf(todo) + step;
    const isPast = index < 0 && Number.isFinite(step);
    if (!isPast) this.#focus(Math.max(index, 0), control);
  }
}
