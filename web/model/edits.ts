/** What becomes of the unsent changes: pure functions from changes to changes, in which those that stay are the same objects. */
import type { Todo, TodoId } from "../../src/sdk/client.ts";
import { isNewId } from "../../src/sdk/overlay.ts";
import type { Change, Target } from "./change.ts";

/** The maximum number of targets of one change. */
export const MAX_TARGETS = 100;
/** The maximum number of changes that are sent at the same time, besides new to-dos. */
const MAX_SENDING = 20;

type Changes = readonly Change[];
/** The to-dos that the service has created, by the `newId()` under which they were added. */
export type Created = ReadonlyMap<TodoId, Todo>;

export const toKeys = (changes: Changes): ReadonlySet<string> => new Set(changes.map(({ key }) => key));
const toIds = (changes: Changes): ReadonlySet<TodoId> =>
  new Set(changes.flatMap(({ targets }) => targets.map(({ id }) => id)));

/** Returns the changes with some of their targets, and without those that have none left. */
export function filterTargets(
  changes: Changes,
  isLeft: (target: Target, change: Change) => boolean,
): Changes {
  return changes.flatMap((change) => {
    const targets = change.targets.filter((target) => isLeft(target, change));
    if (targets.length === change.targets.length) return [change];
    return targets.length > 0 ? [{ ...change, targets }] : [];
  });
}

/**
 * Adds changes in place of unsent ones to the same to-dos. Only `cleared` replaces none, because it needs the ticks before it.
 * @param confirmed the to-dos that the service has as the changes leave them, which need no request then
 */
export function replaceUnsent(changes: Changes, added: Changes, confirmed: ReadonlySet<TodoId>): Changes {
  if (added.some(({ kind }) => kind === "cleared")) return [...changes, ...added];
  const ids = toIds(added);
  const deletes = added.some(({ kind }) => kind === "deleted");
  const left = filterTargets(
    changes,
    ({ id }, { kind, sent }) => !ids.has(id) || sent !== undefined || (!deletes && kind === "created"),
  );
  const [before, after] = [toIds(changes), toIds(left)];
  const isConfirmed = (id: TodoId): boolean => (deletes ? isNewId(id) : confirmed.has(id));
  return [...left, ...filterTargets(added, ({ id }) => !before.has(id) || after.has(id) || !isConfirmed(id))];
}

/** Marks a change as sent, unless it is already. */
export const markSent = (changes: Changes, key: string, position: string): Changes =>
  changes.map((change) =>
    change.key === key && change.sent === undefined ? { ...change, sent: position } : change,
  );

/** Gives targets the ids and titles that the service has given to new to-dos. */
export function rename(changes: Changes, created: Created): Changes {
  return changes.map((change) => {
    const targets = change.targets.map((target) => renameTarget(target, created));
    const isSame =
      change.kind === "created" || targets.every((target, index) => target === change.targets[index]);
    return isSame ? change : { ...change, targets };
  });
}

export function renameTarget(target: Target, created: Created): Target {
  const todo = created.get(target.id);
  return todo === undefined ? target : { ...target, id: todo.id, title: todo.title };
}

/** Removes targets whose requests are done, and later changes to new to-dos that the service rejected. */
export function settle(changes: Changes, key: string, done: ReadonlySet<TodoId>, created: Created): Changes {
  const isRejected = (id: TodoId): boolean => isNewId(id) && !created.has(id);
  const left = filterTargets(
    changes,
    ({ id }, change) => !done.has(id) || (change.key !== key && !isRejected(id)),
  );
  return rename(left, created);
}

/** Returns whether a change waits for a new to-do. */
export const isWaiting = ({ kind, targets }: Change): boolean =>
  kind !== "created" && targets.some(({ id }) => isNewId(id));

/** Few changes to many to-dos are sent at the same time, so that they do not delay others. */
const isBulk = ({ kind, targets }: Change): boolean => kind !== "created" && targets.length > 1;

/**
 * Returns the changes that may be sent now, in groups that do not wait for each other. Changes to one to-do keep their order. New
 * to-dos are in one group, because they keep their order, too.
 * @param sending the keys of the changes that are being sent
 * @param mayThisSend whether this window may send a change
 * @param maxBulk how many changes to many to-dos may be sent at the same time
 */
export function selectReady(
  changes: Changes,
  sending: ReadonlySet<string>,
  mayThisSend: (change: Change) => boolean,
  maxBulk: number,
): readonly Changes[] {
  const earlier = new Set<TodoId>();
  const current = changes.filter(({ key }) => sending.has(key));
  const isCreating = current.some(({ kind }) => kind === "created");
  let freeBulk = maxBulk - current.filter(isBulk).length;
  let free = MAX_SENDING - current.filter(({ kind }) => kind !== "created").length;
  const created: Change[] = [];
  const groups: Changes[] = [];
  for (const change of changes) {
    const { key, kind, targets } = change;
    const isFirst = targets.every(({ id }) => !earlier.has(id));
    for (const { id } of targets) earlier.add(id);
    if (!isFirst || sending.has(key) || isWaiting(change) || !mayThisSend(change)) continue;
    if (kind === "created") created.push(change);
    else if (free > 0 && (freeBulk > 0 || !isBulk(change))) {
      if (isBulk(change)) freeBulk--;
      free--;
      groups.push([change]);
    }
  }
  return created.length > 0 && !isCreating ? [created, ...groups] : groups;
}
