import type { TodoId } from "../../src/sdk/client.ts";
import { type Filter, isSearching, type Selection, select } from "../model/selection.ts";
import type { State } from "../model/state.ts";
import { parseFilter, type UserChoice } from "./choice.ts";
import { quote, requireElement, setText } from "./dom.ts";
import { onKeyDown } from "./keyboard.ts";
import { formatCount, formatShortCount } from "./messages.ts";
import { VirtualList } from "./rows.ts";
import { announce } from "./toasts.ts";

/** The search field appears from this number of to-dos on. */
const MIN_SEARCHABLE = 10;
/** The URL and the announcement follow the search field this long after the last key. */
const SEARCH_DELAY_MS = 400;
/** Of many new to-dos, the page scrolls to the latest and highlights this many. */
const MAX_HIGHLIGHTED = 50;

type Counts = Selection["counts"];

const HEADINGS = { all: "All to-dos", open: "Open to-dos", done: "Done to-dos" } as const;

/** The list with its filter, search, order and counts, and what stands in place of an empty list. */
export class ListView {
  readonly #list = requireElement("#todos", HTMLElement);
  readonly #heading = requireElement("#list-heading", HTMLElement);
  readonly #placeholder = requireElement("#placeholder", HTMLElement);
  readonly #filterLinks = [...document.querySelectorAll<HTMLAnchorElement>(".filter a")];
  readonly #searchField = requireElement("#search-field", HTMLElement);
  readonly #titleInput = requireElement("#title", HTMLInputElement);
  readonly #searchInput = requireElement("#search", HTMLInputElement);
  readonly #clearAllButton = requireElement("#clear-all-done", HTMLButtonElement);
  // After a sign-out, it is outside the document.
  readonly #menu = requireElement("#menu", HTMLElement);
  readonly #orderButton = requireElement("#oldest-first", HTMLButtonElement);
  readonly #state: State;
  readonly #choice: UserChoice;
  readonly rows: VirtualList;
  #searchTimer: ReturnType<typeof setTimeout> | undefined;
  #isRenderScheduled = false;
  /** The number that the icon of the app shows. */
  #badge = 0;
  /** The last rendering showed the whole list, so what is new in the next one is a change. */
  #wasLoaded = false;

