import type { Todo, TodoId } from "../src/sdk/client.ts";
import { type Confirmation, isNewId } from "../src/sdk/overlay.ts";
import { type Change, type ChangeKind, INVERSES, isDeletion, newId, type Target } from "./change.ts";
import { editChanges, openDatabase } from "./outbox-database.ts";
import { listSettings, onSettingChange, readSetting, writeSetting } from "./settings.ts";

/** How long a deletion can be undone before it is sent. */
const HOLD_MS = 6000;
/** A deletion that another window holds is sent after this time, because that window no longer runs. */
const ABANDONED_MS = 30_000;

/** The service's answer to one target of a change. */
export interface Answer extends Confirmation {
  /** The change. */
  readonly key: string;
  /** The id of the target, which differs from the to-do's if it is new. */
  readonly id: TodoId;
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
  readonly #onAnswers: (answers: readonly Answer[]) => void;
  /** The number of edits that are not stored yet. */
  #pending = 0;
  /** The keys of the changes that these edits add or undo. */
  readonly #uncommitted = new Set<string>();
  #database: IDBDatabase | undefined;
  readonly #opened: Promise<void>;
  readonly #unstored = new AbortController();
  readonly #channel = new BroadcastChannel("todo-service.outbox");
  /** Who uses this window: who was signed in last, until the service answers; `undefined` if the service is not private. */
  owner = readSetting("owner");
  /** This window sends the changes of all windows. */
  sendsAll = false;
  /** The keys of the changes that were made in this page. */
  readonly #made = new Set<string>();
  /** The timers of its deletions that can be undone, by key. */
  readonly #timers = new Map<string, ReturnType<typeof setTimeout>>();
  readonly #created = new Map<TodoId, Todo>();

