/** The rules by which API keys change. */

import {
  type EndedKeys,
  isExpired,
  isSameParent,
  type Key,
  MAX_EXPIRED_KEYS,
  type StoredKey,
} from "./key.ts";

/** How many keys of a kind have the same parent at most. A new key deletes those beyond that: expired ones first, then the oldest. */
const MAX_SIBLINGS = { client: Number.POSITIVE_INFINITY, device: 20, link: 5 };

/** API keys by id. */
export type KeyMap = ReadonlyMap<string, StoredKey>;

/** A change that `KeyStore` describes. */
export type KeyChange =
  | { readonly type: "insert"; readonly key: StoredKey; readonly ended?: EndedKeys | undefined }
  | {
      readonly type: "replace";
      readonly id: string;
      readonly expiresAt: number;
      readonly successor: StoredKey;
    }
  | { readonly type: "delete"; readonly id: string }
  | { readonly type: "rename"; readonly id: string; readonly name: string }
  | { readonly type: "recordUses"; readonly uses: ReadonlyMap<string, number> };

/** What a store has to write: first the ids of the keys to remove, then the new and the changed keys. */
export interface KeyDifference {
  readonly remove: Iterable<string>;
  readonly put: readonly StoredKey[];
}

/**
 * Returns what a change does to the keys of a store; `undefined` if it changes nothing, because a rule forbids it or a key is absent.
 * @param clock the time of the store, if it has a clock of its own: a key has expired only if it has by both clocks
 */
export function decide(
  keys: KeyMap,
  change: KeyChange,
  clock = Number.POSITIVE_INFINITY,
): KeyDifference | undefined {
  switch (change.type) {
    case "insert":
      return insert(keys, change, Math.min(change.key.createdAt, clock));
    case "replace":
      return replace(keys, change, Math.min(change.successor.createdAt, clock));
    case "delete": {
      const deleted = keys.get(change.id);
      return deleted && { remove: withChildren(keys, [deleted]), put: [] };
    }
    case "rename":
      return rename(keys, change.id, change.name);
    case "recordUses": {
      const put = [...change.uses].flatMap(([id, usedAt]) => use(keys, id, usedAt));
      return put.length > 0 ? { remove: [], put } : undefined;
    }
  }
}

type Change<Type> = Extract<KeyChange, { readonly type: Type }>;

function insert(
  keys: KeyMap,
  { key, ended: { link, former } = {} }: Change<"insert">,
  now: number,
): KeyDifference | undefined {
  if (link !== undefined && !keys.has(link)) return undefined;
  const parent = findParent(keys, key);
  const isOrphan = key.parent?.kind === "key" && (parent === undefined || isExpired(parent, now));
  const siblings = [...keys.values()].filter((other) => isSibling(other, key) && other.id !== former);
  const isTaken = siblings.some((other) => other.name === key.name && !isExpired(other, now));
  if (isOrphan || isTaken) return undefined;
  const surplus = Math.max(0, siblings.length + 1 - MAX_SIBLINGS[key.kind ?? "client"]);
  const isOld = (one: Key): number => Number(isExpired(one, now));
  const ranked = siblings.toSorted(
    (one, other) => isOld(other) - isOld(one) || one.createdAt - other.createdAt,
  );
  const ended = [...keys.values()].filter(({ id }) => id === link || id === former);
  const remove = withChildren(keys, [...ended, ...ranked.slice(0, surplus)]);
  return add(keys, remove, [], endingBy(key, parent?.expiresAt), now);
}

function replace(keys: KeyMap, { id, expiresAt, successor }: Change<"replace">, now: number) {
  const replaced = keys.get(id);
  if (replaced === undefined) return undefined;
  const all = [...keys.values()];
  const namesakes = all.filter((key) => key.name === replaced.name && isSibling(key, replaced));
  const ended = withChildren(keys, namesakes);
  const shortened = all.filter((key) => ended.has(key.id)).map((key) => endingBy(key, expiresAt));
  return add(keys, new Set(), shortened, successor, now);
}

function rename(keys: KeyMap, id: string, name: string): KeyDifference | undefined {
  const key = keys.get(id);
  if (key === undefined) return undefined;
  const isTaken = [...keys.values()].some(
    (other) => other.id !== id && other.name === name && isSibling(other, key),
  );
  return isTaken ? undefined : { remove: [], put: [{ ...key, name }] };
}

/** A use renews the key of a browser, but not beyond the expiry of its parent. */
function use(keys: KeyMap, id: string, usedAt: number): StoredKey[] {
  const key = keys.get(id);
  if (key === undefined) return [];
  const used = { ...key, lastUsedAt: Math.max(usedAt, key.lastUsedAt ?? usedAt) };
  if (key.parent === undefined || key.lifetime === undefined) return [used];
  return [endingBy({ ...used, expiresAt: used.lastUsedAt + key.lifetime }, findParent(keys, key)?.expiresAt)];
}

/** Also deletes the oldest expired keys. */
function add(keys: KeyMap, removed: Set<string>, changed: readonly StoredKey[], key: StoredKey, now: number) {
  const put = [...changed, key];
  const left = new Map([...keys, ...put.map((one) => [one.id, one] as const)]);
  for (const id of removed) left.delete(id);
  const kept = oldestKeptExpiry([...left.values()], now);
  const old = new Set([...left.values()].filter((one) => isExpired(one, kept - 1)).map(({ id }) => id));
  return { remove: removed.union(old), put: put.filter(({ id }) => !old.has(id)) };
}

/**
 * Returns the earliest expiry of the MAX_EXPIRED_KEYS keys that expired last, or −∞ if there are fewer. A store deletes
 * keys that expired earlier. Age does not matter, because a clock that is ahead would delete valid keys.
 */
function oldestKeptExpiry(keys: readonly Key[], now: number): number {
  const expiries = keys.flatMap((key) => (isExpired(key, now) ? [key.expiresAt ?? 0] : []));
  return expiries.toSorted((one, other) => other - one)[MAX_EXPIRED_KEYS - 1] ?? Number.NEGATIVE_INFINITY;
}

const endingBy = (key: StoredKey, limit = Number.POSITIVE_INFINITY): StoredKey => {
  const expiresAt = Math.min(key.expiresAt ?? limit, limit);
  return expiresAt === key.expiresAt || expiresAt === Number.POSITIVE_INFINITY ? key : { ...key, expiresAt };
};

/** Names are unique among the keys of programs, and among the keys of one kind with the same parent. */
const isSibling = (one: Key, other: Key): boolean =>
  one.kind === other.kind && isSameParent(one.parent, other.parent);

const findParent = (keys: KeyMap, { parent }: Key): Key | undefined =>
  parent?.kind === "key" ? keys.get(parent.id) : undefined;

/** Returns the ids of keys, and of all keys that were made with them. */
function withChildren(keys: KeyMap, parents: readonly Key[]): Set<string> {
  const found = new Set(parents.map(({ id }) => id));
  // A set also iterates over what is added meanwhile.
  for (const id of found)
    for (const { id: child, parent } of keys.values())
      if (parent?.kind === "key" && parent.id === id) found.add(child);
  return found;
}
