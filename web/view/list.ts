import type { Todo, TodoId } from "../../src/sdk/client.ts";
import { createMatcher } from "../../src/search.ts";
import type { State } from "../model/state.ts";
import { readSetting, writeSetting } from "../settings.ts";
import { quote, requireElement } from "./dom.ts";
import { onKeyDown } from "./keyboard.ts";
import { formatCount, formatShortCount } from "./messages.ts";
import { type Control, VirtualList } from "./rows.ts";
import { announce } from "./toasts.ts";

/** The search field appears from this number of to-dos on. */
const MIN_SEARCHABLE = 10;
/** The URL and the announcement follow the search field this long after the last key. */
const SEARCH_DELAY_MS = 400;
/** Of many new to-dos, the page scrolls to the latest and highlights this many. */
const MAX_HIGHLIGHTED = 50;

const HEADINGS = { all: "All to-dos", open: "Open to-dos", done: "Done to-dos" } as const;

const listElement = requireElement("#todos", HTMLElement);
const heading = requireElement("#list-heading", HTMLElement);
const placeholder = requireElement("#placeholder", HTMLElement);
const filterLinks = [...document.querySelectorAll<HTMLAnchorElement>(".filter a")];
const searchField = requireElement("#search-field", HTMLElement);
const searchInput = requireElement("#search", HTMLInputElement);
const markAllButton = requireElement("#mark-all", HTMLButtonElement);
const reopenAllButton = requireElement("#reopen-all", HTMLButtonElement);
const clearDoneButton = requireElement("#clear-done", HTMLButtonElement);
const clearAllButton = requireElement("#clear-all-done", HTMLButtonElement);
const copyButton = requireElement("#copy-list", HTMLButtonElement);
const oldestFirstButton = requireElement("#oldest-first", HTMLButtonElement);

export type Filter = keyof typeof HEADINGS;
type Counts = Readonly<Record<Filter, number>>;

const parseFilter = (show: string | null | undefined): Filter =>
  show === "open" || show === "done" ? show : "all";

const isOldestFirst = (): boolean => oldestFirstButton.ariaPressed === "true";

/** Returns items by ascending id in the order of the page. */
export const inOrder = <T>(items: readonly T[]): readonly T[] =>
  isOldestFirst() ? items : items.toReversed();

export interface ListViewOptions {
  readonly state: State;
  readonly onToggle: (todo: Todo, done: boolean) => void;
  /** `control` had the focus. */
  readonly onDelete: (todo: Todo, control: Control) => void;
  /** The focused row was removed, and no other row is left. */
  readonly onFocusLost: () => void;
}

/** The list with its filter, search, order and counts, and what stands in place of an empty list. */
export class ListView {
  readonly #state: State;
  readonly #rows: VirtualList;
  /** What the user searches for. The URL follows with a delay. */
  #query = "";
  #searchTimer: ReturnType<typeof setTimeout> | undefined;
  #isFolded = readSetting("completed") !== "shown";
  #isRenderScheduled = false;
  /** The number that the icon of the app shows. */
  #badge = 0;
  /** The last rendering showed the whole list, so what is new in the next one is a change. */
  #wasLoaded = false;