  /** @param onAnswers gets the service's answers to changes, also those that other windows have sent */
  constructor(onAnswers: (answers: readonly Answer[]) => void) {
    super();
    this.#onAnswers = onAnswers;
    this.#opened = openDatabase().then((database) => {
      this.#database = database;
      if (database === undefined) this.#unstored.abort();
    });
    this.#channel.onmessage = ({ data }: MessageEvent<readonly Answer[]>) => {
      this.#keepAnswers(data);
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
  async #edit(edit: (changes: readonly Change[]) => readonly Change[]): Promise<readonly Change[]> {
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
    if (isEdited) this.#channel.postMessage([]);
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

  /** Adds a change. If the service has its values already, an unsent change that it takes back leaves instead. */
  add(
    kind: ChangeKind,
    targets: readonly Target[],
    { isConfirmed, ...options }: { readonly isHeld?: boolean; readonly isConfirmed: boolean },
  ): Change {
    const change: Change = {
      ...{ key: newId(), kind, targets: targets.map(this.#rename), ...options },
      ...(this.owner !== undefined && { owner: this.owner }),
    };
    this.#made.add(change.key);
    if (options.isHeld === true) this.resume(change);
    this.#uncommitted.add(change.key);
    this.#edit((changes) => {
      const opposite = isConfirmed ? findOpposite(changes, change) : undefined;
      if (opposite === undefined) return [...changes, change];
      this.#uncommitted.add(opposite.key);
      return changes.filter((one) => one !== opposite);
    });
    return change;
  }

  /** Keeps a deletion from being sent, while the user looks at its message. */
  pause({ key }: Change): void {
    clearTimeout(this.#timers.get(key));
  }

  resume(change: Change): void {
    this.pause(change);
    const timer = setTimeout(() => this.release(change), HOLD_MS);
    this.#timers.set(change.key, timer);
  }

  /** Sends a deletion of this page, or all of them, without waiting any longer. */
  release(only?: Change): void {
    const isReleased = ({ key, isHeld }: Change): boolean =>
      isHeld === true && this.#made.has(key) && (only === undefined || key === only.key);
    for (const change of this.#changes) if (isReleased(change)) this.pause(change);
    this.#edit((changes) =>
      changes.some(isReleased)
        ? changes.map((change) => (isReleased(change) ? { ...change, isHeld: false } : change))
        : changes,
    );
  }

  /** Returns whether this window still holds a deletion. */
  isHeld({ key }: Change): boolean {
    return this.#changes.some((change) => change.key === key && change.isHeld === true);
  }

  /** Takes a deletion back that is held. Resolves to false if it was sent meanwhile, by another window. */
  async withdraw(change: Change): Promise<boolean> {
    this.pause(change);
    this.#uncommitted.add(change.key);
    let isWithdrawn = false;
    await this.#edit((changes) => {
      isWithdrawn = changes.some(({ key, sentAt }) => key === change.key && sentAt === undefined);
      return isWithdrawn ? changes.filter(({ key }) => key !== change.key) : changes;
    });
    return isWithdrawn;
  }

  /** Returns whether an unsent change deletes a to-do. A closing page may have sent it before earlier changes. */
  isDeleting(id: TodoId): boolean {
    return this.changes.some(
      ({ kind, targets }) => isDeletion(kind) && targets.some((target) => target.id === id),
    );
  }

  /** Returns whether this window may send a change now. */
  isReady({ key, isHeld = false }: Change): boolean {
    if (this.#made.has(key)) return !isHeld;
    const isAbandoned = Math.abs(Date.now() - getTime(key)) > ABANDONED_MS;
    return isAbandoned || (!isHeld && this.sendsAll);
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
   * Removes targets whose requests are done, with the service's answers to them. Later changes to a new to-do that the
   * service rejected are removed, too.
   */
  async settle({ key }: Change, done: ReadonlySet<TodoId>, answers: readonly Answer[]): Promise<void> {
    this.#keepAnswers(answers);
    // Other windows need the answers before they see that the change is gone.
    this.#channel.postMessage(answers);
    const isLeft = (one: Change, id: TodoId): boolean =>
      !done.has(id) || (one.key !== key && !(isNewId(id) && !this.#created.has(id)));
    await this.#edit((changes) =>
      changes.flatMap((one) => {
        if (one.key !== key && !one.targets.some(({ id }) => isNewId(id) && done.has(id))) return [one];
        const targets = one.targets.filter(({ id }) => isLeft(one, id)).map(this.#rename);
        return targets.length > 0 ? [{ ...one, targets }] : [];
      }),
    );
  }

  readonly #rename = (target: Target): Target => {
    const todo = this.#created.get(target.id);
    return todo === undefined ? target : { id: todo.id, title: todo.title };
  };

  /** Removes targets of a change without sending them, and later changes to its new to-dos. */
  drop(change: Change, targets = change.targets): Promise<void> {
    return this.settle(change, new Set(targets.map(({ id }) => id)), []);
  }

  /** Sends the new to-dos of a change again under new idempotency keys, as if they were added now. */
  async renew({ key, targets }: Change): Promise<void> {
    const ids = new Map(targets.map(({ id }) => [id, newId()]));
    const rename = (target: Target): Target => ({ ...target, id: ids.get(target.id) ?? target.id });
    const newKey = newId();
    this.#made.add(newKey);
    await this.#edit((changes) =>
      changes.map((change) => {
        const renamed = { ...change, targets: change.targets.map(rename) };
        if (change.key !== key) return change.targets.some(({ id }) => ids.has(id)) ? renamed : change;
        const { sentAt, ...unsent } = renamed;
        return { ...unsent, key: newKey };
      }),
    );
  }

  #keepAnswers(answers: readonly Answer[]): void {
    if (answers.length === 0) return;
    for (const { id, kind, todo } of answers) if (kind === "create") this.#created.set(id, todo);
    this.#onAnswers(answers);
  }

  /** Releases this page's changes, because it is about to close, and returns them. @param sentAt marks them as sent */
  releaseBeforeClosing(sentAt?: number): readonly Change[] {
    this.#changes = this.#changes.map((change) => {
      if (!this.#made.has(change.key)) return change;
      return { ...(sentAt !== undefined && { sentAt }), ...change, isHeld: false };
    });
    const own = this.#changes.filter(({ key }) => this.#made.has(key));
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
      byKey.set(change.key, { ...change, ...stored, isHeld: false });
  }
  for (const key of closings.flatMap(({ undone }) => undone))
    if (byKey.get(key)?.sentAt === undefined) byKey.delete(key);
  return [...byKey.values()].sort((a, b) => (a.key < b.key ? -1 : 1));
}

/** Returns the last change to the same to-dos, if it is not sent and the new one takes it back. */
function findOpposite(changes: readonly Change[], { kind, targets, isHeld }: Change): Change | undefined {
  const ids = new Set(targets.map(({ id }) => id));
  const last = changes.findLast((change) => change.targets.some(({ id }) => ids.has(id)));
  if (last === undefined || last.sentAt !== undefined || isHeld === true) return undefined;
  const isSame = last.targets.length === ids.size && last.targets.every(({ id }) => ids.has(id));
  return isSame && !isDeletion(last.kind) && INVERSES[last.kind] === kind ? last : undefined;
}

/** Without space on the disk, changes last as long as the page. */
function ignoreFullStorage(error: unknown): undefined {
  if (!(error instanceof DOMException)) throw error;
}
