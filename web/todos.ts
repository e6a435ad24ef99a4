import { type Todo, TodoApiError } from "../src/sdk/client.ts";
import { findTodo } from "../src/sdk/json.ts";
import { lead } from "../src/sdk/position.ts";
import { delay } from "../src/sdk/retry.ts";
import { prepareSearch } from "../src/search.ts";
import { isWaiting } from "./model/edits.ts";
import { Outbox } from "./model/outbox.ts";
import { type LastList, State } from "./model/state.ts";
import type { Session } from "./people/requests.ts";
import { SessionView } from "./people/session.ts";
import { createFetch, isBrowserRejected, type ListState, PageApi } from "./sync/connection.ts";
import { ConnectionState } from "./sync/connection-state.ts";
import { OfflineCopy, readLastList } from "./sync/offline.ts";
import { Sender } from "./sync/sender.ts";
import { Actions } from "./view/actions.ts";
import { UserChoice } from "./view/choice.ts";
import { Composer } from "./view/composer.ts";
import { requireElement } from "./view/dom.ts";
import { hasMouse } from "./view/keyboard.ts";
import { ListView } from "./view/list.ts";
import { describeRejections, errorMessage, formatCount, nameAll } from "./view/messages.ts";
import { describeConnection } from "./view/notice.ts";
import { installShortcuts } from "./view/shortcuts.ts";
import { announce, showToast } from "./view/toasts.ts";

/** The page requests the list after this time, although the browser has not yet returned the one that it kept. */
const LAST_LIST_DELAY_MS = 500;
/** Shortest interval between two announcements of changes made elsewhere. */
const ANNOUNCE_INTERVAL_MS = 3000;
/** A sign-out waits this long for the changes to be sent, and looks this often. */
const SEND_ALL_MS = 10_000;
const SEND_CHECK_MS = 50;

const notice = requireElement("#notice", HTMLElement);

const outbox = new Outbox();
const state = new State(outbox);
const offlineCopy = new OfflineCopy(state);
const session = new SessionView({
  forgetList: () => offlineCopy.forget(),
  sendChanges,
  forgetChanges: () => outbox.clear(),
  onSignedIn,
});
const connection = new ConnectionState(renderNotice);
const api = new PageApi({
  fetch: createFetch(
    (response) => session.onResponse(response),
    (isWaiting) => connection.set({ isWaiting }),
  ),
  retries: 0,
});
const sender = new Sender({
  api,
  outbox,
  state,
  identify: () => session.identify(),
  isOwnerSignedIn: () => session.isOwnerSignedIn(),
  onDelay,
  onRejected: (change, rejections) => {
    actions.forget(rejections.map(({ target }) => target.id));
    showToast(...describeRejections(change, rejections));
  },
});
const choice = new UserChoice();
const view = new ListView(state, choice);
const actions = new Actions(outbox, state, choice, view);
const composer = new Composer(actions);
installShortcuts(composer, view, actions);

outbox.addEventListener("change", () => {
  if (state.needsList) api.reload();
  if (outbox.size === 0) onDelay();
  renderNotice();
  view.scheduleRender();
});

/** Sends changes without waiting for an undo. Resolves to the number of changes that are left when the connection fails. */
async function sendChanges(): Promise<number> {
  const end = performance.now() + SEND_ALL_MS;
  outbox.release();
  while (outbox.sendable.some((one) => !isWaiting(one)) && connection.canSend && performance.now() < end)
    await delay(SEND_CHECK_MS, undefined);
  return outbox.size;
}

/** Says what keeps the list and the user's changes from being current. */
function renderNotice(): void {
  const text = describeConnection(connection.value, outbox.size, !outbox.unstored.aborted, state.lastList);
  if (notice.textContent !== "" && text === "") announce("Reconnected.");
  if (notice.textContent !== text) notice.textContent = text;
}

function onDelay(sendError?: TodoApiError): void {
  // Another window may have sent what this one could not.
  connection.set({ sendError: outbox.size > 0 ? sendError : undefined });
  if (sendError !== undefined && isBrowserRejected(sendError)) session.onRejected(sendError);
}

/** Unsent changes belong to who made them. Someone else sees what is deleted. */
function onSignedIn({ scope }: Session, owner: string): void {
  if (scope === "read") {
    composer.setReadOnly();
    view.setReadOnly();
  }
  outbox.owner = owner;
  const titles = outbox.dropForeign().flatMap(({ targets }) => targets.map(({ title }) => title));
  if (titles.length > 0) showToast("Changes of another user were not sent: ", ...nameAll(titles), ".");
}

