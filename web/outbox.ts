import { compareIds, type Todo, type TodoId } from "../src/sdk/client.ts";
import { indexOf } from "../src/sdk/json.ts";
import { type Change, type ChangeKind, isDeletion, isNewId, newId, type Target } from "./change.ts";
import { editChanges, openDatabase } from "./outbox-database.ts";
import { listSettings, onSettingChange, readSetting, writeSetting } from "./settings.ts";

/** How long a change can be undone before it is sent. */
const UNDO_MS = 6000;
/** A change of another window is sent after this time, even if that window no longer runs. */
const ABANDONED_MS = 30_000;
/** How long the list may take to show a change that the service has confirmed. */
const CONFIRMED_MS = 1000;

/** A to-do as the service has confirmed it, while the list does not show it yet. */
interface Confirmed {
  readonly kind: ChangeKind;
  /** The id of the target, which differs from the to-do's if it is new. */
  readonly id: TodoId;
  readonly todo: Todo;
}

/** What a page leaves in localStorage when it closes, because the browser may abort its transactions then. */
interface Closing {
  /** The page's own changes. Those that IndexedDB has have no targets here. */
  readonly changes: readonly Change[];
  /** The keys of changes that were undone. */
  readonly undone: readonly string[];
}

const CLOSING = "closing.";

const getTime = (id: TodoId): number => Number(id.slice(0, -20)) / 1000;

/**
 * The user's unsent changes, in order. They survive the page in IndexedDB, and all windows of the browser share them. Each
 * edit applies here at once, and then to the stored changes, which decide. Each time, there is a `change` event.
 */
export class Outbox extends EventTarget {
  #changes: readonly Change[] = [];
  #confirmed: readonly Confirmed[] = [];
  /** The number of edits that are not stored yet. */
  #pending = 0;
  /** The keys of the changes that these edits add or undo. */
  readonly #uncommitted = new Set<string>();
  #database: IDBDatabase | undefined;
  readonly #opened: Promise<void>;
  readonly #unstored = new AbortController();
  readonly #channel = new BroadcastChannel("todo-service.outbox");
  /** The list follows the events of the service. Without them, it does not show changes that were confirmed. */
  isLive = false;
  /** Who uses this window: who was signed in last, until the service answers; `undefined` if the service is not private. */
  owner = readSetting("owner");
  /** This window sends the changes of all windows. */
  sendsAll = false;
  /** The timers of the changes that were made in this page, by key. */
  readonly #timers = new Map<string, ReturnType<typeof setTimeout> | undefined>();
  readonly #created = new Map<TodoId, Todo>();

