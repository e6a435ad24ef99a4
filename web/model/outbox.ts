import type { Todo, TodoId } from "../../src/sdk/client.ts";
import { type Confirmation, isNewId } from "../../src/sdk/overlay.ts";
import { findLocks } from "../locks.ts";
import { listSettings, onSettingChange, readSetting, writeSetting } from "../settings.ts";
import { type Change, type ChangeKind, isDeletion, newId, type Sent, type Target } from "./change.ts";
import { editChanges, openDatabase } from "./database.ts";

/** The maximum number of targets of one change. */
const MAX_TARGETS = 100;
/** Requests that a closing page may leave to the browser, which limits their bodies to 64 KiB. */
const MAX_CLOSING = 500;

/** The service's answer to one target of a change. */
export interface Answer extends Confirmation {
  /** The change. */
  readonly key: string;
  /** The id of the target, which differs from the to-do's if it is new. */
  readonly id: TodoId;
}

/** What a page leaves in localStorage when it closes, because the browser may abort its transactions then. */
interface Closing {
  /** The page's own changes. Those that IndexedDB has as they are have no targets here. */
  readonly changes: readonly (Omit<Change, "targets"> & Partial<Pick<Change, "targets">>)[];
  /** The keys of changes that were undone. */
  readonly undone: readonly string[];
}

const CLOSING = "closing.";
/** The lock that a window holds while it runs. */
const toLock = (id: string): string => `todo-service.window-${id}`;

/**
 * The user's unsent changes, in order. They survive the page in IndexedDB, and all windows of the browser share them. Each
 * edit applies here at once, and then to the stored changes, which decide. Each time, there is a `change` event.
 */