  constructor({ state, onToggle, onDelete, onFocusLost }: ListViewOptions) {
    this.#state = state;
    this.#rows = new VirtualList(listElement, {
      onToggle,
      onDelete,
      onFocusLost,
      onFold: () => this.#fold(),
      onRelease: () => this.#show(this.#state.isLoaded),
    });
    for (const link of filterLinks) link.addEventListener("click", (event) => this.#follow(link, event));
    addEventListener("popstate", () => {
      clearTimeout(this.#searchTimer);
      this.#readAddress();
      this.render();
    });
    oldestFirstButton.ariaPressed = String(readSetting("order") === "oldest");
    oldestFirstButton.addEventListener("click", () => {
      oldestFirstButton.ariaPressed = String(!isOldestFirst());
      writeSetting("order", isOldestFirst() ? "oldest" : undefined);
      this.render();
    });
    searchInput.addEventListener("input", () => this.search(searchInput.value));
    searchInput.addEventListener("blur", () => this.scheduleRender());
    onKeyDown(searchInput, (event) => this.enterOnArrow(event));
    this.#readAddress();
  }

  /** What is shown: all to-dos, the open ones or the done ones. */
  get filter(): Filter {
    return parseFilter(new URLSearchParams(location.search).get("show"));
  }

  get isSearching(): boolean {
    return this.#query.trim() !== "";
  }

  /** Returns the to-dos that match the search, in the order of the page, and their numbers by filter. */
  find() {
    const { open, done, ...totals } = this.#state.view(createMatcher(this.#query));
    const counts = { all: open.length + done.length, open: open.length, done: done.length };
    return { ...totals, counts, open: inOrder(open), done: inOrder(done) };
  }

  /** Rows have no controls that change to-dos from now on. */
  setReadOnly(): void {
    this.#rows.isReadOnly = true;
    this.render();
  }

  /** Renders once before the next frame. Hidden windows have no frames, but their title must change. */
  scheduleRender(): void {
    if (this.#isRenderScheduled) return;
    this.#isRenderScheduled = true;
    const run = (): void => {
      this.#isRenderScheduled = false;
      this.#show(this.#wasLoaded);
    };
    if (document.hidden) setTimeout(run);
    else requestAnimationFrame(run);
  }

  /** Renders what the user did. */
  render(): void {
    this.#show(false);
  }

  /** @param isHighlighted changes stand out, because someone else may have made them */
  #show(isHighlighted: boolean): void {
    const { filter } = this;
    const { open, done, counts, total, totalOpen } = this.find();
    const hasFold = filter === "all" && !this.isSearching && counts.done > 0;
    const label = `Completed (${formatCount(counts.done)})`;
    this.#wasLoaded = this.#state.isLoaded;
    const isCurrent = this.#rows.render(
      {
        view: JSON.stringify([filter, this.#query, this.#isFolded, isOldestFirst()]),
        direction: isOldestFirst() ? 1 : -1,
        open,
        done,
        shows: { open: filter !== "done", done: filter !== "open" && !(hasFold && this.#isFolded) },
        ...(hasFold && { fold: { label, isExpanded: !this.#isFolded } }),
        isHighlighted,
      },
      this.#state.created,
    );
    listElement.ariaBusy = String(!this.#state.isLoaded);
    heading.textContent = HEADINGS[filter];
    if (totalOpen !== this.#badge) setBadge(totalOpen);
    this.#badge = totalOpen;
    document.title = totalOpen > 0 ? `${formatCount(totalOpen)} open · To-dos` : "To-dos";
    this.#renderActions(filter, counts);
    const isInSearch = this.#query !== "" || document.activeElement === searchInput;
    searchField.hidden = total < MIN_SEARCHABLE && !isInSearch;
    if (!isCurrent) return;
    this.#renderFilter(filter, counts);
    this.#renderPlaceholder(counts[filter], total > 0 && totalOpen === 0);
  }

  #renderPlaceholder(shown: number, isAllDone: boolean): void {
    if (!this.#state.isLoaded) {
      if (shown > 0) placeholder.textContent = "";
      return;
    }
    const saysAllDone = isAllDone && this.filter !== "done" && this.#query === "";
    placeholder.classList.toggle("all-done", saysAllDone);
    clearAllButton.hidden = !saysAllDone || this.#rows.isReadOnly;
    if (saysAllDone) placeholder.textContent = "All done.";
    else if (shown > 0) placeholder.textContent = "";
    else if (this.#query !== "") placeholder.replaceChildren("No matches for ", quote(this.#query), ".");
    else if (this.filter === "done") placeholder.textContent = "No to-dos are done yet.";
    else
      placeholder.textContent = `Nothing here yet.${this.#rows.isReadOnly ? "" : " Add your first to-do above."}`;
  }

  /** Says why no list is shown. */
  showFailure(message: string): void {
    placeholder.textContent = `The list cannot be loaded. ${message}`;
  }

  #renderFilter(filter: Filter, counts: Counts): void {
    for (const link of filterLinks) {
      const show = parseFilter(link.dataset.show);
      link.href = this.#formatUrl(show);
      if (show === filter) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
      const countElement = link.querySelector(".count");
      if (countElement !== null)
        countElement.textContent = this.#state.isLoaded ? formatShortCount(counts[show]) : "";
    }
  }

  #renderActions(filter: Filter, { open, done, [filter]: shown }: Counts): void {
    const isReady = this.#state.isLoaded && !this.#rows.isReadOnly;
    markAllButton.textContent = this.isSearching ? `Mark ${formatCount(open)} done` : "Mark all done";
    reopenAllButton.textContent = this.isSearching ? `Reopen ${formatCount(done)}` : "Reopen all";
    clearAllButton.textContent = `Clear ${formatCount(done)} completed`;
    clearDoneButton.textContent = `Clear ${formatCount(done)} done`;
    markAllButton.hidden = !isReady || open === 0 || filter === "done";
    reopenAllButton.hidden = !isReady || done === 0 || (filter !== "done" && open > 0);
    clearDoneButton.hidden = !isReady || done === 0 || filter === "open";
    copyButton.hidden = shown === 0;
    oldestFirstButton.hidden = shown < 2;
  }

  #fold(): void {
    this.#isFolded = !this.#isFolded;
    writeSetting("completed", this.#isFolded ? undefined : "shown");
    this.render();
  }

  #follow(link: HTMLAnchorElement, event: MouseEvent): void {
    if (event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    clearTimeout(this.#searchTimer);
    if (link.href !== location.href) history.pushState(undefined, "", link.href);
    scrollTo({ top: 0 });
    this.render();
    announce(`${heading.textContent}: ${formatCount(this.find().counts[this.filter])}`);
  }

  #readAddress(): void {
    this.#query = new URLSearchParams(location.search).get("q") ?? "";
    searchInput.value = this.#query;
  }

  #formatUrl(filter: Filter): string {
    const search = new URLSearchParams();
    if (filter !== "all") search.set("show", filter);
    if (this.isSearching) search.set("q", this.#query);
    return search.size === 0 ? "/" : `/?${search}`;
  }

  search(text: string): void {
    this.#query = text;
    searchInput.value = text;
    this.render();
    clearTimeout(this.#searchTimer);
    this.#searchTimer = setTimeout(() => {
      history.replaceState(undefined, "", this.#formatUrl(this.filter));
      const count = this.find().counts[this.filter];
      if (!this.isSearching) announce("Search cleared.");
      else announce(count === 1 ? "1 match." : `${formatCount(count)} matches.`);
    }, SEARCH_DELAY_MS);
  }

  focusSearch(): void {
    searchField.hidden = false;
    searchInput.select();
  }

  clearSearch(): void {
    if (this.#query !== "") this.search("");
  }

  /** Moves the focus from a field to the first row if the key is the arrow down. */
  enterOnArrow(event: KeyboardEvent): void {
    if (event.key !== "ArrowDown" || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    this.#rows.focusFirst();
  }

  focusTodo(id: TodoId, control: Control): void {
    this.#rows.focusTodo(id, control);
  }

  /** Scrolls to new to-dos and highlights them. Returns whether the current view contains one of the latest. */
  showAdded(ids: readonly TodoId[]): boolean {
    this.render();
    return ids
      .slice(-MAX_HIGHLIGHTED)
      .map((id) => this.#rows.scrollToTodo(id))
      .some((isInList) => isInList);
  }
}

/** Shows a number on the icon of the installed app. */
async function setBadge(count: number): Promise<void> {
  if (!("setAppBadge" in navigator)) return;
  try {
    await navigator.setAppBadge(count);
  } catch (error) {
    // The user or the system may forbid a badge. The page works without it.
    if (!(error instanceof DOMException)) throw error;
  }
}
