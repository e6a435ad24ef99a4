import { type LiveList, type Todo, TodoApiError } from "../src/sdk/client.ts";
import { delay } from "../src/sdk/retry.ts";
import { createMatcher, prepareSearch } from "../src/search.ts";
import { copyText } from "./clipboard.ts";
import { createFetch, PageApi } from "./connection.ts";
import { ignoreAccidentalClicks, ignoreClicksThatClose, requireElement, showFieldError } from "./dom.ts";
import {
  countTodos,
  describeChange,
  describeRejections,
  errorMessage,
  formatCount,
  nameAll,
} from "./messages.ts";
import { announce, ask, quote, showStatus, showToast, TimedMessage } from "./notifications.ts";
import { type LastList, OfflineCopy, readLastList } from "./offline.ts";
import { type Change, type ChangeKind, isNewId, newId, Outbox, type Target } from "./outbox.ts";
import { MAX_TITLE_LENGTH, toMarkdown } from "./paste.ts";
import { PasteDialog } from "./paste-dialog.ts";
import { parseEpoch, Sender } from "./sender.ts";
import { type Session, SessionView } from "./session.ts";
import { readSetting, writeSetting } from "./settings.ts";
import { installShortcuts } from "./shortcuts.ts";
import { State } from "./state.ts";
import { VirtualList } from "./virtual-list.ts";

/** Delay before the page reports a lost connection, so that short interruptions stay silent. */
const DISCONNECT_NOTICE_DELAY_MS = 800;
/** Without any answer after this time, the page shows the last list that the browser kept. */
const LAST_LIST_DELAY_MS = 500;
/** Shortest interval between two announcements of changes made elsewhere. */
const ANNOUNCE_INTERVAL_MS = 3000;
/** The search field appears from this number of to-dos on. */
const MIN_SEARCHABLE = 10;
/** The URL and the announcement follow the search field this long after the last key. */
const SEARCH_DELAY_MS = 400;
const IDENTIFY_RETRY_MS = 5000;
/** A sign-out waits this long for the changes to be sent, and looks this often. */
const SEND_ALL_MS = 10_000;
const SEND_CHECK_MS = 50;
/** Of many new to-dos, the page scrolls to the latest and highlights this many. */
const MAX_HIGHLIGHTED = 50;

const form = requireElement("#new-todo", HTMLFormElement);
const titleInput = requireElement("#title", HTMLInputElement);
const readOnlyHint = requireElement("#read-only", HTMLElement);
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
const oldestFirstButton = requireElement("#oldest-first", HTMLButtonElement);

const outbox = new Outbox();
const state = new State(outbox);
const api = new PageApi({ fetch: createFetch(onSlow), retries: 0 });
const sender = new Sender({
  api,
  outbox,
  identify: () => session.identify(),
  isOwnerSignedIn: () => session.isOwnerSignedIn(),
  getList: () => ({ todos: state.confirmed, position: state.position }),
  onDelay,
  onRejected: (change, rejections) => showToast(...describeRejections(change, rejections)),
  onUncertain,
});
const list = new VirtualList(listElement, {
  onToggle: (todo, done) => change(done ? "done" : "open", [todo], () => list.focusTodo(todo.id, "checkbox")),
  onDelete: (todo, control) => change("deleted", [todo], () => list.focusTodo(todo.id, control)),
  onFold: () => {
    isFolded = !isFolded;
    writeSetting("completed", isFolded ? undefined : "shown");
    render();
  },
  onFocusLost: () => titleInput.focus(),
});
const offlineCopy = new OfflineCopy(() => state.confirmed);
const session = new SessionView({
  forgetList: () => offlineCopy.forget(),
  sendChanges,
  forgetChanges: () => outbox.clear(),
  onSignedIn,
});
/** The last list, while it is shown because the service has not answered yet. */
let lastList: LastList | undefined;

