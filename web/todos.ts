import { type Todo, TodoApi, TodoApiError } from "../src/sdk/client.ts";
import { requireElement, showFieldError } from "./dom.ts";
import { announce, quote, showToast } from "./notifications.ts";
import { type Filter, type PendingChange, State } from "./state.ts";
import { VirtualList } from "./virtual-list.ts";

/** Delay before the page reports a lost connection, so that short interruptions stay silent. */
const DISCONNECT_NOTICE_DELAY_MS = 800;
const RETRY_DELAY_MS = 3000;
/** Time after which a hidden window closes its event stream, because a browser opens at most six connections per server. */
const HIDDEN_TIMEOUT_MS = 30_000;
/** Shortest interval between two announcements of changes made elsewhere. */
const ANNOUNCE_INTERVAL_MS = 3000;

const form = requireElement("#new-todo", HTMLFormElement);
const titleInput = requireElement("#title", HTMLInputElement);
const addButton = requireElement("#new-todo button", HTMLButtonElement);
const listElement = requireElement("#todos", HTMLElement);
const heading = requireElement("#list-heading", HTMLElement);
const placeholder = requireElement("#placeholder", HTMLElement);
const notice = requireElement("#notice", HTMLElement);
const filterLinks = [...document.querySelectorAll<HTMLAnchorElement>(".filter a")];

const state = new State(new TodoApi(), scheduleRender);
const list = new VirtualList(listElement, {
  onToggle: (todo, done) => change(todo, done ? "done" : "open"),
  onDelete: (todo) => change(todo, "deleted"),
  onFocusLost: () => titleInput.focus(),
});

const HEADINGS = { all: "All to-dos", open: "Open to-dos", done: "Done to-dos" } as const;
const EMPTY_MESSAGES = {
  all: "Nothing here yet. Add your first to-do above.",
  open: "All done.",
  done: "No to-dos are done yet.",
} as const;
const CHANGE_MESSAGES = { done: "Done", open: "Reopened", deleted: "Deleted" } as const;
const CHANGE_ERRORS = {
  done: "could not be marked as done",
  open: "could not be reopened",
  deleted: "could not be deleted",
} as const;

// Rendering

function currentFilter(): Filter {
  const show = new URLSearchParams(location.search).get("show");
  return show === "open" || show === "done" ? show : "all";
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
  const { todos, open, done } = state.view(filter);
  const isLoaded = state.position !== undefined;
  list.render(todos);
  listElement.ariaBusy = String(!isLoaded);
  heading.textContent = HEADINGS[filter];
  document.title = open > 0 ? `${formatCount(open)} open · To-dos` : "To-dos";
  const counts = { all: open + done, open, done };
  for (const link of filterLinks) {
    const { show } = link.dataset;
    if (show === filter) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
    const count = show === "all" || show === "open" || show === "done" ? counts[show] : 0;
    const countElement = link.querySelector(".count");
    if (countElement !== null) countElement.textContent = isLoaded ? formatCount(count) : "";
  }
  if (isLoaded) placeholder.textContent = todos.length === 0 ? EMPTY_MESSAGES[filter] : "";
  else if (todos.length > 0) placeholder.textContent = "";
}

const formatCount = (count: number): string => count.toLocaleString("en");

for (const link of filterLinks) {
  link.addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    if (link.href !== location.href) history.pushState(undefined, "", link.href);
    scrollTo({ top: 0 });
    render();
    announce(`${heading.textContent}: ${formatCount(state.view(currentFilter()).todos.length)}`);
  });
}
addEventListener("popstate", render);

// Changes by the user

const randomKey = (): string => crypto.getRandomValues(new Uint32Array(4)).join("-");

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
  const title = titleInput.value;
  if (submissions.at(-1)?.title === title) return;
  if (submissions.push({ title, idempotencyKey }) > 1) return;
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
    if (titleInput.value === title) {
      titleInput.value = "";
      idempotencyKey = randomKey();
    }
    showFieldError(titleInput);
    render();
    list.scrollToTodo(todo.id);
    announce(currentFilter() === "done" ? `Added to the open to-dos: ${title}` : `Added: ${title}`);
  } catch (error) {
    const { fieldMessage, outcome } = describeAddError(error);
    if (titleInput.value === title) {
      showFieldError(titleInput, fieldMessage);
      titleInput.focus();
      announce(fieldMessage);
    } else showToast(quote(title), ` ${outcome}: ${errorMessage(error)}`);
  }
}

