import type { Todo, TodoId } from "../../src/sdk/client.ts";
import { compareIds, findTodo } from "../../src/sdk/json.ts";
import { findRow, indexOfRow, type Selection } from "../model/selection.ts";
import { createElement, setChildren, setText } from "./dom.ts";
import { onKeyDown } from "./keyboard.ts";
import { formatCount } from "./messages.ts";
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

export type Control = "checkbox" | "button";

/** Where the focus is. Without a to-do, it is on the fold. */
interface Focused {
  readonly todo: Todo | undefined;
  readonly control: Control;
}

/** Where a row is in the window. */
interface Place {
  readonly element: Element;
  readonly isDone: boolean | undefined;
  readonly top: number;
}

export interface VirtualListOptions {
  readonly onFold: () => void;
  /** The focused row was removed, and no other row is left. */
  readonly onFocusLost: () => void;
  /** Rows may move again: render the present content. */
  readonly onRelease: () => void;
}

/** Renders a list of any length into an element with the role `list`. */
export class VirtualList {
  readonly #list: HTMLElement;
  readonly #options: VirtualListOptions;
  /** The user changes a to-do. `control` had the focus. */
  onChange = (_kind: "done" | "open" | "deleted", _todo: Todo, _control: Control): void => {};
  #selection: Selection;
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
  constructor(list: HTMLElement, selection: Selection, options: VirtualListOptions) {
    this.#list = list;
    this.#selection = selection;
    this.#options = options;
    this.#foldButton.addEventListener("click", options.onFold);
    list.addEventListener("change", ({ target }) => {
      const row = this.#findRow(target);
      if (row?.todo === undefined) return;
      const { checked } = row.checkbox;
      this.#holdRows();
      row.element.classList.toggle("done", checked);
      if (checked) navigator.vibrate?.(VIBRATION_MS);
      this.onChange(checked ? "done" : "open", row.todo, "checkbox");
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
    this.onChange("deleted", row.todo, control);
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
   * Renders rows. The focus stays, or moves to the next row if its own leaves its part of the list. Returns false if rows only
   * show which to-dos are done, because they must not move yet.
   * @param created the to-dos that the service has created, by the ids under which they were shown before
   * @param isHighlighted someone else may have made the changes, so they are highlighted
   */
  render(selection: Selection, created: ReadonlyMap<TodoId, Todo>, isHighlighted: boolean): boolean {
    this.#rename(created);
    const before = this.#selection;
    const isSameView = selection.view === before.view;
    if (isSameView && this.#mark(selection, isHighlighted) && this.#hold === undefined) this.#holdRows();
    if (isSameView && this.#hold !== undefined) return false;
    clearTimeout(this.#hold);
    this.#hold = undefined;
    const moving = isSameView ? this.#measure() : [];
    for (const motion of this.#motions) motion.cancel();
    const anchors = this.#findAnchors();
    const focused = this.#focused();
    const [first, start] = [before.rows[this.#start], isSameView ? this.#start : 0];
    this.#selection = selection;
    setText(this.#foldButton, `Completed (${formatCount(selection.done.length)})`);
    this.#foldButton.ariaExpanded = String(selection.isExpanded);
    const newStart = start === 0 ? 0 : indexOfRow(selection, first);
    this.#aboveHeight += (newStart - start) * this.#rowHeight;
    this.#renderRows(newStart, newStart + this.#end - this.#start);
    this.#fit();
    this.#restorePlace(anchors);
    this.#fit();
    const newest = before.todos.at(-1)?.id ?? "";
    if (isHighlighted)
      for (const [id, { element }] of this.#rows)
        if (compareIds(id, newest) > 0) element.classList.add("new");
    if (focused !== undefined) this.#focus(indexOfRow(selection, focused.todo), focused.control);
    this.#move(moving);
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
    this.#options.onRelease();
  }

  /** Shows in each row, without moving it, whether its to-do is done. Returns whether a row looks different. */
  #mark({ todos }: Selection, isHighlighted: boolean): boolean {
    let isMarked = false;
    for (const [id, { checkbox, element }] of this.#rows) {
      const done = findTodo(todos, id)?.done ?? checkbox.checked;
      if (done === checkbox.checked) continue;
      isMarked = true;
      checkbox.checked = done;
      element.classList.toggle("done", done);
      element.classList.toggle("new", isHighlighted);
    }
    return isMarked;
  }

  /** Returns where the rows and the fold are, from top to bottom. */
  #measure(): readonly Place[] {
    return [...this.#list.children].slice(1, -1).map((element) => ({
      ...{ element, isDone: this.#findRow(element)?.todo?.done },
      top: element.getBoundingClientRect().top,
    }));
  }

  /** Lets rows move from where they were to their places, unless the user wants no motion. */
  #move(places: readonly Place[]): void {
    if (!matchMedia("(prefers-reduced-motion: no-preference)").matches) return;
    this.#motions = places.flatMap(({ element, top: before }) => {
      const { top } = element.getBoundingClientRect();
      const isInWindow = Math.min(top, before) < innerHeight && Math.max(top, before) > -innerHeight;
      if (!element.isConnected || top === before || !isInWindow) return [];
      const frames = [{ translate: `0 ${before - top}px` }, { translate: "0 0" }];
      return [element.animate(frames, { id: "move", duration: MOVE_MS, easing: "ease-out" })];
    });
  }

  get #length(): number {
    return this.#selection.rows.length;
  }

  /** Focuses the row of a to-do if the list contains it. */
  focusTodo(id: TodoId, control: Control): void {
    this.#release();
    const index = findRow(this.#selection, id);
    if (index !== undefined) this.#focus(index, control);
  }

  /** Focuses the first row, if there is one. */
  focusFirst(): void {
    if (this.#length > 0) this.#focus(0, "checkbox");
  }

  /** Returns the visible rows that should stay: the one under the pointer, and all if the top of the list is not visible. */
  #findAnchors(): readonly Place[] {
    const isScrolled = this.#list.getBoundingClientRect().top < 0;
    const visible = this.#measure().filter(({ top }) => top >= 0 && top < innerHeight);
    const pointed = visible.filter(({ element }) => element === this.#pointed);
    return isScrolled ? [...pointed, ...visible] : pointed;
  }

  /**
   * Keeps the first row that stays in its part of the list at its place. The page scrolls, and is extended above or below the
   * list if necessary. Browsers scroll so only for elements that stay in the document.
   */
  #restorePlace(anchors: readonly Place[]): void {
    const place = anchors.find(
      ({ element, isDone }) => element.isConnected && this.#findRow(element)?.todo?.done === isDone,
    );
    const shift = place === undefined ? 0 : place.element.getBoundingClientRect().top - place.top;
    if (shift === 0) return;
    const { style } = this.#list;
    const exact = scrollY + shift - (Number.parseFloat(style.top) || 0);
    // Browsers round where they scroll to, and the row would drift a little each time.
    const scroll = Math.max(0, Math.round(exact));
    style.top = `${scroll - exact}px`;
    document.body.style.minHeight = `calc(100vh + ${scroll}px)`;
    scrollTo({ top: scroll, behavior: "instant" });
  }

  /** Scrolls to a to-do and highlights it if the list contains it. */
  scrollToTodo(id: TodoId): void {
    this.#release();
    const index = findRow(this.#selection, id);
    const element = index === undefined ? undefined : this.#ensureRendered(index);
    element?.scrollIntoView({ block: "nearest" });
    element?.classList.add("new");
  }

  /** Renders the rows near the window, and stands in for the others. Each pass measures what the one before has rendered. */
  #fit(): void {
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

  /**
   * Returns the rows that the document should contain: all for a print. Otherwise, those that it has stay as long as they reach far
   * enough, and not too far.
   * @param top where those that it contains begin, in the window
   */
  #selectWindow(top: number, bottom: number): readonly [start: number, end: number] {
    if (this.#isPrinting) return [0, this.#length];
    /** Returns how many rows are too many outside of the window, on one side. */
    const toExcess = (pixels: number): number =>
      pixels >= MARGIN_PX && pixels <= 2 * MARGIN_PX
        ? 0
        : Math.ceil((pixels - 1.5 * MARGIN_PX) / this.#rowHeight);
    const lastStart = Math.max(0, this.#length - Math.ceil(innerHeight / this.#rowHeight));
    const start = Math.min(Math.max(this.#start + toExcess(-top), 0), lastStart);
    const end = this.#end - toExcess(bottom - innerHeight);
    return [start, Math.min(Math.max(end, start), this.#length)];
  }

  #renderRows(start: number, end: number): void {
    this.#end = Math.min(end, this.#length);
    this.#start = Math.min(start, this.#end);
    const rows = Array.from({ length: this.#end - this.#start }, (_, offset) =>
      this.#updateRow(this.#start + offset),
    );
    setChildren(this.#list, this.#length === 0 ? [] : [this.#above, ...rows, this.#below]);
    for (const [id, { element }] of this.#rows) if (!element.isConnected) this.#rows.delete(id);
    this.#setHeights();
  }

  #setHeights(): void {
    this.#aboveHeight = this.#start === 0 ? 0 : Math.max(0, this.#aboveHeight);
    this.#above.style.height = `${this.#aboveHeight}px`;
    this.#below.style.height = `${(this.#length - this.#end) * this.#rowHeight}px`;
  }

  /** Creates or updates the row at an index. Returns its element. */
  #updateRow(index: number): HTMLElement {
    const todo = this.#selection.rows[index];
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

  /** Focuses the row at an index, or the first or the last row if the index is outside of the list. */
  #focus(index: number, control: Control): void {
    const element = this.#ensureRendered(Math.max(0, Math.min(index, this.#length - 1)));
    const target = this.#findRow(element ?? null)?.[control] ?? this.#foldButton;
    if (element === undefined) this.#options.onFocusLost();
    else if (target !== document.activeElement) target.focus();
  }

  #moveFocus({ todo, control }: Focused, step: number): void {
    this.#focus(indexOfRow(this.#selection, todo) + step, control);
  }
}