const HEADINGS = { all: "All to-dos", open: "Open to-dos", done: "Done to-dos" } as const;

// Rendering

/** What the user searches for. The URL follows with a delay. */
let query = "";

const UNDO_KEYS = /Mac|iPhone|iPad/.test(navigator.platform) ? "⌘Z" : "Ctrl+Z";

const toText = (message: readonly (string | Node)[]): string =>
  message.map((part) => (typeof part === "string" ? part : part.textContent)).join("");

const isOldestFirst = (): boolean => oldestFirstButton.ariaPressed === "true";

const inOrder = <T>(items: readonly T[]): readonly T[] => (isOldestFirst() ? items : items.toReversed());

type Filter = keyof typeof HEADINGS;

const parseFilter = (show: string | null | undefined): Filter =>
  show === "open" || show === "done" ? show : "all";

const currentFilter = (): Filter => parseFilter(new URLSearchParams(location.search).get("show"));

let isFolded = readSetting("completed") !== "shown";

/** Returns the to-dos that match the search, in the order of the page, and their numbers by filter. */
function findTodos() {
  const { open, done, ...totals } = state.view(createMatcher(query));
  const counts = { all: open.length + done.length, open: open.length, done: done.length };
  return { ...totals, counts, open: inOrder(open), done: inOrder(done) };
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
  const { open, done, counts, total, totalOpen } = findTodos();
  const isLoaded = hasList();
  const hasFold = filter === "all" && query.trim() === "" && counts.done > 0;
  const label = `Completed (${formatCount(counts.done)})`;
  list.render(
    {
      direction: isOldestFirst() ? 1 : -1,
      open: filter === "done" ? [] : open,
      done: filter === "open" || (hasFold && isFolded) ? [] : done,
      ...(hasFold && { fold: { label, isExpanded: !isFolded } }),
    },
    outbox.created,
  );
  listElement.ariaBusy = String(!isLoaded);
  heading.textContent = HEADINGS[filter];
  document.title = totalOpen > 0 ? `${formatCount(totalOpen)} open · To-dos` : "To-dos";
  renderFilter(filter, counts);
  renderActions(filter, counts);
  const isSearching = query !== "" || document.activeElement === searchInput;
  searchField.hidden = total < MIN_SEARCHABLE && !isSearching;
  if (isLoaded) {
    const isAllDone = filter !== "done" && totalOpen === 0 && total > 0 && query === "";
    placeholder.classList.toggle("all-done", isAllDone);
    if (isAllDone) placeholder.textContent = "All done.";
    else if (counts[filter] > 0) placeholder.textContent = "";
    else if (query !== "") placeholder.replaceChildren("No matches for ", quote(query), ".");
    else if (filter === "done") placeholder.textContent = "No to-dos are done yet.";
    else
      placeholder.textContent = `Nothing here yet.${list.isReadOnly ? "" : " Add your first to-do above."}`;
  } else if (counts[filter] > 0) placeholder.textContent = "";
}

/** Returns whether the page has a list to show: the service's, or the last one that the browser kept. */
const hasList = (): boolean => state.position !== undefined || lastList !== undefined;

type Counts = Readonly<Record<Filter, number>>;

function renderFilter(filter: Filter, counts: Counts): void {
  const isLoaded = hasList();
  for (const link of filterLinks) {
    const show = parseFilter(link.dataset.show);
    link.href = formatFilterUrl(show);
    if (show === filter) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
    const countElement = link.querySelector(".count");
    if (countElement !== null) countElement.textContent = isLoaded ? formatCount(counts[show]) : "";
  }
}

