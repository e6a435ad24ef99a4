import { type Todo, TodoApiCore } from "../src/sdk/client.ts";
import { createMatcher, prepareSearch } from "../src/search.ts";
import { copyText } from "./clipboard.ts";
import { ignoreAccidentalClicks, requireElement, showFieldError } from "./dom.ts";
import { announce, quote, showStatus, showToast } from "./notifications.ts";
import { type LastList, OfflineCopy, readLastList } from "./offline.ts";
import { toMarkdown } from "./paste.ts";
import { PasteDialog } from "./paste-dialog.ts";
import { readSetting, writeSetting } from "./settings.ts";
import { installShortcuts } from "./shortcuts.ts";
import { type Filter, type PendingChange, State } from "./state.ts";
import { describeAddError, randomKey } from "./submission.ts";
import { synchronize } from "./synchronize.ts";
import { formatCount, UndoableChanges } from "./undoable-changes.ts";
import { VirtualList } from "./virtual-list.ts";

/** Delay before the page reports a lost connection, so that short interruptions stay silent. */
const DISCONNECT_NOTICE_DELAY_MS = 800;
/** Without any answer after this time, the page shows the last list that the browser kept. */
const LAST_LIST_DELAY_MS = 2000;
/** Shortest interval between two announcements of changes made elsewhere. */
const ANNOUNCE_INTERVAL_MS = 3000;
/** The search field appears from this number of to-dos on. */
const MIN_SEARCHABLE = 10;
/** The URL and the announcement follow the search field this long after the last key. */
const SEARCH_DELAY_MS = 400;
/** Of many new to-dos, the page scrolls to the latest and highlights this many. */
const MAX_HIGHLIGHTED = 50;

const form = requireElement("#new-todo", HTMLFormElement);
const titleInput = requireElement("#title", HTMLInputElement);
const addButton = requireElement("#new-todo button", HTMLButtonElement);
const listElement = requireElement("#todos", HTMLElement);
const heading = requireElement("#list-heading", HTMLElement);
const placeholder = requireElement("#placeholder", HTMLElement);
const notice = requireElement("#notice", HTMLElement);
const filterLinks = [...document.querySelectorAll<HTMLAnchorElement>(".filter a")];
const searchField = requireElement("#search-field", HTMLElement);
const searchInput = requireElement("#search", HTMLInputElement);
const markAllButton = requireElement("#mark-all", HTMLButtonElement);
const reopenAllButton = requireElement("#reopen-all", HTMLButtonElement);
const clearDoneButton = requireElement("#clear-done", HTMLButtonElement);
const copyButton = requireElement("#copy-list", HTMLButtonElement);
const newestFirstButton = requireElement("#newest-first", HTMLButtonElement);

/** Browsers finish these requests after the page has closed. Their bodies are small enough for that (64 KiB). */
const sendRequest = (url: string, init: RequestInit): Promise<Response> =>
  fetch(url, { ...init, keepalive: init.method === "DELETE" || init.method === "PATCH" });

const state = new State(new TodoApiCore({ fetch: sendRequest }), scheduleRender);
const changes = new UndoableChanges(state, render);
const list = new VirtualList(listElement, {
  onToggle: (todo, done) => toggle(todo, done ? "done" : "open"),
  onDelete: (todo, control) =>
    changes.start({
      todos: [todo],
      change: "deleted",
      message: ["Deleted ", quote(todo.title)],
      restoreFocus: () => list.focusTodo(todo.id, control),
    }),
  onFocusLost: () => titleInput.focus(),
  onReadOnly: () => announce(READ_ONLY),
});
/** What the browser keeps of this page. In private mode, browsers keep nothing. */
const isOfflineAllowed = document.documentElement.hasAttribute("data-offline");
const offlineCopy = new OfflineCopy(() => state.confirmed);
/** The last list, while it is shown because the service has not answered yet. It is read-only. */
let lastList: LastList | undefined;
const READ_ONLY = "The list cannot be changed until the service can be reached.";