  constructor() {
    super();
    this.#opened = openDatabase().then((database) => {
      this.#database = database;
      if (database === undefined) this.#unstored.abort();
    });
    // Windows tell each other what the service has confirmed.
    this.#channel.onmessage = ({ data }: MessageEvent<readonly Confirmed[]>) => {
      this.#keepConfirmed(data);
      this.reload();
    };
    onSettingChange((name) => {
      if (name.startsWith(CLOSING) && readSetting(name) !== undefined) this.reload();
    });
    this.reload();
  }

  /** The changes of the owner. Those of someone else are neither shown nor sent. */
  get changes(): readonly Change[] {
    return this.#changes.every(this.#isOwn) ? this.#changes : this.#changes.filter(this.#isOwn);
  }

  readonly #isOwn = ({ owner }: Change): boolean =>
    owner === undefined || this.owner === undefined || owner === this.owner;

  /** Aborts when the browser does not store changes. They then last as long as the page, and only this window has them. */
  get unstored(): AbortSignal {
    return this.#unstored.signal;
  }

  /** The to-dos that the service has created, by their `newId()`. */
  get created(): ReadonlyMap<TodoId, Todo> {
    return this.#created;
  }

  #notify(): void {
    this.dispatchEvent(new Event("change"));
  }

  /** Resolves to all changes when the edit is stored. */
  async #edit(
    edit: (changes: readonly Change[]) => readonly Change[],
    confirmed: readonly Confirmed[] = [],
  ): Promise<readonly Change[]> {
    const before = this.#changes;
    this.#changes = edit(before);
    if (this.#changes !== before) this.#notify();
    this.#pending++;
    await this.#opened;
    let isEdited = false;
    const editStored = (stored: readonly Change[]): readonly Change[] => {
      const after = edit(stored);
      isEdited = after !== stored;
      if (!this.unstored.aborted) return after;
      // A full disk still deletes.
      const keys = new Set(after.map(({ key }) => key));
      return stored.filter(({ key }) => keys.has(key));
    };
    const stored = this.#database && (await editChanges(this.#database, editStored).catch(ignoreFullStorage));
    this.#pending--;
    if (stored === undefined) this.#unstored.abort();
    if (this.unstored.aborted) {
      // The stored changes may lack earlier edits, so the caller learns what this edit does here.
      edit(before);
    } else if (stored !== undefined && this.#pending === 0) {
      this.#uncommitted.clear();
      this.#changes = stored;
      this.#notify();
    }
    if (isEdited) this.#channel.postMessage(confirmed);
    return stored ?? this.#changes;
  }

  /** Deletes the changes of someone else who used this browser before. Passes them to `tell` first. */
  async dropForeign(tell: (changes: readonly Change[]) => void): Promise<void> {
    // The browser's database may answer later than the service.
    const foreign = (await this.reload()).filter((change) => !this.#isOwn(change));
    if (foreign.length === 0) return;
    tell(foreign);
    await this.#edit((changes) => changes.filter(this.#isOwn));
  }

  /** Deletes all changes, because the browser was signed out. */
  async clear(): Promise<void> {
    await this.#edit(() => []);
    for (const name of listSettings(CLOSING).keys()) writeSetting(name);
  }

  /** Adds a change, which can be undone for six seconds. A new to-do is sent at once. */
  add(kind: ChangeKind, targets: readonly Target[]): Change {
    const isReleased = kind === "created";
    const change: Change = {
      ...{ key: newId(), kind, targets: targets.map(this.#rename), isReleased },
      ...(this.owner !== undefined && { owner: this.owner }),
    };
    this.#timers.set(change.key, undefined);
    if (!isReleased) this.resume(change);
    this.#uncommitted.add(change.key);
    this.#edit((changes) => [...changes, change]);
    return change;
  }

  /** Keeps a change from being sent, while the user looks at its message. */
  pause({ key }: Change): void {
    clearTimeout(this.#timers.get(key));
  }

  resume(change: Change): void {
    this.pause(change);
    const timer = setTimeout(() => this.release(change), UNDO_MS);
    this.#timers.set(change.key, timer);
  }

  /** Sends changes without waiting any longer: a change with all earlier ones, or all of this page. */
  release(last?: Change): void {
    const isWaiting = ({ key, isReleased }: Change): boolean =>
      !isReleased && (last === undefined ? this.#timers.has(key) : key <= last.key);
    for (const change of this.#changes) if (isWaiting(change)) this.pause(change);
    this.#edit((changes) =>
      changes.some(isWaiting)
        ? changes.map((change) => (isWaiting(change) ? { ...change, isReleased: true } : change))
        : changes,
    );
  }

  /** Returns the last change that was not sent. */
  get undoable(): Change | undefined {
    return this.changes.findLast(({ sentAt }) => sentAt === undefined);
  }

  /** Takes a change back. Resolves to false if it was sent meanwhile, by another window. */
  async undo(change: Change): Promise<boolean> {
    this.pause(change);
    this.#uncommitted.add(change.key);
    let isUndone = false;
    await this.#edit((changes) => {
      isUndone = changes.some(({ key, sentAt }) => key === change.key && sentAt === undefined);
      return isUndone ? changes.filter(({ key }) => key !== change.key) : changes;
    });
    return isUndone;
  }

  /** Returns whether an unsent change deletes a to-do. A closing page may have sent it before earlier changes. */
  isDeleting(id: TodoId): boolean {
    return this.changes.some(
      ({ kind, targets }) => isDeletion(kind) && targets.some((target) => target.id === id),
    );
  }

  /** Returns the first change that may be sent now. Changes are sent in order, so a change that waits delays later ones. */
  next(isBlocked: (change: Change) => boolean): Change | undefined {
    const first = this.changes.find((change) => !isBlocked(change));
    return first !== undefined && this.#isReady(first) ? first : undefined;
  }

  #isReady({ key, isReleased }: Change): boolean {
    if (this.#timers.has(key)) return isReleased;
    const isAbandoned = Math.abs(Date.now() - getTime(key)) > ABANDONED_MS;
    return isAbandoned || (isReleased && this.sendsAll);
  }

  /** Marks a change as sent. Resolves to undefined if it was undone meanwhile. */
  async claim({ key }: Change): Promise<Change | undefined> {
    const sentAt = Date.now();
    let claimed: Change | undefined;
    await this.#edit((changes) => {
      claimed = changes.find((change) => change.key === key);
      if (claimed === undefined || claimed.sentAt !== undefined) return changes;
      const sent = { ...claimed, sentAt };
      return changes.map((change) => (change.key === key ? sent : change));
    });
    return claimed;
  }

  /**
   * Removes targets whose requests are done. `todos` has the to-dos that the service confirmed, by the id of the target.
   * Later changes to a new to-do that the service rejected are removed, too.
   */
  async settle(change: Change, done: ReadonlySet<TodoId>, todos: ReadonlyMap<TodoId, Todo>): Promise<void> {
    const confirmed = [...todos].map(([id, todo]) => ({ kind: change.kind, id, todo }));
    this.#keepConfirmed(confirmed);
    const isLeft = (key: string, id: TodoId): boolean =>
      !done.has(id) || (key !== change.key && !(isNewId(id) && !todos.has(id)));
    await this.#edit(
      (changes) =>
        changes.flatMap((one) => {
          if (one.key !== change.key && !one.targets.some(({ id }) => isNewId(id) && done.has(id)))
            return [one];
          const targets = one.targets.filter(({ id }) => isLeft(one.key, id)).map(this.#rename);
          return targets.length > 0 ? [{ ...one, targets }] : [];
        }),
      confirmed,
    );
  }

  readonly #rename = (target: Target): Target => {
    const todo = this.#created.get(target.id);
    return todo === undefined ? target : { id: todo.id, title: todo.title };
  };

  /** Removes a change without sending it, and later changes to its new to-dos. */
  drop(change: Change): Promise<void> {
    return this.settle(change, new Set(change.targets.map(({ id }) => id)), new Map());
  }

  /** Sends the new to-dos of a change again under new idempotency keys, as if they were added now. */
  async renew({ key, targets }: Change): Promise<void> {
    const ids = new Map(targets.map(({ id }) => [id, newId()]));
    const rename = (target: Target): Target => ({ ...target, id: ids.get(target.id) ?? target.id });
    const newKey = newId();
    await this.#edit((changes) =>
      changes.map((change) => {
        const renamed = { ...change, targets: change.targets.map(rename) };
        if (change.key !== key) return change.targets.some(({ id }) => ids.has(id)) ? renamed : change;
        const { sentAt, ...unsent } = renamed;
        return { ...unsent, key: newKey };
      }),
    );
  }

  #keepConfirmed(confirmed: readonly Confirmed[]): void {
    if (confirmed.length === 0) return;
    for (const { id, todo } of confirmed) if (isNewId(id)) this.#created.set(id, todo);
    this.#confirmed = [...this.#confirmed, ...confirmed];
    this.#notify();
    const timer = setInterval(() => {
      if (!this.isLive) return;
      clearInterval(timer);
      this.#confirmed = this.#confirmed.filter((one) => !confirmed.includes(one));
      this.#notify();
    }, CONFIRMED_MS);
  }

  /** Returns a list as it will be when everything is sent. Returns the same array if there is nothing to send. */
  apply(todos: readonly Todo[]): readonly Todo[] {
    if (this.changes.length === 0 && this.#confirmed.length === 0) return todos;
    const shown: (Todo | undefined)[] = [...todos];
    const added: Todo[] = [];
    for (const [id, todo] of this.#effects(todos)) {
      const index = indexOf(todos, id);
      if (todos[index]?.id === id) shown[index] = todo;
      else if (todo !== undefined) added.push(todo);
    }
    added.sort((a, b) => compareIds(a.id, b.id));
    return [...shown.filter((todo) => todo !== undefined), ...added];
  }

  /** Returns a to-do as the service has it, also if the list does not show its last change yet. */
  findConfirmed(todos: readonly Todo[], id: TodoId): Todo | undefined {
    const last = this.#confirmed.findLast(({ todo }) => todo.id === id);
    if (last === undefined) return findTodo(todos, id);
    return isDeletion(last.kind) ? undefined : last.todo;
  }

  /** Returns the to-dos that differ from the list, by id; undefined for a deleted one. */
  #effects(todos: readonly Todo[]): Map<TodoId, Todo | undefined> {
    const effects = new Map<TodoId, Todo | undefined>();
    const find = (id: TodoId): Todo | undefined => (effects.has(id) ? effects.get(id) : findTodo(todos, id));
    const unanswered = this.#unanswered(todos);
    for (const { kind, todo } of this.#confirmed) effects.set(todo.id, isDeletion(kind) ? undefined : todo);
    for (const { kind, targets } of this.changes) {
      for (const { id, title, done = false, after = "" } of targets) {
        const todo = find(id);
        if (kind === "created") {
          if (this.#created.has(id)) continue;
          effects.set(id, { id, title, done });
          const isSame = (one: Todo): boolean => one.title === title && compareIds(one.id, after) > 0;
          const same = unanswered.find((one) => isSame(one) && !effects.has(one.id));
          if (same !== undefined) effects.set(same.id, undefined);
        } else if (todo?.title !== title || (kind === "cleared" && !todo.done)) continue;
        else if (kind === "done" || kind === "open") {
          const isDone = kind === "done";
          effects.set(id, todo.done === isDone ? todo : { ...todo, done: isDone });
        } else effects.set(id, undefined);
      }
    }
    return effects;
  }

  /** Returns the to-dos that may be new ones whose creation has no answer yet, so that the list shows them once. */
  #unanswered(todos: readonly Todo[]): readonly Todo[] {
    const created = this.changes.filter(({ kind }) => kind === "created");
    if (created.length === 0) return [];
    const titles = new Set(created.flatMap(({ targets }) => targets.map(({ title }) => title)));
    const answered = new Set([...this.#created.values()].map(({ id }) => id));
    return todos.filter(({ id, title }) => titles.has(title) && !answered.has(id));
  }

  /** Releases this page's changes, because it is about to close, and returns them. @param sentAt marks them as sent */
  releaseBeforeClosing(sentAt?: number): readonly Change[] {
    this.#changes = this.#changes.map((change) => {
      if (!this.#timers.has(change.key)) return change;
      return { ...(sentAt !== undefined && { sentAt }), ...change, isReleased: true };
    });
    const own = this.#changes.filter(({ key }) => this.#timers.has(key));
    const left = new Set(this.#changes.map(({ key }) => key));
    const closing: Closing = {
      changes: own.map((change) => (this.#uncommitted.has(change.key) ? change : { ...change, targets: [] })),
      undone: [...this.#uncommitted].filter((key) => !left.has(key)),
    };
    if (closing.changes.length + closing.undone.length > 0)
      writeSetting(CLOSING + newId(), JSON.stringify(closing));
    return own;
  }

  /** Reads the stored changes again, with what closed windows left, and with the ids of new to-dos that were sent since. */
  async reload(): Promise<readonly Change[]> {
    const isRenamed = ({ kind, targets }: Change): boolean =>
      kind !== "created" && targets.some(({ id }) => this.#created.has(id));
    let left: ReadonlyMap<string, string> = new Map();
    const changes = await this.#edit((changes) => {
      left = listSettings(CLOSING);
      const all = left.size === 0 ? changes : addLeft(changes, [...left.values()]);
      return all.some(isRenamed)
        ? all.map((one) => (isRenamed(one) ? { ...one, targets: one.targets.map(this.#rename) } : one))
        : all;
    });
    for (const name of left.keys()) writeSetting(name);
    return changes;
  }
}

/**
 * Adds what closed windows left. Doing so twice changes nothing. A change that IndexedDB had and no longer has was sent
 * meanwhile, so it stays removed.
 */
function addLeft(changes: readonly Change[], left: readonly string[]): readonly Change[] {
  const closings: readonly Closing[] = left.map((text) => JSON.parse(text));
  const byKey = new Map(changes.map((change) => [change.key, change]));
  for (const change of closings.flatMap((closing) => closing.changes)) {
    const stored = byKey.get(change.key);
    if (stored !== undefined || change.targets.length > 0)
      byKey.set(change.key, { ...change, ...stored, isReleased: true });
  }
  for (const key of closings.flatMap(({ undone }) => undone))
    if (byKey.get(key)?.sentAt === undefined) byKey.delete(key);
  return [...byKey.values()].sort((a, b) => (a.key < b.key ? -1 : 1));
}

/** Without space on the disk, changes last as long as the page. */
function ignoreFullStorage(error: unknown): undefined {
  if (!(error instanceof DOMException)) throw error;
}

function findTodo(todos: readonly Todo[], id: TodoId): Todo | undefined {
  const todo = todos[indexOf(todos, id)];
  return todo?.id === id ? todo : undefined;
}
