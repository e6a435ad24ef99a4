import type { Todo, TodoId } from "../../src/sdk/client.ts";
import { compareIds, indexOf } from "../../src/sdk/json.ts";
import { createElement } from "./dom.ts";
import { onKeyDown } from "./keyboard.ts";
import { installSwipe } from "./swipe.ts";

/** Rows per new block. The document contains only the blocks near the viewport. */
const BLOCK_SIZE = 50;
const ROOT_MARGIN = "1000px 0px";
/** A ticked row stays this long after the last tap, so that no row moves while the user ticks several. */
const HOLD_MS = 600;
/** The time in which rows take their new places. */
const MOVE_MS = 200;
const VIBRATION_MS = 10;

/** Successive rows. A block keeps its rows when others come and go. */
interface Block {
  readonly element: HTMLDivElement;
  /** The first row when the block was made. The block begins where this row is or would be. */
  readonly first: Place | undefined;
  start: number;
  end: number;
  isNear: boolean;
  /** The CSS height. Empty while the block contains its rows. */
  height: string;
}

interface Row {
  readonly element: HTMLDivElement;
  readonly checkbox: HTMLInputElement;
  readonly title: HTMLSpanElement;
  readonly button: HTMLButtonElement;
  /** The to-do that decides the place of the row. A held row already shows the next state. */
  todo: Todo | undefined;
}

/** What decides the place of a row. */
type Place = Pick<Todo, "id" | "done">;

export type Control = "checkbox" | "button";

/** Where the focus is. Without a to-do, it is on the fold. */
interface Focused {
  readonly todo: Todo | undefined;
  readonly control: Control;
}

/** The rows of the list. */
export interface ListContent {
  /** The filter, search and order. While it stays the same, only to-dos change. */
  readonly view: string;
  /** Both arrays are in ascending order of id if this is 1, and in descending order if it is -1. */
  readonly direction: 1 | -1;
  readonly open: readonly Todo[];
  readonly done: readonly Todo[];
  /** Which of them have rows. */
  readonly shows: { readonly open: boolean; readonly done: boolean };
  /** The button between the two, which shows and hides the done ones. */
  readonly fold?: { readonly label: string; readonly isExpanded: boolean };
  /** Someone else may have made the changes, so they are highlighted. */
  readonly isHighlighted: boolean;
}

/** Where a row is in the window. */
interface Position {
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
  /** Rows may move again: render the present content. */
  readonly onRelease: () => void;
}