function onState({ todos, position, status, error }: ListState): void {
  if (state.isLive) state.liveUntil = performance.now();
  state.isLive = status === "connected";
  if (position !== undefined) onList(todos, position);
  if (status === "connected") onConnected();
  else if (status === "disconnected") onDisconnected(error);
}

function onList(todos: readonly Todo[], position: string): void {
  if (state.position !== undefined && Number.isNaN(lead(position, state.position))) reportMissing(todos);
  if (state.position === undefined) prepareSearch(todos);
  const isChanged = state.confirmed !== todos;
  if (isChanged && state.lastList === undefined && state.confirmed.length > 0) announceSoon();
  state.setList(todos, position);
  if (state.needsList) api.reload();
  composer.takeSharedText();
  if (!isChanged) return;
  state.lastList = undefined;
  offlineCopy.onChanged();
  view.scheduleRender();
}

/** Says how many to-dos are gone because the service has another list than before. */
function reportMissing(todos: readonly Todo[]): void {
  const missing = state.confirmed.filter(({ id, title }) => findTodo(todos, id)?.title !== title).length;
  if (missing === 0) return;
  const subject =
    missing === 1 ? "1 to-do that was here is" : `${formatCount(missing)} to-dos that were here are`;
  showToast(`The service has a different list since it restarted. ${subject} not in it.`);
}

function onConnected(): void {
  state.lastList = undefined;
  connection.set({ stream: "connected", isPolling: false, error: undefined, isWaiting: false });
  offlineCopy.onConnected();
}

function onDisconnected(error: unknown): void {
  offlineCopy.onDisconnected();
  if (error instanceof TodoApiError && error.code === "unexpected_answer") offlineCopy.onForeignAnswer();
  // Not before an answer or a failure: a sign-in may be necessary, and then needs the text in the address.
  if (state.isLoaded) composer.takeSharedText();
  else view.showFailure(errorMessage(error));
  connection.onDisconnected(error);
}

/** Shows the list that the browser kept, until the service answers. */
function showLastList(list: LastList | undefined): void {
  const isLate = state.isLoaded || state.confirmed.length > 0;
  if (list === undefined || isLate || !session.isOwnerSignedIn()) return;
  state.lastList = list;
  state.confirmed = list.todos;
  renderNotice();
  view.render();
}

let announcementTimer: ReturnType<typeof setTimeout> | undefined;

/** Announces the counts after `ANNOUNCE_INTERVAL_MS`, once for all changes until then. */
function announceSoon(): void {
  if (announcementTimer !== undefined) return;
  announcementTimer = setTimeout(() => {
    announcementTimer = undefined;
    const { todos, totalOpen } = view.find();
    announce(`${formatCount(totalOpen)} open, ${formatCount(todos.length - totalOpen)} done.`);
  }, ANNOUNCE_INTERVAL_MS);
}

requireElement("#app", HTMLElement).hidden = false;
view.render();
requireElement(".no-script", HTMLElement).remove();

// A phone discards hidden pages without an event. Where there is a mouse, timers run in them.
document.addEventListener("visibilitychange", () => {
  if (document.hidden && !hasMouse()) outbox.release();
});
addEventListener("pagehide", () => {
  if (session.isOwnerSignedIn()) sender.sendBeforeClosing();
});
addEventListener("pageshow", () => sender.continueAfterClosing());

const reading = readLastList();
reading.then(showLastList);
// A slow phone needs longer, and a browser with a damaged profile never answers.
const kept = await Promise.race([reading, delay(LAST_LIST_DELAY_MS, undefined).then(() => undefined)]);

api
  .follow({
    from: kept?.todos.length === kept?.total ? kept : undefined,
    onState,
    overlay: state.overlay,
    onTooManyWindows: () => connection.set({ stream: "full" }),
    onPolled: (isPolling) => connection.set({ isPolling }),
    onFirstPage: (todos) => {
      if (state.isLoaded) return;
      state.confirmed = todos;
      view.scheduleRender();
    },
    send: (signal) => sender.run(signal),
  })
  .catch((error) => {
    if (!(error instanceof TodoApiError)) throw error;
    session.onRejected(error);
  });
