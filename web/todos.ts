import { type Todo, TodoApi, TodoApiError } from "../src/sdk.ts";
import { showFieldError, the } from "./element.ts";
import { Rows } from "./rows.ts";
import { announce, quote, warn } from "./say.ts";
import { type Show, State, type Wish } from "./state.ts";

/** A connection that is back within so long was never missed. */
const MISSED_MS = 800;
const RETRY_MS = 3000;
/** A window that nobody has seen for so long lets its stream go: a browser has only six connections to a server. */
const UNSEEN_MS = 30_000;
/** Those who hear the page are told of others' changes at most so often. */
const TELL_MS = 3000;

const form = the("#new-todo", HTMLFormElement);
const titleInput = the("#title", HTMLInputElement);
const addButton = the("#new-todo button", HTMLButtonElement);
const list = the("#todos", HTMLElement);
const heading = the("#list-heading", HTMLElement);
const placeholder = the("#placeholder", HTMLElement);
const notice = the("#notice", HTMLElement);
const filters = [...document.querySelectorAll<HTMLAnchorElement>(".filter a")];

const state = new State(new TodoApi(), renderSoon);
const rows = new Rows(list, {
  onMark: (todo, done) => ask(todo, done ? "done" : "open"),
  onDelete: (todo) => ask(todo, "deleted"),
  onFocusLost: () => titleInput.focus(),
});

const HEADINGS = { all: "All to-dos", open: "Open to-dos", done: "Done to-dos" } as const;
const NOTHING = {
  all: "Nothing to do yet. Write the first one above.",
  open: "Nothing is open.",
  done: "Nothing is done yet.",
} as const;
const DONE = { done: "Done", open: "Open again", deleted: "Deleted" } as const;
const NOT_DONE = {
  done: "could not be marked as done",
  open: "could not be opened again",
  deleted: "could not be deleted",
} as const;

// What is shown, and how.

function shown(): Show {
  const show = new URLSearchParams(location.search).get("show");
  return show === "open" || show === "done" ? show : "all";
}

let isRenderDue = false;

/** Once for all that changes before the next picture; hidden windows have no pictures, but a title. */
function renderSoon(): void {
  if (isRenderDue) return;
  isRenderDue = true;
  const run = (): void => {
    isRenderDue = false;
    render();
  };
  if (document.hidden) setTimeout(run);
  else requestAnimationFrame(run);
}

function render(): void {
  const show = shown();
  const { todos, open, done } = state.view(show);
  const isLoaded = state.position !== undefined;
  rows.show(todos);
  list.ariaBusy = String(!isLoaded);
  heading.textContent = HEADINGS[show];
  document.title = open > 0 ? `${count(open)} open · To-dos` : "To-dos";
  const counts = { all: open + done, open, done };
  for (const link of filters) {
    const kind = link.dataset.show;
    if (kind === show) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
    const number = kind === "all" || kind === "open" || kind === "done" ? counts[kind] : 0;
    const place = link.querySelector(".count");
    if (place !== null) place.textContent = isLoaded ? count(number) : "";
  }
  if (isLoaded) placeholder.textContent = todos.length === 0 ? NOTHING[show] : "";
  else if (todos.length > 0) placeholder.textContent = "";
}

const count = (n: number): string => n.toLocaleString("en");

for (const link of filters) {
  link.addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    if (link.href !== location.href) history.pushState(undefined, "", link.href);
    scrollTo({ top: 0 });
    render();
    announce(`${heading.textContent}: ${count(state.view(shown()).todos.length)}`);
  });
}
addEventListener("popstate", render);

// What is asked for.

const newKey = (): string => crypto.getRandomValues(new Uint32Array(4)).join("-");

/** What stands in the field is one to-do, however often it is sent. */
let key = newKey();
/** What has been entered and is not answered yet, as it was then; the first is on its way. */
const entries: Entry[] = [];

interface Entry {
  readonly title: string;
  readonly key: string;
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const title = titleInput.value;
  if (entries.at(-1)?.title === title) return;
  if (entries.push({ title, key }) > 1) return;
  form.ariaBusy = "true";
  addButton.ariaDisabled = "true";
  try {
    for (let first = entries[0]; first !== undefined; first = entries[0]) {
      await add(first);
      entries.shift();
    }
  } finally {
    entries.length = 0;
    form.ariaBusy = null;
    addButton.ariaDisabled = null;
  }
});

