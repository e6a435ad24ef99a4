import type { Todo, TodoId } from "../../src/sdk/client.ts";
import { compareIds, indexOf } from "../../src/sdk/json.ts";
import { createElement } from "./dom.ts";
import { onKeyDown } from "./keyboard.ts";
import { installSwipe } from "./swipe.ts";

/** Rows are in the document this far above and below the window. */
const MARGIN_PX = 1000;
/** A ticked row stays this long after the last tap, so that no row moves while the user ticks several. */
const HOLD_MS = 600;
/** The time in which rows take their new places. */
const MOVE_MS = 200;
const VIBRATION_MS = 10;

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
  /** Stand in for the rows above and below those in the document. */
  readonly #above = createElement("div", { role: "none" });
  readonly #below = createElement("div", { role: "none" });
  /** The document contains the rows from the first to before the second index. */
  #start = 0;
  #end = 0;
  /** The height of `#above` in pixels. */
  #aboveHeight = 0;
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
        this.#fit();
      });
    for (const type of ["scroll", "resize"]) addEventListener(type, () => this.#fit(), { passive: true });
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
    const [first, start] = [this.#todoAt(this.#start), isSameView ? this.#start : 0];
    this.#content = content;
    setText(this.#foldButton, content.fold?.label ?? "");
    this.#foldButton.ariaExpanded = String(content.fold?.isExpanded);
    const newStart = start === 0 ? 0 : this.#indexOf(first);
    this.#aboveHeight = newStart === 0 ? 0 : this.#aboveHeight + (newStart - start) * this.#rowHeight;
    this.#renderRows(newStart, newStart + this.#end - this.#start);
    this.#fit();
    this.#restorePlace(positions);
    this.#fit();
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

  /** Renders the rows near the window, and stands in for the others. Each pass measures what the one before has rendered. */
  #fit(): void {
    if (this.#isPrinting) {
      this.#aboveHeight = 0;
      this.#renderRows(0, this.#length);
      return;
    }
    for (let passes = 0; passes < 5 && this.#length > 0; passes++) {
      const top = this.#above.getBoundingClientRect().bottom;
      const bottom = this.#below.getBoundingClientRect().top;
      if (bottom > top) this.#rowHeight = (bottom - top) / (this.#end - this.#start);
      const [start, end] = this.#selectWindow(top, bottom);
      if (start === this.#start && end === this.#end) return;
      const isJump = start >= this.#end || end <= this.#start;
      const stays = this.#list.children[1 + Math.max(0, start - this.#start)];
      const before = stays?.getBoundingClientRect().top ?? top;
      if (isJump) this.#aboveHeight += (start - this.#start) * this.#rowHeight;
      else if (start > this.#start) this.#aboveHeight += before - top;
      this.#renderRows(start, end);
      if (isJump || stays === undefined) continue;
      // The rows that were there before stay where they are, so far as the list has room above.
      this.#aboveHeight -= stays.getBoundingClientRect().top - before;
      this.#setHeights();
    }
  }

  /** Returns the rows that the document should contain. @param top where those that it contains begin, in the window */
  #selectWindow(top: number, bottom: number): readonly [start: number, end: number] {
    const toRows = (pixels: number): number => Math.ceil(pixels / this.#rowHeight);
    const clamp = (index: number): number => Math.min(Math.max(index, 0), this.#length);
    let [start, end] = [this.#start, this.#end];
    if (bottom < 0 || top > innerHeight) {
      start = Math.min(
        clamp(start - toRows(top + MARGIN_PX)),
        Math.max(0, this.#length - toRows(innerHeight)),
      );
      return [start, clamp(start + toRows(innerHeight + 2 * MARGIN_PX))];
    }
    if (top > -MARGIN_PX) start -= toRows(top + MARGIN_PX);
    else if (top < -2 * MARGIN_PX) start += toRows(-top - 1.5 * MARGIN_PX);
    const rest = bottom - innerHeight;
    if (rest < MARGIN_PX) end += toRows(MARGIN_PX - rest);
    else if (rest > 2 * MARGIN_PX) end -= toRows(rest - 1.5 * MARGIN_PX);
    return [clamp(start), Math.max(clamp(end), clamp(start))];
  }

  #renderRows(start: number, end: number): void {
    this.#end = Math.min(end, this.#length);
    this.#start = Math.min(start, this.#end);
    const list = this.#list;
    const rows = Array.from({ length: this.#end - this.#start }, (_, offset) =>
      this.#updateRow(this.#start + offset),
    );
    const kept = new Set<Element>(this.#length > 0 ? [this.#above, ...rows, this.#below] : []);
    for (const child of [...list.children]) if (!kept.has(child)) child.remove();
    for (const [id, { element }] of this.#rows) if (!kept.has(element)) this.#rows.delete(id);
    if (this.#length === 0) return;
    if (!this.#above.isConnected) list.append(this.#above, this.#below);
    let present = this.#above.nextElementSibling;
    for (const row of rows) {
      // A row that moves would lose the focus, and with it a key that is held.
      const stays = row.parentElement === list && row.contains(document.activeElement);
      while (stays && present !== null && present !== row) {
        const next: Element | null = present.nextElementSibling;
        list.insertBefore(present, this.#below);
        present = next;
      }
      if (present === row) present = row.nextElementSibling;
      else list.insertBefore(row, present);
    }
    this.#setHeights();
  }

  #setHeights(): void {
    this.#aboveHeight = this.#start === 0 ? 0 : Math.max(0, this.#aboveHeight);
    this.#above.style.height = `${this.#aboveHeight}px`;
    this.#below.style.height = `${(this.#length - this.#end) * this.#rowHeight}px`;
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

  /** Returns the row at an index, and adds it to the document if necessary. Without rows, returns undefined. */
  #ensureRendered(index: number): HTMLElement | undefined {
    if (this.#length === 0) return undefined;
    if (index < this.#start || index >= this.#end) {
      const around = Math.ceil(innerHeight / this.#rowHeight);
      const start = Math.max(0, index - around);
      this.#aboveHeight = start * this.#rowHeight;
      this.#renderRows(start, index + around);
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