const HEADINGS = { all: "All to-dos", open: "Open to-dos", done: "Done to-dos" } as const;
const EMPTY_MESSAGES = {
  all: "Nothing here yet. Add your first to-do above.",
  open: "Nothing here yet. Add your first to-do above.",
  done: "No to-dos are done yet.",
} as const;

// Rendering

/** What the user searches for. The URL follows with a delay. */
let query = "";

const isNewestFirst = (): boolean => newestFirstButton.ariaPressed === "true";

/** Safari before version 16 has no `toReversed`. */
const inOrder = (todos: readonly Todo[]): readonly Todo[] => (isNewestFirst() ? [...todos].reverse() : todos);

function currentFilter(): Filter {
  const show = new URLSearchParams(location.search).get("show");
  return show === "open" || show === "done" ? show : "all";
}

function formatFilterUrl(filter: Filter): string {
  const search = new URLSearchParams();
  if (filter !== "all") search.set("show", filter);
  if (query.trim() !== "") search.set("q", query);
  return search.size === 0 ? "/" : `/?${search}`;
}

let isRenderScheduled = false;

/** Renders once before the next frame. Hidden windows have no frames, but their title must change. */
function scheduleRender(): void {
  if (isRenderScheduled) return;
  isRenderScheduled = true;
  const run = (): void => {
    isRenderScheduled = false;
    render();
  };
  if (document.hidden) setTimeout(run);
  else requestAnimationFrame(run);
}

function render(): void {
  const filter = currentFilter();
  const { todos, open, done, total, totalOpen } = state.view(filter, createMatcher(query));
  const isLoaded = hasList();
  renderReadOnly();
  list.render(inOrder(todos));
  listElement.ariaBusy = String(!isLoaded);
  heading.textContent = HEADINGS[filter];
  document.title = totalOpen > 0 ? `${formatCount(totalOpen)} open · To-dos` : "To-dos";
  renderFilter(filter, { all: open + done, open, done });
  renderActions(filter, { open, done, shown: todos.length });
  const isSearching = query !== "" || document.activeElement === searchInput;
  searchField.hidden = total < MIN_SEARCHABLE && !isSearching;
  if (isLoaded) {
    const isAllDone = filter !== "done" && totalOpen === 0 && total > 0 && query === "";
    placeholder.classList.toggle("all-done", isAllDone);
    if (isAllDone) placeholder.textContent = "All done.";
    else if (todos.length > 0) placeholder.textContent = "";
    else if (query !== "") placeholder.replaceChildren("No matches for ", quote(query), ".");
    else if (lastList?.total === 0) placeholder.textContent = "The list was empty.";
    else placeholder.textContent = EMPTY_MESSAGES[filter];
  } else if (todos.length > 0) placeholder.textContent = "";
  changes.hideConfirmedFailure();
}

/** Returns whether the page has a list to show: the service's, or the last one that the browser kept. */
const hasList = (): boolean => state.position !== undefined || lastList !== undefined;

/** Disables what changes the list while the last list is shown. */
function renderReadOnly(): void {
  const isReadOnly = lastList !== undefined;
  list.setReadOnly(isReadOnly);
  if (titleInput.readOnly === isReadOnly) return;
  titleInput.readOnly = isReadOnly;
  titleInput.placeholder = isReadOnly ? "Read only while offline" : TITLE_PLACEHOLDER;
  addButton.ariaDisabled = isReadOnly ? "true" : null;
}

const TITLE_PLACEHOLDER = titleInput.placeholder;

function renderFilter(filter: Filter, counts: Readonly<Record<Filter, number>>): void {
  const isLoaded = hasList();
  for (const link of filterLinks) {
    const show = parseFilter(link);
    link.href = formatFilterUrl(show);
    if (show === filter) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
    const countElement = link.querySelector(".count");
    if (countElement !== null) countElement.textContent = isLoaded ? formatCount(counts[show]) : "";
  }
}