export class Outbox extends EventTarget {
  #changes: readonly Change[] = [];
  readonly #onAnswers: (answers: readonly Answer[]) => void;
  /** The number of edits that are not stored yet. */
  #pending = 0;
  /** The keys of the changes that these edits add, change or remove. */
  readonly #uncommitted = new Set<string>();
  #database: IDBDatabase | undefined;
  readonly #opened: Promise<void>;
  readonly #unstored = new AbortController();
  readonly #channel = new BroadcastChannel("todo-service.outbox");
  /** Who uses this window: who was signed in last, until the service answers; `undefined` if the service is not private. */
  owner = readSetting("owner");
  /** This window sends the changes of all windows. */
  sendsAll = false;
  /** The keys of the changes that were made in this page, or that it takes over. */
  readonly #mine = new Set<string>();
  readonly #window = newId();
  /** The other windows that hold deletions. */
  readonly #holders = new Set<string>();
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
    this.#start();
  }

  async #start(): Promise<void> {
    const reading = this.reload();
    const locks = await findLocks();
    locks?.request(toLock(this.#window), () => new Promise(() => {}));
    const changes = await reading;
    if (locks !== undefined) return;
    // Nothing shows which windows are gone, so this one sends what it finds at its start.
    for (const { key } of changes) this.#mine.add(key);
    await this.#release(({ heldBy }) => heldBy !== undefined && heldBy !== this.#window);
  }

  /** The changes of the owner. Those of someone else are neither shown nor sent. */
  get changes(): readonly Change[] {
    return this.#changes.every(this.#isOwn) ? this.#changes : this.#changes.filter(this.#isOwn);
  }

  /** The number of changes, where a change to many to-dos counts once for each. */
  get size(): number {
    return this.changes.reduce((sum, { targets }) => sum + targets.length, 0);
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
    for (const { heldBy } of this.#changes)
      if (heldBy !== undefined && heldBy !== this.#window) this.#releaseAfter(heldBy);
    this.dispatchEvent(new Event("change"));
  }

  /** Releases what another window holds when it is gone. */
  async #releaseAfter(holder: string): Promise<void> {
    if (this.#holders.has(holder)) return;
    this.#holders.add(holder);
    const locks = await findLocks();
    await locks?.request(toLock(holder), () => this.#release(({ heldBy }) => heldBy === holder));
  }

  /** Resolves to all changes when the edit is stored. */
  async #edit(edit: (changes: readonly Change[]) => readonly Change[]): Promise<readonly Change[]> {
    const before = this.#changes;
    this.#changes = edit(before);
    if (this.#changes !== before) {
      this.#noteEdited(before);
      this.#notify();
    }
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

  #noteEdited(before: readonly Change[]): void {
    const [old, current] = [new Set(before), new Set(this.#changes)];
    for (const change of [...before, ...this.#changes])
      if (!old.has(change) || !current.has(change)) this.#uncommitted.add(change.key);
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

  /**
   * Adds a change, in parts. It replaces unsent changes to the same to-dos, and has no targets that these have left as they were.
   * @param confirmed the to-dos that the service has as the change leaves them
   */
  add(
    kind: ChangeKind,
    targets: readonly Target[],
    { isHeld, confirmed }: { readonly isHeld: boolean; readonly confirmed: ReadonlySet<TodoId> },
  ): readonly Change[] {
    const parts = Array.from({ length: Math.ceil(targets.length / MAX_TARGETS) }, (_, index): Change => {
      const start = index * MAX_TARGETS;
      return {
        ...{ key: newId(), kind, targets: targets.slice(start, start + MAX_TARGETS).map(this.#rename) },
        ...(isHeld && { heldBy: this.#window }),
        ...(this.owner !== undefined && { owner: this.owner }),
      };
    });
    for (const { key } of parts) this.#mine.add(key);
    this.#edit((changes) => (isHeld ? [...changes, ...parts] : replaceUnsent(changes, parts, confirmed)));
    return parts;
  }

  /** Sends deletions that this window holds, or all of them, without waiting any longer. */
  release(parts = this.#changes): void {
    const keys = toKeys(parts);
    this.#release(({ key, heldBy }) => heldBy === this.#window && keys.has(key));
  }

  async #release(isReleased: (change: Change) => boolean): Promise<void> {
    await this.#edit((changes) =>
      changes.some(isReleased)
        ? changes.map((change) => (isReleased(change) ? { ...change, heldBy: undefined } : change))
        : changes,
    );
  }

  /** Returns whether a window still holds a deletion. */
  isHeld(parts: readonly Change[]): boolean {
    const keys = toKeys(parts);
    return this.#changes.some(({ key, heldBy }) => heldBy !== undefined && keys.has(key));
  }

  /** Takes a deletion back that is held. */
  withdraw(parts: readonly Change[]): void {
    const keys = toKeys(parts);
    this.#edit((changes) => changes.filter(({ key, sent }) => sent !== undefined || !keys.has(key)));
  }

  /** Returns whether an unsent change deletes a to-do. A closing page may have sent it before earlier changes. */
  isDeleting(id: TodoId): boolean {
    return this.changes.some(
      ({ kind, targets }) => isDeletion(kind) && targets.some((target) => target.id === id),
    );
  }

  /**
   * Returns whether a later change decides what becomes of a to-do, so that an earlier one need not be sent. A later `cleared`
   * does not, because it deletes only what the service has as done.
   */
  isReplaced({ key, kind }: Change, { id }: Target): boolean {
    const isLater = (change: Change): boolean =>
      change.key > key && change.heldBy === undefined && change.kind !== "cleared";
    return (
      kind !== "created" &&
      this.#changes.some((change) => isLater(change) && change.targets.some((target) => target.id === id))
    );
  }

  /** Returns whether this window may send a change now. */
  isReady({ key, heldBy }: Change): boolean {
    return heldBy === undefined && (this.sendsAll || this.#mine.has(key));
  }

  /** Marks a change as sent. Resolves to undefined if it was undone meanwhile. */
  async claim({ key }: Change, position: string): Promise<Change | undefined> {
    const sent: Sent = { at: Date.now(), position };
    let claimed: Change | undefined;
    await this.#edit((changes) => {
      claimed = changes.find((change) => change.key === key);
      if (claimed === undefined || claimed.sent !== undefined) return changes;
      return changes.map((change) => (change.key === key ? { ...change, sent } : change));
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
    this.#mine.add(newKey);
    await this.#edit((changes) =>
      changes.map((change) => {
        const renamed = { ...change, targets: change.targets.map(rename) };
        if (change.key !== key) return change.targets.some(({ id }) => ids.has(id)) ? renamed : change;
        const { sent, ...unsent } = renamed;
        return { ...unsent, key: newKey };
      }),
    );
  }

  #keepAnswers(answers: readonly Answer[]): void {
    if (answers.length === 0) return;
    for (const { id, kind, todo } of answers) if (kind === "create") this.#created.set(id, todo);
    this.#onAnswers(answers);
  }

  /**
   * Releases this page's changes, because it is about to close. Returns those that it sends.
   * @param position marks them as sent. Without it, the page sends none
   */
  releaseBeforeClosing(position: string | undefined): readonly Change[] {
    const sending: Change[] = [];
    let requests = 0;
    this.#changes = this.#changes.map((change) => {
      if (!this.#mine.has(change.key)) return change;
      const released = { ...change, heldBy: undefined };
      const { kind, targets, sent } = change;
      // A new to-do must be created first.
      const isNew = kind !== "created" && targets.some(({ id }) => isNewId(id));
      if (position === undefined || isNew || !this.#isOwn(change)) return released;
      requests += targets.length;
      if (requests > MAX_CLOSING) return released;
      const sentNow = { ...released, sent: sent ?? { at: Date.now(), position } };
      sending.push(sentNow);
      return sentNow;
    });
    const own = this.#changes.filter(({ key }) => this.#mine.has(key));
    const left = toKeys(this.#changes);
    const closing: Closing = {
      changes: own.map(({ targets, ...change }) =>
        this.#uncommitted.has(change.key) ? { ...change, targets } : change,
      ),
      undone: [...this.#uncommitted].filter((key) => !left.has(key)),
    };
    if (closing.changes.length + closing.undone.length > 0)
      writeSetting(CLOSING + newId(), JSON.stringify(closing));
    return sending;
  }

  /** Reads the stored changes again, with what closed windows left, and with the ids of new to-dos that were sent since. */
  async reload(): Promise<readonly Change[]> {
    const isRenamed = ({ kind, targets }: Change): boolean =>
      kind !== "created" && targets.some(({ id }) => this.#created.has(id));
    let left: ReadonlyMap<string, string> = new Map();
    const changes = await this.#edit((changes) => {
      left = listSettings(CLOSING);
      const closings: readonly Closing[] = [...left.values()].map((text) => JSON.parse(text));
      for (const { key } of closings.flatMap((closing) => closing.changes)) this.#mine.add(key);
      const all = closings.length === 0 ? changes : addLeft(changes, closings);
      return all.some(isRenamed)
        ? all.map((one) => (isRenamed(one) ? { ...one, targets: one.targets.map(this.#rename) } : one))
        : all;
    });
    for (const name of left.keys()) writeSetting(name);
    return changes;
  }
}

const toKeys = (changes: readonly Change[]): ReadonlySet<string> => new Set(changes.map(({ key }) => key));
const toIds = (changes: readonly Change[]): ReadonlySet<TodoId> =>
  new Set(changes.flatMap(({ targets }) => targets.map(({ id }) => id)));

/**
 * Adds what closed windows left. Doing so twice changes nothing. A change that IndexedDB had and no longer has was sent
 * meanwhile, so it stays removed.
 */
function addLeft(changes: readonly Change[], closings: readonly Closing[]): readonly Change[] {
  const byKey = new Map(changes.map((change) => [change.key, change]));
  for (const { targets, ...change } of closings.flatMap((closing) => closing.changes)) {
    const stored = byKey.get(change.key);
    const ids = targets && new Set(targets.map(({ id }) => id));
    const left = stored?.targets.filter(({ id }) => ids?.has(id) ?? true) ?? targets;
    if (left !== undefined) byKey.set(change.key, { ...change, ...stored, heldBy: undefined, targets: left });
  }
  for (const key of closings.flatMap(({ undone }) => undone))
    if (byKey.get(key)?.sent === undefined) byKey.delete(key);
  return [...byKey.values()].sort((a, b) => (a.key < b.key ? -1 : 1));
}

/** Adds the parts of a change in place of unsent changes to the same to-dos. */
function replaceUnsent(
  changes: readonly Change[],
  parts: readonly Change[],
  confirmed: ReadonlySet<TodoId>,
): readonly Change[] {
  const ids = toIds(parts);
  const deletes = parts.some(({ kind }) => isDeletion(kind));
  const isReplaced = ({ kind, sent, heldBy }: Change, id: TodoId): boolean =>
    ids.has(id) && sent === undefined && heldBy === undefined && (deletes || kind !== "created");
  const left = filterTargets(changes, (change, { id }) => !isReplaced(change, id));
  const [before, after] = [toIds(changes), toIds(left)];
  const isNeeded = (id: TodoId): boolean => !before.has(id) || after.has(id) || !confirmed.has(id);
  return [...left, ...filterTargets(parts, (_part, { id }) => isNeeded(id))];
}

/** Returns the changes with some of their targets, and without those that have none left. */
const filterTargets = (
  changes: readonly Change[],
  isLeft: (change: Change, target: Target) => boolean,
): readonly Change[] =>
  changes.flatMap((change) => {
    const targets = change.targets.filter((target) => isLeft(change, target));
    if (targets.length === change.targets.length) return [change];
    return targets.length > 0 ? [{ ...change, targets }] : [];
  });

/** Without space on the disk, changes last as long as the page. */
function ignoreFullStorage(error: unknown): undefined {
  if (!(error instanceof DOMException)) throw error;
}