function describeAddError(error: unknown): { readonly fieldMessage: string; readonly outcome: string } {
  const violations = error instanceof TodoApiError ? error.fields.map(({ message }) => message) : [];
  if (violations.length > 0)
    return { fieldMessage: `The title ${violations.join(" and ")}.`, outcome: "could not be added" };
  if (!isRejected(error)) {
    const cause = hasNoResponse(error)
      ? "No answer, so it may not have been added."
      : `It may not have been added: ${errorMessage(error)}`;
    return {
      fieldMessage: `${cause} Press Enter to try again; it won't be added twice.`,
      outcome: "may not have been added",
    };
  }
  return { fieldMessage: `It could not be added: ${errorMessage(error)}`, outcome: "could not be added" };
}

/** Returns whether the service certainly did not create the to-do. A lost response or a server error leaves that open. */
const isRejected = (error: unknown): boolean =>
  error instanceof TodoApiError &&
  (error.code === "store_full" || (error.status !== undefined && error.status >= 400 && error.status < 500));

const hasNoResponse = (error: unknown): boolean =>
  error instanceof TodoApiError && (error.code === "network_error" || error.code === "timeout");

titleInput.addEventListener("input", () => {
  showFieldError(titleInput);
  idempotencyKey = randomKey();
});

async function change(todo: Todo, pending: PendingChange): Promise<void> {
  announce(`${CHANGE_MESSAGES[pending]}: ${todo.title}`);
  try {
    await state.requestChange(todo, pending);
  } catch (error) {
    showToast(quote(todo.title), ` ${CHANGE_ERRORS[pending]}: ${errorMessage(error)}`);
  }
}

function errorMessage(error: unknown): string {
  if (!(error instanceof TodoApiError)) throw error;
  if (hasNoResponse(error)) return "the service cannot be reached.";
  if (error.code === "todo_not_found") return "it was deleted elsewhere.";
  return error.detail ?? `${error.message}.`;
}

// Synchronization: the list first, then every event

/** Keeps the list up to date while the page is open and visible. */
async function synchronize(): Promise<never> {
  while (true) {
    await pageVisible();
    const controller = new AbortController();
    const stopWatching = onHidden(() => controller.abort());
    try {
      if (state.position === undefined) await state.load(controller.signal);
      await applyEvents(state.position, controller.signal);
    } catch (error) {
      if (!controller.signal.aborted) {
        onDisconnected(errorMessage(error));
        await new Promise((resolve) => setTimeout(resolve, RETRY_DELAY_MS));
      }
    } finally {
      stopWatching();
    }
  }
}

async function applyEvents(since: string | undefined, signal: AbortSignal): Promise<void> {
  for await (const event of new TodoApi().events({ ...(since !== undefined && { since }), signal })) {
    if (event.type === "connected") onConnected();
    else if (event.type === "disconnected") onDisconnected("the service cannot be reached.");
    else if (event.type === "resync") await state.load(signal);
    else {
      state.apply(event);
      announceSoon();
    }
  }
}

let disconnectTimer: ReturnType<typeof setTimeout> | undefined;

function onDisconnected(reason: string): void {
  if (state.position === undefined) placeholder.textContent = `The list cannot be loaded: ${reason}`;
  disconnectTimer ??= setTimeout(() => {
    notice.textContent = "Connection lost. Reconnecting… Changes made elsewhere will appear then.";
  }, DISCONNECT_NOTICE_DELAY_MS);
}

function onConnected(): void {
  clearTimeout(disconnectTimer);
  disconnectTimer = undefined;
  if (notice.textContent !== "") announce("Reconnected.");
  notice.textContent = "";
}

/** Resolves when the window is visible. */
function pageVisible(): Promise<void> {
  if (!document.hidden) return Promise.resolve();
  return new Promise((resolve) => {
    document.addEventListener("visibilitychange", () => resolve(), { once: true });
  });
}

/** Calls `callback` when the window has been hidden for `HIDDEN_TIMEOUT_MS`. Returns a function that stops watching. */
function onHidden(callback: () => void): () => void {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const onVisibilityChange = (): void => {
    clearTimeout(timer);
    if (document.hidden) timer = setTimeout(callback, HIDDEN_TIMEOUT_MS);
  };
  document.addEventListener("visibilitychange", onVisibilityChange);
  onVisibilityChange();
  return () => {
    document.removeEventListener("visibilitychange", onVisibilityChange);
    clearTimeout(timer);
  };
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

render();
synchronize();
