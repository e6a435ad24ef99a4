import type { Todo, TodoId } from "../../src/sdk/client.ts";
import type { Confirmation } from "../../src/sdk/overlay.ts";
import { listSettings, onSettingChange, readSetting, writeSetting } from "../settings.ts";
import { type Change, type ChangeKind, newId, passId, type Target } from "./change.ts";
import * as edits from "./edits.ts";

/** The service's answer to one target of a change. */
export interface Answer extends Confirmation {
  /** The id of the target, which differs from the to-do's if it is new. */
  readonly id: TodoId;
}

/** The settings with this prefix hold one change each, by its key. */
const CHANGE = "change.";
/** A message to the other windows, which get it before they see that the answered changes are gone. */
const ANSWERS = "answers";
/** A message to the other windows: the keys of the changes that a closing page leaves. */
const LEFT = "left";

/**
 * The user's unsent changes, in order. They survive the page in localStorage, and all windows of the browser share them. A
 * deletion waits in the memory of its window first, so that it can be undone. Each edit is followed by a `change` event.
 */
export class Outbox extends EventTarget {
  #all: readonly Change[] = [];
  readonly #unstored = new AbortController();
  /** Aborts when the browser does not store changes. They then last as long as the page, and only this window has them. */
  readonly unstored = this.#unstored.signal;
  /** Takes the service's answers to changes, also to those that other windows have sent. */
  onAnswers = (_answers: readonly Answer[]): void => {};
  /** Who uses this window: who was signed in last, until the service answers; `undefined` if the service is not private. */
  owner = readSetting("owner");
  /** This window sends the changes of all windows. */
  sendsAll = false;
  /** The keys of the changes that this window sends without Web Locks: it made or found them, or a closed page left them. */
  readonly #mine: Set<string>;
  readonly #created = new Map<TodoId, Todo>();

  constructor() {
    super();
    onSettingChange((name, value) => {
      if (name === ANSWERS && value !== undefined) this.#keepAnswers(JSON.parse(value));
      if (name === LEFT && value !== undefined) for (const key of JSON.parse(value)) this.#mine.add(key);
      if (!name.startsWith(CHANGE)) return;
      const others = this.#all.filter(({ key }) => CHANGE + key !== name);
      // The event may be older than what is stored.
      const stored = parseChange(name, readSetting(name));
      const isGone = stored.length === 0 && value !== undefined;
      const answered = isGone ? this.#all.filter((change) => !others.includes(change)).map(asSent) : stored;
      this.#receive([...others, ...answered]);
    });
    this.reload();
    this.#mine = new Set(edits.toKeys(this.#all));
  }

  /** The changes of the owner, in order. Those of someone else are neither shown nor sent. */
  get changes(): readonly Change[] {
    return this.#all.filter(this.#isOwn);
  }

  /** The changes of the owner that wait for the service only. */
  get sendable(): readonly Change[] {
    return this.changes.filter(({ isHeld }) => isHeld !== true);
  }

  /** The number of changes, where a change to many to-dos counts once for each. */
  get size(): number {
    return this.changes.reduce((sum, { targets }) => sum + targets.length, 0);
  }

  readonly #isOwn = ({ owner }: Change): boolean =>
    owner === undefined || this.owner === undefined || owner === this.owner;

  /** The to-dos that the service has created, by their `newId()`. */
  get created(): ReadonlyMap<TodoId, Todo> {
    return this.#created;
  }

  /** Edits what this window has, and stores the difference. */
  #edit(edit: (changes: readonly Change[]) => readonly Change[]): void {
    const [before, after] = [new Set(this.#all), edit(this.#all)];
    const [known, keys] = [edits.toKeys(this.#all), edits.toKeys(after)];
    const removed = this.#all.filter(({ key }) => !keys.has(key));
    const stored = after.filter((change) => !before.has(change));
    if (removed.length + stored.length === 0) return;
    for (const { key } of removed) writeSetting(CHANGE + key);
    // What another window has removed, such as at a sign-out, must not come back.
    for (const change of stored) if (!known.has(change.key) || isStored(change)) this.#store(change);
    this.#show(after);
  }

  #store(change: Change): void {
    if (change.isHeld === true || this.unstored.aborted) return;
    const name = CHANGE + change.key;
    if (writeSetting(name, JSON.stringify(change))) return;
    // Another window must not send an older version.
    writeSetting(name);
    this.#unstored.abort();
  }

  #show(changes: readonly Change[]): void {
    this.#all = changes;
    this.dispatchEvent(new Event("change"));
  }

  /** Shows what is stored, in the order of the keys. */
  #receive(changes: readonly Change[]): void {
    const sorted = changes.toSorted((a, b) => (a.key < b.key ? -1 : 1));
    for (const { key } of sorted.slice(-1)) passId(key);
    this.#show(edits.rename(sorted, this.#created));
  }

  /** Reads the stored changes. A page that was frozen has missed those of other windows. */
  reload(): void {
    if (!this.unstored.aborted) this.#receive([...readStored(), ...this.#all.filter(({ isHeld }) => isHeld)]);
  }