function renderActions(filter: Filter, { open, done, [filter]: shown }: Counts): void {
  const isReady = hasList() && !list.isReadOnly;
  const isSearching = query.trim() !== "";
  markAllButton.textContent = isSearching ? `Mark ${formatCount(open)} done` : "Mark all done";
  reopenAllButton.textContent = isSearching ? `Reopen ${formatCount(done)}` : "Reopen all";
  clearDoneButton.textContent = `Clear ${formatCount(done)} done`;
  markAllButton.hidden = !isReady || open === 0 || filter === "done";
  reopenAllButton.hidden = !isReady || done === 0 || (filter !== "done" && open > 0);
  clearDoneButton.hidden = !isReady || done === 0 || filter === "open";
  copyButton.hidden = shown === 0;
  oldestFirstButton.hidden = shown < 2;
}

for (const link of filterLinks) {
  link.addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    clearTimeout(searchTimer);
    if (link.href !== location.href) history.pushState(undefined, "", link.href);
    scrollTo({ top: 0 });
    render();
    announce(`${heading.textContent}: ${formatCount(findTodos().counts[currentFilter()])}`);
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

oldestFirstButton.ariaPressed = String(readSetting("order") === "oldest");
oldestFirstButton.addEventListener("click", () => {
  oldestFirstButton.ariaPressed = String(!isOldestFirst());
  writeSetting("order", isOldestFirst() ? "oldest" : undefined);
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
    const count = findTodos().counts[currentFilter()];
    if (query.trim() === "") announce("Search cleared.");
    else announce(count === 1 ? "1 match." : `${formatCount(count)} matches.`);
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
    searchField.hidden = false;
    searchInput.select();
  },
  undo,
  cancel: () => {
    if (query !== "") search("");
  },
});

// Add to-dos

form.addEventListener("submit", (event) => {
  event.preventDefault();
  const title = titleInput.value;
  const error =
    title.trim() === ""
      ? "The title must not be empty."
      : [...title].length > MAX_TITLE_LENGTH
        ? `The title must be at most ${MAX_TITLE_LENGTH} characters.`
        : "";
  showFieldError(titleInput, error);
  if (error === "") {
    titleInput.value = "";
    showAdded(outbox.add("created", [newTarget(title)]));
  } else {
    titleInput.focus();
    announce(error);
  }
});

function newTarget(title: string): Target {
  return { id: newId(), title, after: state.confirmed.at(-1)?.id ?? "" };
}

/** Scrolls to new to-dos, or says where they are if the current view does not contain them. */
function showAdded(added: Change): void {
  render();
  const latest = added.targets.slice(-MAX_HIGHLIGHTED);
  const isVisible = latest.map(({ id }) => list.scrollToTodo(id)).some((isInList) => isInList);
  const message = describeChange(added);
  if (isVisible) announce(toText(message));
  else if (currentFilter() === "done") showStatus(...message, " to the open to-dos.");
  else if (query.trim() === "") showStatus(...message, " to the completed to-dos.");
  else showStatus(...message, ". The search does not show it.");
}

titleInput.addEventListener("input", () => showFieldError(titleInput));

const pasteDialog = new PasteDialog((lines) => {
  // The page shows them in the order of the text.
  const targets = inOrder(lines).map(({ title, done }) => ({ ...newTarget(title), ...(done && { done }) }));
  showAdded(outbox.add("created", targets));
});

titleInput.addEventListener("paste", (event) => {
  if (pasteDialog.open(event.clipboardData?.getData("text/plain") ?? "")) event.preventDefault();
});

/** Puts what the share sheet of the device sent into the field. */
function takeSharedText(): void {
  const search = new URLSearchParams(location.search);
  const shared = ["title", "text", "url"].map((name) => search.get(name)?.trim() ?? "");
  const text = [...new Set(shared)].filter((part) => part !== "").join(" ");
  if (text === "") return;
  titleInput.value = text;
  titleInput.focus();
  history.replaceState(undefined, "", "/");
}

// Change to-dos

ignoreAccidentalClicks(".todo, .fold, .menu button");

