import type { Todo, TodoId } from "../../src/sdk/client.ts";
import type { Confirmation } from "../../src/sdk/overlay.ts";
import { listSettings, onSettingChange, readSetting, writeSetting } from "../settings.ts";
import { type Change, type ChangeKind, isDeletion, newId, passId, type Target } from "./change.ts";
import { editChanges, openDatabase } from "./database.ts";
import * as edits from "./edits.ts";

/** The service's answer to one target of a change. */
export interface Answer extends Confirmation {
  /** The change. */
  readonly key: string;
  /** The id of the target, which differs from the to-do's if it is new. */
  readonly id: TodoId;
}

type Edit = (changes: readonly Change[]) => readonly Change[];

const CLOSING = "closing.";

/**
 * The user's unsent changes, in order. They survive the page in IndexedDB, and all windows of the browser share them. Each
 * edit applies here at once, and then to the stored changes, which decide. Each time, there is a `change` event. A deletion
 * waits here first, so that it can be undone: until it is released, only this window knows it.
 */
export class Outbox extends EventTarget {
  #stored: readonly Change[] = [];
  /** The keys of the changes that edits of this page have removed since IndexedDB had all of its edits. */
  readonly #ended = new Set<string>();
  /** The deletions that can be undone. */
  #held: readonly Change[] = [];
  #onAnswers = (_answers: readonly Answer[]): void => {};
  /** The number of edits that are not stored yet. */
  #pending = 0;
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
  readonly #found: Promise<readonly Change[]>;
  readonly #created = new Map<TodoId, Todo>();

  constructor() {
    super();
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
    this.#found = this.reload();
  }

  /** Calls a function with the service's answers to changes, also to those that other windows have sent. */
  onAnswers(run: (answers: readonly Answer[]) => void): void {
    this.#onAnswers = run;
  }