  /** Reads what another window has stored, before the events that say so: it may send a change. */
  #readAhead(): void {
    if (this.unstored.aborted) return;
    const stored = readStored();
    const known = edits.toKeys(stored);
    this.#receive([...stored, ...this.#all.filter(({ key }) => !known.has(key)).map(asSent)]);
  }

  /** Deletes the changes of someone else who used this browser before, and returns them. */
  dropForeign(): readonly Change[] {
    const foreign = this.#all.filter((change) => !this.#isOwn(change));
    if (foreign.length > 0) this.#edit((changes) => changes.filter(this.#isOwn));
    return foreign;
  }

  /** Deletes all changes, because the browser was signed out. */
  clear(): void {
    for (const name of listSettings(CHANGE).keys()) writeSetting(name);
    this.#show([]);
  }

  /**
   * Adds a change, in parts, in place of unsent ones to the same to-dos.
   * @param confirmed the to-dos that the service has as the change leaves them
   */
  add(kind: ChangeKind, targets: readonly Target[], confirmed: ReadonlySet<TodoId>): readonly Change[] {
    this.#readAhead();
    const parts = this.#split(kind, targets);
    this.#edit((changes) => edits.replaceUnsent(changes, parts, confirmed));
    return parts;
  }

  /** Adds a deletion, in parts, which can be undone until it is released. */
  hold(kind: ChangeKind, targets: readonly Target[]): readonly Change[] {
    const parts = this.#split(kind, targets).map((part) => ({ ...part, isHeld: true }));
    this.#edit((changes) => [...changes, ...parts]);
    return parts;
  }

  #split(kind: ChangeKind, targets: readonly Target[]): readonly Change[] {
    return Array.from({ length: Math.ceil(targets.length / edits.MAX_TARGETS) }, (_, index): Change => {
      const start = index * edits.MAX_TARGETS;
      const part = targets.slice(start, start + edits.MAX_TARGETS);
      return {
        ...{ key: this.#newKey(), kind },
        targets: part.map((target) => edits.renameTarget(target, this.#created)),
        ...(this.owner !== undefined && { owner: this.owner }),
      };
    });
  }

  #newKey(): string {
    const key = newId();
    this.#mine.add(key);
    return key;
  }

  /**
   * Sends deletions that are held, or all of them, without waiting any longer. They get new keys, because the order of the
   * releases decides, and not that of the clicks.
   */
  release(parts = this.#all): void {
    if (!this.isHeld(parts)) return;
    this.#readAhead();
    const held = this.#findHeld(parts);
    const released = held.map(({ isHeld, ...change }) => ({ ...change, key: this.#newKey() }));
    this.#edit((changes) => edits.replaceUnsent(without(changes, held), released, new Set()));
  }

  /** Returns whether a deletion can still be undone. */
  isHeld(parts: readonly Change[]): boolean {
    return this.#findHeld(parts).length > 0;
  }

  /** Takes a deletion back that is held. */
  withdraw(parts: readonly Change[]): void {
    this.#edit((changes) => without(changes, this.#findHeld(parts)));
  }

  #findHeld(parts: readonly Change[]): readonly Change[] {
    const keys = edits.toKeys(parts);
    return this.#all.filter(({ key, isHeld }) => isHeld === true && keys.has(key));
  }

  /** Returns the changes that this window may send now, in groups that do not wait for each other. */
  selectReady(sending: ReadonlySet<string>, maxBulk: number): readonly (readonly Change[])[] {
    return edits.selectReady(
      this.sendable,
      sending,
      ({ key }) => this.sendsAll || this.#mine.has(key),
      maxBulk,
    );
  }

  /** Marks a change as sent. Returns undefined if it was undone meanwhile. */
  claim(change: Change, position: string): Change | undefined {
    // Another window may have undone it, as an event will say.
    if (!this.unstored.aborted && !isStored(change)) this.#show(without(this.#all, [change]));
    this.#edit((changes) => edits.markSent(changes, change.key, position));
    return this.#all.find(({ key }) => key === change.key);
  }

  /** Removes targets that are done, with the service's answers to them. */
  settle({ key }: Change, done: ReadonlySet<TodoId>, answers: readonly Answer[]): void {
    this.#keepAnswers(answers);
    if (answers.length > 0) tell(ANSWERS, answers);
    this.#edit((changes) => edits.settle(changes, key, done, this.#created));
  }

  #keepAnswers(answers: readonly Answer[]): void {
    for (const { id, kind, todo } of answers) if (kind === "create") this.#created.set(id, todo);
    this.onAnswers(answers);
  }

  /** Releases the deletions of this page, because it is about to close, and leaves its changes to the other windows. */
  close(): void {
    // After a sign-out, nothing may stay in the browser.
    if (readSetting("owner") !== this.owner) this.#unstored.abort();
    this.release();
    tell(LEFT, [...this.#mine]);
    // More may be sent at the same time than before.
    this.#show(this.#all);
  }
}

const without = (changes: readonly Change[], removed: readonly Change[]): readonly Change[] =>
  changes.filter((change) => !removed.includes(change));

/** Sends a message to the other windows. They get it in the order of the settings that this window writes. */
function tell(name: string, message: readonly unknown[]): void {
  writeSetting(name, JSON.stringify(message));
  writeSetting(name);
}

const isStored = ({ key }: Change): boolean => readSetting(CHANGE + key) !== undefined;

/** A change that is not stored any more has its answer, and counts as sent until the events bring that. */
const asSent = (change: Change): Change => (change.isHeld === true ? change : { sent: "", ...change });

const readStored = (): readonly Change[] =>
  [...listSettings(CHANGE)].flatMap(([name, text]) => parseChange(name, text));

/** Returns no change for a text that another program of this origin, or another version of the page, has written. */
function parseChange(name: string, text = ""): readonly Change[] {
  try {
    const change = JSON.parse(text);
    return change.targets.length > 0 && CHANGE + change.key === name ? [change] : [];
  } catch {
    return [];
  }
}