function parseFilter({ dataset: { show } }: HTMLAnchorElement): Filter {
  return show === "open" || show === "done" ? show : "all";
}

function renderActions(
  filter: Filter,
  { open, done, shown }: { readonly open: number; readonly done: number; readonly shown: number },
): void {
  const isReady = state.position !== undefined && !changes.isSending;
  const isSearching = query.trim() !== "";
  markAllButton.textContent = isSearching ? `Mark ${formatCount(open)} done` : "Mark all done";
  reopenAllButton.textContent = isSearching ? `Reopen ${formatCount(done)}` : "Reopen all";
  clearDoneButton.textContent = `Clear ${formatCount(done)} done`;
  markAllButton.hidden = !isReady || open === 0 || filter === "done";
  reopenAllButton.hidden = !isReady || done === 0 || (filter !== "done" && open > 0);
  clearDoneButton.hidden = !isReady || done === 0 || filter === "open";
  copyButton.hidden = shown === 0;
  newestFirstButton.hidden = shown < 2;
}

for (const link of filterLinks) {
  link.addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    clearTimeout(searchTimer);
    if (link.href !== location.href) history.pushState(undefined, "", link.href);
    scrollTo({ top: 0 });
    render();
    announce(`${heading.textContent}: ${formatCount(state.view(currentFilter()).todos.length)}`);
  });
}

function readAddress(): void {
  query = new URLSearchParams(location.search).get("q") ?? "";
  searchInput.value = query;
}

addEventListener("popstate", () => {
  clearTimeout(searchTimer);
  readAddress();
  render();
});

newestFirstButton.ariaPressed = String(readSetting("order") === "newest");
newestFirstButton.addEventListener("click", () => {
  newestFirstButton.ariaPressed = String(!isNewestFirst());
  writeSetting("order", isNewestFirst() ? "newest" : undefined);
  render();
});

// Search

let searchTimer: ReturnType<typeof setTimeout> | undefined;

function search(text: string): void {
  query = text;
  searchInput.value = text;
  render();
  clearTimeout(searchTimer);
  searchTimer = setTimeout(() => {
    history.replaceState(undefined, "", formatFilterUrl(currentFilter()));
    const { length } = state.view(currentFilter(), createMatcher(query)).todos;
    if (query.trim() === "") announce("Search cleared.");
    else announce(length === 1 ? "1 match." : `${formatCount(length)} matches.`);
  }, SEARCH_DELAY_MS);
}

searchInput.addEventListener("input", () => search(searchInput.value));
searchInput.addEventListener("blur", scheduleRender);
for (const input of [titleInput, searchInput]) {
  input.addEventListener("keydown", (event) => {
    if (event.key !== "ArrowDown" || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    list.focusFirst();
  });
}

installShortcuts({
  newTodo: () => titleInput.focus(),
  search: () => {
    if (!searchField.hidden) searchInput.select();
  },
  undo: () => changes.undo(),
  cancel: () => {
    if (!changes.stop() && query !== "") search("");
  },
});

// Add to-dos

/** Stays the same until the field changes, so that sending it twice creates one to-do. */
let idempotencyKey = randomKey();
/** Titles that were submitted and not yet confirmed. The first one is being sent. */
const submissions: Submission[] = [];

interface Submission {
  readonly title: string;
  readonly idempotencyKey: string;
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  if (lastList !== undefined) {
    announce(READ_ONLY);
    return;
  }
  // The same text, submitted twice without an edit, is one to-do.
  if (submissions.some((submission) => submission.idempotencyKey === idempotencyKey)) return;
  if (submissions.push({ title: titleInput.value, idempotencyKey }) > 1) return;
  form.ariaBusy = "true";
  addButton.ariaDisabled = "true";
  try {
    for (let first = submissions[0]; first !== undefined; first = submissions[0]) {
      await add(first);
      submissions.shift();
    }
  } finally {
    submissions.length = 0;
    form.ariaBusy = null;
    addButton.ariaDisabled = null;
  }
});