const menu = requireElement("#menu", HTMLElement);
const menuButton = requireElement("#show-menu", HTMLButtonElement);
// Its height is known when it is open, and this runs before it is painted.
menu.addEventListener("beforetoggle", () => requestAnimationFrame(placeMenu));
ignoreClicksThatClose(menu, menuButton);

function placeMenu(): void {
  const { bottom, right } = menuButton.getBoundingClientRect();
  menu.style.top = `${Math.max(0, Math.min(bottom + 4, innerHeight - menu.offsetHeight))}px`;
  menu.style.right = `${document.documentElement.clientWidth - right}px`;
}

// Before the action runs, so that the button of the menu gets the focus back.
menu.addEventListener("click", () => menu.hidePopover(), { capture: true });

/** What moves the focus back when a change is undone, by its key. */
const focusAfterUndo = new Map<string, () => void>();
/** The change whose message offers to undo it. */
let offered: { readonly change: Change; readonly message: TimedMessage } | undefined;

function change(kind: ChangeKind, todos: readonly Todo[], restoreFocus: () => void): void {
  if (todos.length === 0) return;
  const added = outbox.add(
    kind,
    todos.map(({ id, title }) => ({ id, title })),
  );
  focusAfterUndo.set(added.key, restoreFocus);
  offerUndo(added);
  announce(`${toText(describeChange(added))}. Press ${UNDO_KEYS} to undo.`);
  render();
}

function offerUndo(change: Change): void {
  const message = new TimedMessage("#undo", {
    message: describeChange(change),
    action: { label: "Undo", run: undo },
    onDismiss: () => outbox.release(change),
    onPause: () => outbox.pause(change),
    onResume: () => outbox.resume(change),
  });
  offered = { change, message };
}

/** Undoes the last change that was not sent. Returns whether there is one. */
function undo(): boolean {
  const last = outbox.undoable;
  if (last === undefined) return false;
  undoChange(last);
  return true;
}

async function undoChange(last: Change): Promise<void> {
  offered?.message.hide();
  const { position, confirmed } = state;
  const isUndone = outbox.undo(last);
  render();
  focusAfterUndo.get(last.key)?.();
  const previous = outbox.undoable;
  if (previous !== undefined) offerUndo(previous);
  if (!(await isUndone)) {
    showToast(...describeChange(last), ": it was already sent.");
    return;
  }
  announce(toText(["Undone: ", ...describeChange(last)]));
  const ids = new Set(confirmed.map(({ id }) => id));
  const gone = last.targets.filter(({ id }) => position !== undefined && !isNewId(id) && !ids.has(id));
  if (gone.length > 0)
    showToast(
      ...nameAll(gone.map(({ title }) => title)),
      gone.length === 1
        ? " was deleted elsewhere, so it cannot be restored."
        : " were deleted elsewhere, so they cannot be restored.",
    );
}

outbox.addEventListener("change", () => {
  const { key } = offered?.change ?? {};
  const isUndoable = outbox.changes.some((one) => one.key === key && one.sentAt === undefined);
  if (offered !== undefined && !isUndoable) {
    offered.message.hide();
    offered = undefined;
  }
  renderNotice();
  scheduleRender();
});

/** Changes every to-do in a state that matches the search. */
function changeAll(from: "open" | "done", kind: ChangeKind): void {
  change(kind, findTodos()[from], () => menuButton.focus());
}

markAllButton.addEventListener("click", () => changeAll("open", "done"));
reopenAllButton.addEventListener("click", () => changeAll("done", "open"));
clearDoneButton.addEventListener("click", () => changeAll("done", "cleared"));

copyButton.addEventListener("click", async () => {
  const { open, done } = findTodos();
  const todos = { all: [...open, ...done], open, done }[currentFilter()];
  const isCopied = await copyText(toMarkdown(todos));
  if (isCopied) showStatus(`Copied ${countTodos(todos.length)}.`);
  else showToast("The browser forbids copying. Allow it in the site's settings.");
});

// Connection