async function add({ title, key: idempotencyKey }: Entry): Promise<void> {
  try {
    const todo = await state.create(title, idempotencyKey);
    if (titleInput.value === title) {
      titleInput.value = "";
      key = newKey();
    }
    showFieldError(titleInput);
    render();
    rows.reveal(todo.id);
    announce(shown() === "done" ? `Added, and shown among the open ones: ${title}` : `Added: ${title}`);
  } catch (error) {
    const { message, outcome } = whyNotAdded(error);
    if (titleInput.value === title) {
      showFieldError(titleInput, message);
      titleInput.focus();
      announce(message);
    } else warn(quote(title), ` ${outcome}: ${reasonOf(error)}`);
  }
}

function whyNotAdded(error: unknown): { readonly message: string; readonly outcome: string } {
  const broken = error instanceof TodoApiError ? error.fields.map(({ message }) => message) : [];
  if (broken.length > 0)
    return { message: `The title ${broken.join(" and ")}.`, outcome: "could not be added" };
  if (!isRefusal(error)) {
    const message = `It is not known whether it was added: ${reasonOf(error)} Enter asks again, and adds it once.`;
    return { message, outcome: "may or may not have been added" };
  }
  return { message: `It could not be added: ${reasonOf(error)}`, outcome: "could not be added" };
}

/** Whether nothing has come of it for sure: what was cut off on the way, or is a fault, may have been done. */
const isRefusal = (error: unknown): boolean =>
  error instanceof TodoApiError &&
  (error.code === "store_full" || (error.status !== undefined && error.status >= 400 && error.status < 500));

titleInput.addEventListener("input", () => {
  showFieldError(titleInput);
  key = newKey();
});

async function ask(todo: Todo, wish: Wish): Promise<void> {
  announce(`${DONE[wish]}: ${todo.title}`);
  try {
    await state.ask(todo, wish);
  } catch (error) {
    warn(quote(todo.title), ` ${NOT_DONE[wish]}: ${reasonOf(error)}`);
  }
}

function reasonOf(error: unknown): string {
  if (!(error instanceof TodoApiError)) throw error;
  if (error.code === "network_error" || error.code === "timeout") return "the service cannot be reached.";
  if (error.code === "todo_not_found") return "it has been deleted elsewhere.";
  return error.detail ?? `${error.message}.`;
}

// How it stays right: the list, then all that happens to it.

/** Follows the service for as long as the page is open. */
async function follow(): Promise<never> {
  while (true) {
    await seen();
    const ending = new AbortController();
    const stopWatching = whenUnseen(() => ending.abort());
    try {
      if (state.position === undefined) await state.load(ending.signal);
      await followEvents(state.position, ending.signal);
    } catch (error) {
      if (!ending.signal.aborted) {
        lost(reasonOf(error));
        await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
      }
    } finally {
      stopWatching();
    }
  }
}

async function followEvents(since: string | undefined, signal: AbortSignal): Promise<void> {
  for await (const event of new TodoApi().events({ ...(since !== undefined && { since }), signal })) {
    if (event.type === "connected") found();
    else if (event.type === "disconnected") lost("the service cannot be reached.");
    else if (event.type === "resync") await state.load(signal);
    else {
      state.apply(event);
      tellSoon();
    }
  }
}

let missed: ReturnType<typeof setTimeout> | undefined;

function lost(reason: string): void {
  if (state.position === undefined) placeholder.textContent = `The list cannot be loaded: ${reason}`;
  missed ??= setTimeout(() => {
    notice.textContent = "Not connected, trying again. Others’ changes show when it is back.";
  }, MISSED_MS);
}

function found(): void {
  clearTimeout(missed);
  missed = undefined;
  if (notice.textContent !== "") announce("Connected again.");
  notice.textContent = "";
}

/** Resolves when the window is seen. */
function seen(): Promise<void> {
  if (!document.hidden) return Promise.resolve();
  return new Promise((resolve) => {
    document.addEventListener("visibilitychange", () => resolve(), { once: true });
  });
}

/** Calls back when the window has not been seen for long; gives what ends the watch. */
function whenUnseen(onUnseen: () => void): () => void {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const look = (): void => {
    clearTimeout(timer);
    if (document.hidden) timer = setTimeout(onUnseen, UNSEEN_MS);
  };
  document.addEventListener("visibilitychange", look);
  look();
  return () => {
    document.removeEventListener("visibilitychange", look);
    clearTimeout(timer);
  };
}

let isTelling = false;

function tellSoon(): void {
  if (isTelling) return;
  isTelling = true;
  setTimeout(() => {
    isTelling = false;
    const { open, done } = state.view("all");
    announce(`${count(open)} open, ${count(done)} done.`);
  }, TELL_MS);
}

render();
follow();