async function add({ title, idempotencyKey: submittedKey }: Submission): Promise<void> {
  try {
    const todo = await state.create(title, submittedKey);
    if (idempotencyKey === submittedKey) {
      titleInput.value = "";
      idempotencyKey = randomKey();
    }
    showFieldError(titleInput);
    showAdded([todo]);
  } catch (error) {
    const { fieldMessage, outcome, reason } = describeAddError(error);
    if (idempotencyKey === submittedKey) {
      showFieldError(titleInput, fieldMessage);
      titleInput.focus();
      announce(fieldMessage);
    } else showToast(quote(title), ` ${outcome}: ${reason}`);
  }
}

/** Scrolls to new to-dos, or says where they are if the current view does not contain them. */
function showAdded(todos: readonly Todo[]): void {
  render();
  const [first] = todos;
  if (first === undefined) return;
  const latest = todos.slice(-MAX_HIGHLIGHTED);
  const isVisible = latest.map(({ id }) => list.scrollToTodo(id)).some((isInList) => isInList);
  const name = todos.length === 1 ? quote(first.title) : `${formatCount(todos.length)} to-dos`;
  if (isVisible) announce(todos.length === 1 ? `Added: ${first.title}` : `Added ${name}.`);
  else if (currentFilter() === "done") showStatus("Added ", name, " to the open to-dos.");
  else showStatus("Added ", name, ". The search does not show it.");
}

titleInput.addEventListener("input", () => {
  showFieldError(titleInput);
  idempotencyKey = randomKey();
});

const pasteDialog = new PasteDialog({
  create: (title, key) => state.create(title, key),
  markDone: (todo) => state.requestChange(todo, "done"),
  onAdded: showAdded,
});

titleInput.addEventListener("paste", (event) => {
  if (!titleInput.readOnly && pasteDialog.open(event.clipboardData?.getData("text/plain") ?? ""))
    event.preventDefault();
});

// Change to-dos

ignoreAccidentalClicks(".todo, .actions button");

function toggle(todo: Todo, change: Exclude<PendingChange, "deleted">): void {
  announce(`${change === "done" ? "Done" : "Reopened"}: ${todo.title}`);
  changes.requestChange(todo, change);
}

/** Changes every to-do in a state that matches the search. */
function changeAll(button: HTMLButtonElement, from: "open" | "done", change: PendingChange): void {
  const { todos } = state.view(from, createMatcher(query));
  const count = todos.length === 1 ? "1 to-do" : `${formatCount(todos.length)} to-dos`;
  const message = {
    deleted: `Deleted ${count.replace("to-do", "done to-do")}`,
    done: `Marked ${count} as done`,
    open: `Reopened ${count}`,
  }[change];
  changes.start({
    todos,
    change,
    onlyWhile: from,
    message: [message],
    restoreFocus: () => (button.hidden ? heading : button).focus(),
  });
  if (button.hidden) heading.focus();
}

markAllButton.addEventListener("click", () => changeAll(markAllButton, "open", "done"));
reopenAllButton.addEventListener("click", () => changeAll(reopenAllButton, "done", "open"));
clearDoneButton.addEventListener("click", () => changeAll(clearDoneButton, "done", "deleted"));

copyButton.addEventListener("click", async () => {
  const { todos } = state.view(currentFilter(), createMatcher(query));
  const isCopied = await copyText(toMarkdown(inOrder(todos)));
  if (isCopied)
    showStatus(todos.length === 1 ? "Copied 1 to-do." : `Copied ${formatCount(todos.length)} to-dos.`);
  else showToast("The browser forbids copying. Allow it in the site's settings.");
});

// Synchronization

let disconnectTimer: ReturnType<typeof setTimeout> | undefined;