let live: Pick<LiveList, "status" | "error"> = { status: "connecting" };
let disconnectTimer: ReturnType<typeof setTimeout> | undefined;
/** The connection is lost for longer than a short interruption. */
let isDisconnected = false;
/** A request has no answer. */
let isWaiting = false;
let hasTooManyWindows = false;
/** Why a change could not be sent yet. */
let sendError: TodoApiError | undefined;

const cannotSend = (): boolean => !navigator.onLine || isWaiting || isDisconnected || sendError !== undefined;

/** Sends changes without waiting for an undo. Resolves to the number of changes that are left when the connection fails. */
async function sendChanges(): Promise<number> {
  const end = performance.now() + SEND_ALL_MS;
  outbox.release();
  while (outbox.changes.some((one) => !sender.isBlocked(one)) && !cannotSend() && performance.now() < end)
    await delay(SEND_CHECK_MS, undefined);
  return outbox.changes.length;
}

/** Says what keeps the list and the user's changes from being current. */
function renderNotice(): void {
  if (session.isEnded) return;
  const { error } = live;
  const isOffline = cannotSend();
  const busy = [sendError, error].find((one) => one instanceof TodoApiError && one.retryAfter !== undefined);
  const count = outbox.changes.length;
  const later = `${formatCount(count)} ${count === 1 ? "change" : "changes"} will be sent later.`;
  let text = "";
  if (isOffline || lastList !== undefined) {
    text = busy === undefined ? "Offline" : "The service is busy and asks to wait";
    if (lastList !== undefined) text += `, ${describeLastList(lastList)}`;
    text += count > 0 ? `. ${later}` : ". Changes made elsewhere will appear later.";
  } else if (hasTooManyWindows)
    text =
      "Too many windows show this list, so changes made elsewhere do not appear here. Close another window, or use HTTPS.";
  if (notice.textContent !== "" && text === "") announce("Reconnected.");
  if (notice.textContent !== text) notice.textContent = text;
}

function describeLastList({ todos, total, readAt }: LastList): string {
  const subject =
    todos.length < total ? `the newest ${formatCount(todos.length)} of ${formatCount(total)} to-dos` : "list";
  return `${subject} from ${formatTime(readAt)}`;
}

addEventListener("offline", renderNotice);
addEventListener("online", renderNotice);

function onSlow(isSlow: boolean): void {
  isWaiting = isSlow;
  renderNotice();
  if (isSlow && !hasList()) showLastList();
}

function onDelay(error?: TodoApiError): void {
  sendError = error;
  if (error?.code === "unauthorized") onRejected(error);
  else renderNotice();
}

/** Unsent changes belong to who made them. Someone else sees what is deleted. */
async function onSignedIn({ scope }: Session, owner: string): Promise<void> {
  if (scope === "read") {
    form.hidden = true;
    readOnlyHint.hidden = false;
    list.isReadOnly = true;
    render();
  }
  outbox.owner = owner;
  await outbox.dropForeign((changes) => {
    const titles = changes.flatMap(({ targets }) => targets.map(({ title }) => title));
    showToast("Changes of another user were not sent: ", ...nameAll(titles), ".");
  });
}

/** Sends changes when it is known whose they are. */
async function send(signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    try {
      await session.identify();
      return await sender.run(signal);
    } catch (error) {
      if (!(error instanceof TodoApiError)) throw error;
      await delay(IDENTIFY_RETRY_MS, signal);
    }
  }
}

/** The service may have created these to-dos more than a day ago: only the user can say whether they are missing. */
function onUncertain(change: Change): void {
  ask([...nameAll(change.targets.map(({ title }) => title)), " may have been added before. Add again?"], {
    Add: () => outbox.renew(change),
    Discard: () => outbox.drop(change),
  });
}

function onState(next: LiveList): void {
  live = next;
  const { status, error } = next;
  outbox.isLive = status === "connected";
  if (next.position !== undefined) onList(next.todos, next.position);
  if (status === "connected") onConnected();
  else if (status === "disconnected") onDisconnected(error);
}