  constructor(state: State, choice: UserChoice) {
    this.#state = state;
    this.#choice = choice;
    this.rows = new VirtualList(this.#list, this.find(), {
      onFold: () => {
        choice.toggleFold();
        this.render();
      },
      onFocusLost: () => this.#titleInput.focus(),
      onRelease: () => this.#show(state.isLoaded),
    });
    for (const link of this.#filterLinks)
      link.addEventListener("click", (event) => this.#follow(link, event));
    addEventListener("popstate", () => {
      clearTimeout(this.#searchTimer);
      choice.readAddress();
      this.#searchInput.value = choice.query;
      this.render();
    });
    this.#orderButton.addEventListener("click", () => {
      choice.toggleOrder();
      this.render();
    });
    this.#searchInput.value = choice.query;
    this.#searchInput.addEventListener("input", () => this.search(this.#searchInput.value));
    this.#searchInput.addEventListener("blur", () => this.scheduleRender());
    for (const input of [this.#titleInput, this.#searchInput])
      onKeyDown(input, (event) => this.#enterOnArrow(event));
  }

  /** Returns what the page shows now. */
  find(): Selection {
    return select(this.#state.todos, this.#choice);
  }

  /** Rows have no controls that change to-dos from now on. */
  setReadOnly(): void {
    this.rows.isReadOnly = true;
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
    const { filter, query, isOldestFirst } = this.#choice;
    const selection = this.find();
    const { counts, todos, totalOpen } = selection;
    this.#wasLoaded = this.#state.isLoaded;
    const isCurrent = this.rows.render(selection, this.#state.created, isHighlighted);
    this.#list.ariaBusy = String(!this.#state.isLoaded);
    this.#heading.textContent = HEADINGS[filter];
    if (totalOpen !== this.#badge) setBadge(totalOpen);
    this.#badge = totalOpen;
    document.title = totalOpen > 0 ? `${formatCount(totalOpen)} open · To-dos` : "To-dos";
    this.#renderActions(filter, counts);
    this.#orderButton.ariaPressed = String(isOldestFirst);
    const isInSearch = query !== "" || document.activeElement === this.#searchInput;
    this.#searchField.hidden = todos.length < MIN_SEARCHABLE && !isInSearch;
    if (!isCurrent) return;
    this.#renderFilter(filter, counts);
    this.#renderPlaceholder(counts[filter], todos.length > 0 && totalOpen === 0);
  }

  #renderPlaceholder(shown: number, isAllDone: boolean): void {
    const { filter, query } = this.#choice;
    if (!this.#state.isLoaded && shown === 0) return;
    const saysAllDone = this.#state.isLoaded && isAllDone && filter !== "done" && query === "";
    this.#placeholder.classList.toggle("all-done", saysAllDone);
    this.#clearAllButton.hidden = !saysAllDone || this.rows.isReadOnly;
    const firstStep = this.rows.isReadOnly ? "" : " Add your first to-do above.";
    const nothing = filter === "done" ? "No to-dos are done yet." : `Nothing here yet.${firstStep}`;
    if (saysAllDone) this.#placeholder.textContent = "All done.";
    else if (shown > 0) this.#placeholder.textContent = "";
    else if (query !== "") this.#placeholder.replaceChildren("No matches for ", quote(query), ".");
    else this.#placeholder.textContent = nothing;
  }

  /** Says why no list is shown. */
  showFailure(message: string): void {
    this.#placeholder.textContent = `The list cannot be loaded. ${message}`;
  }

  #renderFilter(filter: Filter, counts: Counts): void {
    for (const link of this.#filterLinks) {
      const show = parseFilter(link.dataset.show);
      link.href = this.#choice.toUrl(show);
      link.ariaCurrent = show === filter ? "page" : null;
      const count = requireElement(".count", HTMLElement, link);
      setText(count, this.#state.isLoaded ? formatShortCount(counts[show]) : "");
    }
  }

  #renderActions(filter: Filter, { open, done, [filter]: shown }: Counts): void {
    const isReady = this.#state.isLoaded && !this.rows.isReadOnly;
    const isSome = isSearching(this.#choice);
    const offer = (selector: string, isOffered: boolean, label?: string): void => {
      const button = requireElement(selector, HTMLButtonElement, this.#menu);
      button.hidden = !isOffered;
      if (label !== undefined) setText(button, label);
    };
    const canMark = isReady && open > 0 && filter !== "done";
    const canReopen = isReady && done > 0 && (filter === "done" || open === 0);
    offer("#mark-all", canMark, isSome ? `Mark ${formatCount(open)} done` : "Mark all done");
    offer("#reopen-all", canReopen, isSome ? `Reopen ${formatCount(done)}` : "Reopen all");
    offer("#clear-done", isReady && done > 0 && filter !== "open", `Clear ${formatCount(done)} done`);
    offer("#copy-list", shown > 0);
    offer("#oldest-first", shown > 1);
    setText(this.#clearAllButton, `Clear ${formatCount(done)} completed`);
  }

  #follow(link: HTMLAnchorElement, event: MouseEvent): void {
    if (event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    clearTimeout(this.#searchTimer);
    if (link.href !== location.href) history.pushState(undefined, "", link.href);
    scrollTo({ top: 0 });
    this.render();
    announce(`${this.#heading.textContent}: ${formatCount(this.find().counts[this.#choice.filter])}`);
  }

  search(text: string): void {
    this.#choice.query = text;
    this.#searchInput.value = text;
    this.render();
    clearTimeout(this.#searchTimer);
    this.#searchTimer = setTimeout(() => {
      history.replaceState(undefined, "", this.#choice.toUrl());
      const count = this.find().counts[this.#choice.filter];
      if (!isSearching(this.#choice)) announce("Search cleared.");
      else announce(count === 1 ? "1 match." : `${formatCount(count)} matches.`);
    }, SEARCH_DELAY_MS);
  }

  focusSearch(): void {
    this.#searchField.hidden = false;
    this.#searchInput.select();
  }

  clearSearch(): void {
    if (this.#choice.query !== "") this.search("");
  }

  /** Moves the focus from a field to the first row if the key is the arrow down. */
  #enterOnArrow(event: KeyboardEvent): void {
    if (event.key !== "ArrowDown" || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    this.rows.focusFirst();
  }

  /** Scrolls to new to-dos and highlights them. */
  showAdded(ids: readonly TodoId[]): void {
    this.render();
    for (const id of ids.slice(-MAX_HIGHLIGHTED)) this.rows.scrollToTodo(id);
  }
}

/** Shows a number on the icon of the installed app. */
async function setBadge(count: number): Promise<void> {
  try {
    await navigator.setAppBadge?.(count);
  } catch (error) {
    // The user or the system may forbid a badge. The page works without it.
    if (!(error instanceof DOMException)) throw error;
  }
}