/** Renders a list of any length into an element with the role `list`. */
export class VirtualList {
  readonly #list: HTMLElement;
  readonly #onDelete: VirtualListOptions["onDelete"];
  readonly #onFocusLost: () => void;
  readonly #onRelease: () => void;
  #content: ListContent = {
    view: "",
    direction: 1,
    open: [],
    done: [],
    shows: { open: false, done: false },
    isHighlighted: false,
  };
  readonly #foldButton = createElement("button", { type: "button" });
  readonly #foldRow = createElement("div", { className: "fold", role: "listitem" }, this.#foldButton);
  #blocks: Block[] = [];
  /** The rows in the document. */
  readonly #rows = new Map<TodoId, Row>();
  /** The row under the pointer or the finger, while the user does not type. */
  #pointed: Element | null = null;
  /** A pointer or a finger presses a row. */
  #isPressed = false;
  /** Runs while rows must not move. */
  #hold: ReturnType<typeof setTimeout> | undefined;
  #motions: readonly Animation[] = [];
  #isPrinting = false;
  /** Rows have no controls that change to-dos, from the next rendering on. */
  isReadOnly = false;
  /** In pixels. Updated by each measurement. */
  #rowHeight = 56;
  readonly #observer = new IntersectionObserver((entries) => this.#onScroll(entries), {
    rootMargin: ROOT_MARGIN,
  });

  constructor(list: HTMLElement, { onToggle, onDelete, onFold, onFocusLost, onRelease }: VirtualListOptions) {
    this.#list = list;
    this.#onDelete = onDelete;
    this.#onFocusLost = onFocusLost;
    this.#onRelease = onRelease;
    this.#foldButton.addEventListener("click", onFold);
    list.addEventListener("change", ({ target }) => {
      const row = this.#findRow(target);
      if (row?.todo === undefined) return;
      const { checked } = row.checkbox;
      this.#holdRows();
      row.element.classList.toggle("done", checked);
      if (checked) navigator.vibrate?.(VIBRATION_MS);
      onToggle(row.todo, checked);
    });
    list.addEventListener("click", ({ target }) => {
      if (target instanceof HTMLButtonElement) this.#delete(target, "button");
    });
    onKeyDown(list, (event) => this.#onKey(event));
    installSwipe(list);
    this.#listenToPointers();
    list.addEventListener("animationend", ({ target }) => {
      if (target instanceof Element) target.classList.remove("new");
    });
    // A print must contain every row.
    for (const type of ["beforeprint", "afterprint"])
      addEventListener(type, () => {
        this.#isPrinting = type === "beforeprint";
        this.#renderBlocks();
      });
  }

  #delete(target: EventTarget | null, control: Control): void {
    const row = this.#findRow(target);
    if (row?.todo === undefined) return;
    this.#onDelete(row.todo, control);
    this.#release();
  }

  #onKey(event: KeyboardEvent): void {
    const focused = this.#focused();
    if (focused === undefined || event.ctrlKey || event.altKey || event.metaKey) return;
    const { key, repeat } = event;
    // Backspace is the key "delete" of a Mac.
    const isDelete = key === "Delete" || key === "Backspace";
    if (isDelete && !repeat && !this.isReadOnly) this.#delete(event.target, focused.control);
    else if (key === "ArrowDown") this.#moveFocus(focused, 1);
    else if (key === "ArrowUp") this.#moveFocus(focused, -1);
    else if (key === "Home") this.#moveFocus(focused, Number.NEGATIVE_INFINITY);
    else if (key === "End") this.#moveFocus(focused, Number.POSITIVE_INFINITY);
    // Ignore the repeats of a held key, so that it deletes one to-do. The browser handles Enter on a button itself.
    else if (!repeat || (!isDelete && key !== "Enter")) return;
    event.preventDefault();
  }

  /** Keeps rows where they are while a pointer or a finger is on them. */
  #listenToPointers(): void {
    const list = this.#list;
    for (const type of ["pointerover", "pointermove"] as const)
      list.addEventListener(type, ({ target }) => {
        this.#pointed = target instanceof Element ? target.closest(".todo") : null;
      });
    list.addEventListener("pointerdown", () => {
      this.#isPressed = true;
      // One that has ended would start again.
      for (const motion of this.#motions) if (motion.playState === "running") motion.pause();
    });
    for (const type of ["pointerup", "pointercancel"])
      addEventListener(type, () => {
        if (!this.#isPressed) return;
        this.#isPressed = false;
        for (const motion of this.#motions) if (motion.playState === "paused") motion.play();
        if (this.#hold !== undefined) this.#holdRows();
      });
    const releasePlace = (): void => {
      this.#pointed = null;
      list.style.top = "";
      document.body.style.minHeight = "";
    };
    // Not `pointerleave`, which comes before the click of a finger.
    list.addEventListener("mouseleave", releasePlace);
    onKeyDown(window, releasePlace, { capture: true });
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

  /**
   * Renders these rows. The focus stays, or moves to the next row if its own leaves its part of the list. Returns false if rows
   * only show which to-dos are done, because they must not move yet.
   */
  render(content: ListContent, created: ReadonlyMap<TodoId, Todo>): boolean {
    this.#rename(created);
    const isSameView = content.view === this.#content.view;
    if (isSameView && this.#mark(content) && this.#hold === undefined) this.#holdRows();
    if (isSameView && this.#hold !== undefined) return false;
    clearTimeout(this.#hold);
    this.#hold = undefined;
    const tops = isSameView ? this.#tops() : new Map<HTMLElement, number>();
    for (const motion of this.#motions) motion.cancel();
    const focused = this.#focused();
    const positions = this.#positions();
    const newest = this.#newest();
    this.#content = content;
    setText(this.#foldButton, content.fold?.label ?? "");
    this.#foldButton.ariaExpanded = String(content.fold?.isExpanded);
    this.#divide();
    this.#renderBlocks();
    this.#restorePlace(positions);
    if (content.isHighlighted)
      for (const [id, { element }] of this.#rows)
        element.classList.toggle("new", compareIds(id, newest) > 0 || element.classList.contains("new"));
    if (focused !== undefined) this.#focus(this.#indexOf(focused.todo), focused.control);
    this.#move(tops);
    return true;
  }

  /** Keeps all rows where they are, until `HOLD_MS` after the last call and until no row is pressed. */
  #holdRows(): void {
    clearTimeout(this.#hold);
    this.#hold = setTimeout(() => {
      if (this.#isPressed) this.#holdRows();
      else this.#release();
    }, HOLD_MS);
  }

  #release(): void {
    if (this.#hold === undefined) return;
    clearTimeout(this.#hold);
    this.#hold = undefined;
    this.#onRelease();
  }

  /** Shows in each row, without moving it, whether its to-do is done. Returns whether a row looks different. */
  #mark({ open, done, direction, isHighlighted }: ListContent): boolean {
    let isMarked = false;
    for (const [id, { checkbox, element }] of this.#rows) {
      const todos = checkbox.checked ? open : done;
      if (todos[indexOf(todos, id, direction)]?.id !== id) continue;
      isMarked = true;
      checkbox.checked = !checkbox.checked;
      element.classList.toggle("done", checkbox.checked);
      element.classList.toggle("new", isHighlighted);
    }
    return isMarked;
  }

  /** Returns where the rows of the document are, unless the user wants no motion. */
  #tops(): Map<HTMLElement, number> {
    if (!matchMedia("(prefers-reduced-motion: no-preference)").matches) return new Map();
    const rows = [...this.#rows.values()].map(({ element }) => element);
    return new Map(
      [...rows, this.#foldRow].map((element) => [element, element.getBoundingClientRect().top] as const),
    );
  }

  /** Lets rows move to their places. Rows that left their part of the list appear there. */
  #move(tops: ReadonlyMap<HTMLElement, number>): void {
    this.#motions = [...tops].flatMap(([element, before]) => {
      if (!element.isConnected) return [];
      const { top } = element.getBoundingClientRect();
      const isInWindow = Math.min(top, before) < innerHeight && Math.max(top, before) > -innerHeight;
      if (top === before || !isInWindow) return [];
      const from = { translate: `0 ${before - top}px` };
      return [
        element.animate([from, { translate: "0 0" }], { id: "move", duration: MOVE_MS, easing: "ease-out" }),
      ];
    });
  }

  /** Returns the newest id of the content. */
  #newest(): TodoId {
    const ids = [this.#content.open, this.#content.done].map(
      (todos) => todos.at(this.#content.direction === 1 ? -1 : 0)?.id ?? "",
    );
    return ids.sort(compareIds).at(-1) ?? "";
  }

  #renderBlocks(): void {
    for (const block of this.#blocks) this.#renderBlock(block);
    this.#forgetRows();
  }

  #forgetRows(): void {
    for (const [id, { element }] of this.#rows) if (!element.isConnected) this.#rows.delete(id);
  }

  get #open(): readonly Todo[] {
    return this.#content.shows.open ? this.#content.open : [];
  }

  get #done(): readonly Todo[] {
    return this.#content.shows.done ? this.#content.done : [];
  }

  /** The index of the first done to-do. */
  get #doneStart(): number {
    return this.#open.length + (this.#content.fold === undefined ? 0 : 1);
  }

  get #length(): number {
    return this.#doneStart + this.#done.length;
  }

  /** Returns the to-do at an index. The index of the fold has none. */
  #todoAt(index: number): Todo | undefined {
    return this.#open[index] ?? this.#done[index - this.#doneStart];
  }

  /** Returns the index of a to-do, or the index at which it would be. Without a to-do, returns the index of the fold. */
  #indexOf(todo: Place | undefined): number {
    const { direction } = this.#content;
    if (todo === undefined) return this.#open.length;
    if (todo.done) return this.#doneStart + indexOf(this.#done, todo.id, direction);
    return indexOf(this.#open, todo.id, direction);
  }

  /** Returns the index of a to-do, or undefined if the list does not contain it. */
  #find(id: TodoId): number | undefined {
    return [false, true]
      .map((done) => this.#indexOf({ id, done }))
      .find((index) => this.#todoAt(index)?.id === id);
  }

  /** Focuses the row of a to-do if the list contains it. */
  focusTodo(id: TodoId, control: Control): void {
    this.#release();
    const index = this.#find(id);
    if (index !== undefined) this.#focus(index, control);
  }

  /** Focuses the first row, if there is one. */
  focusFirst(): void {
    if (this.#length > 0) this.#focus(0, "checkbox");
  }

  /** Returns the places of the row under the pointer, and of all visible rows while the top of the list is not visible. */
  #positions(): readonly Position[] {
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
  #restorePlace(positions: readonly Position[]): void {
    const place = positions.find(({ row, isDone }) => row.element.isConnected && row.todo?.done === isDone);
    if (place === undefined) return;
    const { style } = this.#list;
    const shift = place.row.element.getBoundingClientRect().top - place.top;
    if (shift === 0) return;
    const exact = scrollY + shift - (Number.parseFloat(style.top) || 0);
    // Browsers round where they scroll to, and the row would drift a little each time.
    const scroll = Math.max(0, Math.round(exact));
    style.top = `${scroll - exact}px`;
    document.body.style.minHeight = `calc(100vh + ${scroll}px)`;
    scrollTo({ top: scroll, behavior: "instant" });
  }

  /** Scrolls to a to-do and highlights it. Returns false if the list does not contain it. */
  scrollToTodo(id: TodoId): boolean {
    this.#release();
    const index = this.#find(id);
    if (index === undefined) return false;
    const element = this.#ensureRendered(index);
    element?.scrollIntoView({ block: "nearest" });
    element?.classList.add("new");
    return true;
  }

  /** Divides the rows into blocks. */
  #divide(): void {
    let end = this.#length;
    const kept: Block[] = [];
    for (const [index, block] of [...this.#blocks.entries()].reverse()) {
      block.start = index === 0 ? 0 : Math.min(this.#indexOf(block.first), end);
      block.end = end;
      end = block.start;
      if (block.start < block.end) kept.unshift(block);
      else {
        this.#observer.unobserve(block.element);
        block.element.remove();
      }
    }
    if (kept.length === 0 && this.#length > 0) kept.push(this.#createBlock(0, this.#length, true));
    this.#blocks = kept.flatMap((block) => this.#split(block));
  }

  /** Splits a block that has become long. */
  #split(block: Block): readonly Block[] {
    const blocks = [block];
    const { end } = block;
    let last = block;
    while (end - block.start > 2 * BLOCK_SIZE && end - last.start > BLOCK_SIZE) {
      last.end = last.start + BLOCK_SIZE;
      // Rows that are in the document stay there.
      const isNear = last === block && block.element.childElementCount > 0;
      const next = this.#createBlock(last.end, end, isNear);
      last.element.after(next.element);
      blocks.push(next);
      last = next;
    }
    return blocks;
  }

  #createBlock(start: number, end: number, isNear: boolean): Block {
    const element = createElement("div", { role: "none" });
    this.#list.append(element);
    this.#observer.observe(element);
    return { element, first: this.#todoAt(start), start, end, isNear, height: "" };
  }

  #onScroll(entries: readonly IntersectionObserverEntry[]): void {
    for (const { target, isIntersecting, boundingClientRect } of entries) {
      const block = this.#blocks.find(({ element }) => element === target);
      if (block === undefined) continue;
      const { childElementCount } = block.element;
      if (childElementCount > 0) this.#rowHeight = boundingClientRect.height / childElementCount;
      block.isNear = isIntersecting || block.element.contains(document.activeElement);
      this.#renderBlock(block);
    }
    this.#forgetRows();
  }

  #renderBlock(block: Block): void {
    const { element, start, end } = block;
    if (!block.isNear && !this.#isPrinting) {
      // Only a block without a height contains rows.
      if (block.height === "") element.replaceChildren();
      this.#setHeight(block, `${(end - start) * this.#rowHeight}px`);
      return;
    }
    const rows = Array.from({ length: end - start }, (_, offset) => this.#updateRow(start + offset));
    const kept = new Set<Element>(rows);
    for (const child of [...element.children]) if (!kept.has(child)) child.remove();
    let present = element.firstElementChild;
    for (const row of rows) {
      // A row that moves would lose the focus, and with it a key that is held.
      const stays = row.parentElement === element && row.contains(document.activeElement);
      while (stays && present !== null && present !== row) {
        const next: Element | null = present.nextElementSibling;
        element.append(present);
        present = next;
      }
      if (present === row) present = row.nextElementSibling;
      else element.insertBefore(row, present);
    }
    this.#setHeight(block, "");
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
      setText(row.title, todo.title);
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
    const block = this.#blocks.find(({ end }) => index < end);
    if (block === undefined) return undefined;
    if (!block.isNear) {
      block.isNear = true;
      this.#renderBlock(block);
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

/** Writes a text only if it changes, so that the document does not. */
function setText(element: HTMLElement, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}