function onList(todos: readonly Todo[], position: string): void {
  clearTimeout(lastListTimer);
  if (state.position !== undefined && parseEpoch(state.position) !== parseEpoch(position))
    reportMissing(todos);
  if (state.position === undefined) prepareSearch(todos);
  const isChanged = state.confirmed !== todos;
  state.position = position;
  if (!isChanged) return;
  if (lastList === undefined && state.confirmed.length > 0) announceSoon();
  lastList = undefined;
  state.confirmed = todos;
  offlineCopy.onChanged();
  scheduleRender();
}

/** Says how many to-dos are gone because the service has another list than before. */
function reportMissing(todos: readonly Todo[]): void {
  const titles = new Map(todos.map(({ id, title }) => [id, title]));
  const missing = state.confirmed.filter(({ id, title }) => titles.get(id) !== title).length;
  if (missing === 0) return;
  const subject =
    missing === 1 ? "1 to-do that was here is" : `${formatCount(missing)} to-dos that were here are`;
  showToast(`The service has a different list since it restarted. ${subject} not in it.`);
}

function onConnected(): void {
  clearTimeout(disconnectTimer);
  disconnectTimer = undefined;
  isDisconnected = false;
  isWaiting = false;
  hasTooManyWindows = false;
  renderNotice();
  offlineCopy.onConnected();
}

function onDisconnected(error: unknown): void {
  offlineCopy.onDisconnected();
  if (!hasList()) {
    placeholder.textContent = `The list cannot be loaded. ${errorMessage(error)}`;
    showLastList();
  }
  disconnectTimer ??= setTimeout(() => {
    isDisconnected = true;
    renderNotice();
  }, DISCONNECT_NOTICE_DELAY_MS);
}

/** Shows the list that the browser kept, until the service answers. */
async function showLastList(): Promise<void> {
  const stored = await readLastList();
  if (stored === undefined || state.position !== undefined || lastList !== undefined) return;
  lastList = stored;
  state.confirmed = stored.todos;
  renderNotice();
  scheduleRender();
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
  hasTooManyWindows = true;
  renderNotice();
}

async function onRejected(error: TodoApiError): Promise<void> {
  clearTimeout(disconnectTimer);
  clearTimeout(lastListTimer);
  await session.onRejected(error);
}

let announcementTimer: ReturnType<typeof setTimeout> | undefined;

/** Announces the counts after `ANNOUNCE_INTERVAL_MS`, once for all changes until then. */
function announceSoon(): void {
  if (announcementTimer !== undefined) return;
  announcementTimer = setTimeout(() => {
    announcementTimer = undefined;
    const { total, totalOpen } = findTodos();
    announce(`${formatCount(totalOpen)} open, ${formatCount(total - totalOpen)} done.`);
  }, ANNOUNCE_INTERVAL_MS);
}

requireElement("#app", HTMLElement).hidden = false;
takeSharedText();
readAddress();
render();
requireElement(".no-script", HTMLElement).remove();
const lastListTimer = setTimeout(() => {
  if (state.confirmed.length === 0) showLastList();
}, LAST_LIST_DELAY_MS);

// A hidden page may never run again.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) outbox.release();
});
addEventListener("pagehide", () => {
  if (navigator.onLine && !isDisconnected && session.isOwnerSignedIn()) sender.sendBeforeClosing();
  else outbox.releaseBeforeClosing();
});
addEventListener("pageshow", () => outbox.reload());

api
  .follow({
    onState,
    onTooManyWindows,
    onFirstPage: (todos) => {
      if (hasList()) return;
      state.confirmed = todos;
      scheduleRender();
    },
    send,
  })
  .catch((error) => {
    if (!(error instanceof TodoApiError)) throw error;
    onRejected(error);
  });