  /** The changes of the owner, in order. Those of someone else are neither shown nor sent. */
  get changes(): readonly Change[] {
    return [...this.sendable, ...this.#held];
  }

  /** The changes of the owner that wait for the service only. */
  get sendable(): readonly Change[] {
    return this.#stored.filter(this.#isOwn);
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
    this.dispatchEvent(new Event("change"));
  }

  /**
   * Resolves to all changes when the edit is stored.
   * @param here what applies here at once
   */
  async #edit(edit: Edit, here = edit): Promise<readonly Change[]> {
    const before = this.#stored;
    this.#apply(here);
    if (this.#stored !== before) this.#notify();
    this.#pending++;
    await this.#opened;
    let isEdited = false;
    const editStored = (stored: readonly Change[]): readonly Change[] => {
      for (const { key } of stored.slice(-1)) passId(key);
      const after = edit(stored);
      isEdited = after !== stored;
      if (!this.unstored.aborted) return after;
      // A full disk still deletes.
      const keys = edits.toKeys(after);
      return stored.filter(({ key }) => keys.has(key));
    };
    const stored = this.#database && (await editChanges(this.#database, editStored).catch(ignoreFullStorage));
    this.#pending--;
    if (stored === undefined) this.#unstored.abort();
    if (this.unstored.aborted) {
      // The stored changes may lack earlier edits, so the caller learns what this edit does here.
      edit(before);
    } else if (stored !== undefined && this.#pending === 0) {
      this.#stored = stored;
      this.#ended.clear();
      this.#notify();
    }
    if (isEdited) this.#channel.postMessage([]);
    return stored ?? this.#stored;
  }

  /** Applies an edit here only. */
  #apply(edit: Edit): void {
    const before = this.#stored;
    this.#stored = edit(before);
    for (const key of edits.toKeys(before).difference(edits.toKeys(this.#stored))) this.#ended.add(key);
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
    this.#held = [];
    await this.#edit(() => []);
    for (const name of listSettings(CLOSING).keys()) writeSetting(name);
  }

  /**
   * Adds a change, in parts, in place of unsent ones to the same to-dos.
   * @param confirmed the to-dos that the service has as the change leaves them
   */
  add(kind: ChangeKind, targets: readonly Target[], confirmed: ReadonlySet<TodoId>): readonly Change[] {
    const parts = this.#split(kind, targets);
    this.#store(parts, confirmed);
    return parts;
  }

  /** Adds a deletion, in parts, which can be undone until it is released. */
  hold(kind: ChangeKind, targets: readonly Target[]): readonly Change[] {
    const parts = this.#split(kind, targets);
    this.#held = [...this.#held, ...parts];
    this.#notify();
    return parts;
  }

  #split(kind: ChangeKind, targets: readonly Target[]): readonly Change[] {
    return Array.from({ length: Math.ceil(targets.length / edits.MAX_TARGETS) }, (_, index): Change => {
      const start = index * edits.MAX_TARGETS;
      const part = targets.slice(start, start + edits.MAX_TARGETS);
      return {
        ...{ key: newId(), kind, targets: part.map((target) => edits.renameTarget(target, this.#created)) },
        ...(this.owner !== undefined && { owner: this.owner }),
      };
    });
  }

  #store(added: readonly Change[], confirmed: ReadonlySet<TodoId> = new Set()): void {
    for (const { key } of added) this.#mine.add(key);
    this.#edit((changes) => edits.replaceUnsent(changes, added, confirmed));
  }

  /** Sends deletions that are held, or all of them, without waiting any longer. */
  release(parts = this.#held): void {
    const released = this.#takeHeld(parts);
    if (released.length > 0) this.#store(released);
  }

  /** Ends the wait of deletions. They get new keys, because the order of the releases decides, and not that of the clicks. */
  #takeHeld(parts: readonly Change[]): readonly Change[] {
    const keys = edits.toKeys(parts);
    const taken = this.#held.filter(({ key }) => keys.has(key));
    this.#held = this.#held.filter(({ key }) => !keys.has(key));
    return taken.map((change) => ({ ...change, key: newId() }));
  }

  /** Returns whether a deletion can still be undone. */
  isHeld(parts: readonly Change[]): boolean {
    const keys = edits.toKeys(parts);
    return this.#held.some(({ key }) => keys.has(key));
  }

  /** Takes a deletion back that is held. */
  withdraw(parts: readonly Change[]): void {
    this.#takeHeld(parts);
    this.#notify();
  }

  /** Returns whether an unsent change deletes a to-do. A closing page may have sent it before earlier changes. */
  isDeleting(id: TodoId): boolean {
    return this.changes.some(
      ({ kind, targets }) => isDeletion(kind) && targets.some((target) => target.id === id),
    );
  }

  /** Returns the changes that this window may send now, in groups that do not wait for each other. */
  selectReady(sending: ReadonlySet<string>): readonly (readonly Change[])[] {
    return edits.selectReady(this.sendable, sending, ({ key }) => this.sendsAll || this.#mine.has(key));
  }

  /** Sends what the page found at its start, because without Web Locks nothing shows which windows are gone. */
  async takeOver(): Promise<void> {
    for (const { key } of await this.#found) this.#mine.add(key);
  }

  /** Marks a change as sent. Resolves to undefined if it was undone meanwhile. */
  async claim({ key }: Change, position: string): Promise<Change | undefined> {
    let claimed: Change | undefined;
    await this.#edit((changes) => {
      claimed = changes.find((change) => change.key === key);
      return edits.markSent(changes, new Set([key]), position);
    });
    return claimed;
  }

  /** Removes targets whose requests are done, with the service's answers to them. */
  async settle({ key }: Change, done: ReadonlySet<TodoId>, answers: readonly Answer[]): Promise<void> {
    this.#keepAnswers(answers);
    // Other windows need the answers before they see that the change is gone.
    this.#channel.postMessage(answers);
    const settle = (changes: readonly Change[]): readonly Change[] =>
      edits.settle(changes, key, done, this.#created);
    this.#held = settle(this.#held);
    await this.#edit(settle);
  }

  /** Removes targets of a change without sending them, and later changes to its new to-dos. */
  drop(change: Change, targets: readonly Target[]): Promise<void> {
    return this.settle(change, new Set(targets.map(({ id }) => id)), []);
  }

  #keepAnswers(answers: readonly Answer[]): void {
    if (answers.length === 0) return;
    for (const { id, kind, todo } of answers) if (kind === "create") this.#created.set(id, todo);
    this.#held = edits.rename(this.#held, this.#created);
    this.#onAnswers(answers);
  }

  /**
   * Releases this page's changes, because it is about to close. Returns those that it sends.
   * @param position marks them as sent. Without it, the page sends none
   */
  releaseBeforeClosing(position: string | undefined): readonly Change[] {
    const released = this.#takeHeld(this.#held);
    for (const { key } of released) this.#mine.add(key);
    this.#apply((changes) => edits.replaceUnsent(changes, released, new Set()));
    const own = this.sendable.filter(({ key }) => this.#mine.has(key));
    const sending = edits.toKeys(position === undefined ? [] : edits.selectClosing(own));
    this.#stored = edits.markSent(this.#stored, sending, position ?? "");
    const closing = edits.toClosing(this.#stored, this.#mine, this.#ended);
    // After a sign-out, nothing may stay in the browser.
    if (readSetting("owner") === this.owner && closing.changes.length + this.#pending > 0)
      writeSetting(CLOSING + newId(), JSON.stringify(closing));
    return this.#stored.filter(({ key }) => sending.has(key));
  }

  /** Reads the stored changes again, with what closed windows left, and with the ids of new to-dos that were sent since. */
  async reload(): Promise<readonly Change[]> {
    let left: ReadonlyMap<string, string> = new Map();
    const rename: Edit = (changes) => edits.rename(changes, this.#created);
    const addLeft: Edit = (changes) => {
      left = listSettings(CLOSING);
      const closings = [...left.values()].flatMap(parseClosing);
      for (const { key } of closings.flatMap((closing) => closing.changes)) this.#mine.add(key);
      return rename(edits.addLeft(changes, closings));
    };
    // A change that was left must not be sent before earlier ones that only IndexedDB has.
    let changes = await this.#edit(addLeft, rename);
    if (this.unstored.aborted) {
      this.#stored = addLeft(this.#stored);
      this.#notify();
      changes = this.#stored;
    }
    for (const name of left.keys()) writeSetting(name);
    return changes;
  }
}

/** Returns no entry for a text that another program of this origin, or another version of the page, has written. */
function parseClosing(text: string): readonly edits.Closing[] {
  try {
    const { changes, ended } = JSON.parse(text);
    return Array.isArray(changes) && Array.isArray(ended) ? [{ changes, ended }] : [];
  } catch {
    return [];
  }
}

/** Without space on the disk, changes last as long as the page. */
function ignoreFullStorage(error: unknown): undefined {
  if (!(error instanceof DOMException)) throw error;
}