function onDisconnected(reason: string): void {
  offlineCopy.onDisconnected();
  if (state.position === undefined) {
    if (lastList === undefined) placeholder.textContent = `The list cannot be loaded: ${reason}`;
    showLastList();
  }
  disconnectTimer ??= setTimeout(() => {
    if (lastList !== undefined) return;
    notice.textContent = "Connection lost. Reconnecting… Changes made elsewhere will appear then.";
  }, DISCONNECT_NOTICE_DELAY_MS);
}

/** Shows the list that the browser kept, until the service answers. */
async function showLastList(): Promise<void> {
  if (!isOfflineAllowed || lastList !== undefined) return;
  const stored = await readLastList();
  if (stored === undefined || state.position !== undefined || lastList !== undefined) return;
  lastList = stored;
  const { todos, total, readAt } = stored;
  const subject =
    todos.length < total ? `the newest ${formatCount(todos.length)} of ${formatCount(total)} to-dos` : "list";
  notice.textContent = `Offline, ${subject} from ${formatTime(readAt)}. ${READ_ONLY}`;
  state.showUntilLoaded(todos);
}

/** Returns the time of day, with the date unless it is today. */
function formatTime(time: Date): string {
  const isToday = time.toDateString() === new Date().toDateString();
  const format = { ...(!isToday && { dateStyle: "medium" as const }), timeStyle: "short" as const };
  return new Intl.DateTimeFormat(undefined, format).format(time);
}

function onTooManyWindows(): void {
  clearTimeout(disconnectTimer);
  disconnectTimer = undefined;
  notice.textContent =
    "Too many windows show this list, so changes made elsewhere do not appear here. Close another window, or use HTTPS.";
}

async function onUnauthorized(): Promise<void> {
  clearTimeout(disconnectTimer);
  // The service has become private. The browser asks for a password when the page loads without its service worker.
  if (isOfflineAllowed && (await offlineCopy.forget())) {
    // The browser keeps showing this page while it asks.
    document.body.replaceChildren();
    location.reload();
    return;
  }
  if (state.position === undefined) placeholder.textContent = "The list cannot be loaded.";
  notice.textContent =
    "The service no longer accepts your API key or password: it was revoked, changed or has expired. Reload this page and enter a valid one.";
}

function onConnected(): void {
  clearTimeout(disconnectTimer);
  disconnectTimer = undefined;
  if (notice.textContent !== "") announce("Reconnected.");
  notice.textContent = "";
  if (isOfflineAllowed) offlineCopy.onConnected();
}

function onLoaded(missing: number): void {
  clearTimeout(lastListTimer);
  if (lastList !== undefined) {
    lastList = undefined;
    scheduleRender();
  }
  changes.reportUnsentDeletions();
  prepareSearch(state.view("all").todos);
  if (missing === 0) return;
  const subject =
    missing === 1 ? "1 to-do that was here is" : `${formatCount(missing)} to-dos that were here are`;
  showToast(`The service has a different list since it restarted. ${subject} not in it.`);
}

let isAnnouncementScheduled = false;

/** Announces the counts after `ANNOUNCE_INTERVAL_MS`, once for all changes until then. */
function announceSoon(): void {
  if (isAnnouncementScheduled) return;
  isAnnouncementScheduled = true;
  setTimeout(() => {
    isAnnouncementScheduled = false;
    const { open, done } = state.view("all");
    announce(`${formatCount(open)} open, ${formatCount(done)} done.`);
  }, ANNOUNCE_INTERVAL_MS);
}

requireElement("#app", HTMLElement).hidden = false;
readAddress();
render();
requireElement(".no-script", HTMLElement).remove();
if (!isOfflineAllowed) offlineCopy.forget();
const lastListTimer = setTimeout(() => {
  if (state.confirmed.length === 0) showLastList();
}, LAST_LIST_DELAY_MS);
synchronize(state, {
  onConnected,
  onDisconnected,
  onTooManyWindows,
  onUnauthorized,
  onLoaded,
  onEvent: () => {
    offlineCopy.onChanged();
    announceSoon();
  },
});
