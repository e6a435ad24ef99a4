/** Reads and writes what the browser remembers for this origin. A browser that blocks storage remembers nothing. */

const PREFIX = "todo-service.";

export function readSetting(name: string): string | undefined {
  return withStorage((storage) => storage.getItem(PREFIX + name)) ?? undefined;
}

/** Stores a value, or removes it without one. Returns whether the browser did so. */
export function writeSetting(name: string, value?: string): boolean {
  const isWritten = withStorage((storage) => {
    if (value === undefined) storage.removeItem(PREFIX + name);
    else storage.setItem(PREFIX + name, value);
    return true;
  });
  return isWritten === true;
}

/** Returns the values of all names with a prefix, in order of name. */
export function listSettings(prefix: string): ReadonlyMap<string, string> {
  const entries = withStorage((storage) => Object.entries<string>(storage)) ?? [];
  const matching = entries.filter(([name]) => name.startsWith(PREFIX + prefix)).sort();
  return new Map(matching.map(([name, value]) => [name.slice(PREFIX.length), value]));
}

/** Runs when another window has changed one of the values, with its name and without a value if it is removed. */
export function onSettingChange(run: (name: string, value: string | undefined) => void): void {
  window.addEventListener("storage", ({ key, newValue }) => {
    if (key?.startsWith(PREFIX) === true) run(key.slice(PREFIX.length), newValue ?? undefined);
  });
}

function withStorage<T>(use: (storage: Storage) => T): T | undefined {
  try {
    return use(localStorage);
  } catch (error) {
    // SecurityError: the user blocks storage. QuotaExceededError: the storage is full. Both are no reason to stop.
    if (error instanceof DOMException) return undefined;
    throw error;
  }
}
