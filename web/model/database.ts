import type { Change } from "./change.ts";

const NAME = "todo-service";
const STORE = "changes";
/** A browser with a damaged profile never answers. A slow phone answers after seconds. */
const OPEN_MS = 15_000;

/** Opens the database of the unsent changes. Returns undefined if the browser blocks it: changes then last as long as the page. */
export function openDatabase(): Promise<IDBDatabase | undefined> {
  return new Promise((resolve) => {
    try {
      setTimeout(resolve, OPEN_MS, undefined);
      const request = indexedDB.open(NAME, 1);
      request.onupgradeneeded = () => request.result.createObjectStore(STORE, { keyPath: "key" });
      request.onsuccess = () => resolve(request.result);
      request.onerror = () => resolve(undefined);
    } catch {
      resolve(undefined);
    }
  });
}

/** Replaces the stored changes by what `edit` returns for them, in one transaction. Rejects if the storage is full. */
export function editChanges(
  database: IDBDatabase,
  edit: (changes: readonly Change[]) => readonly Change[],
): Promise<readonly Change[]> {
  return new Promise((resolve, reject) => {
    const transaction = database.transaction(STORE, "readwrite");
    const store = transaction.objectStore(STORE);
    const all: IDBRequest<Change[]> = store.getAll();
    let after: readonly Change[] = [];
    all.onsuccess = () => {
      const before = new Set(all.result);
      after = edit(all.result);
      const keys = new Set(after.map(({ key }) => key));
      for (const { key } of before) if (!keys.has(key)) store.delete(key);
      for (const change of after) if (!before.has(change)) store.put(change);
    };
    transaction.oncomplete = () => resolve(after);
    transaction.onabort = () => reject(transaction.error);
  });
}
