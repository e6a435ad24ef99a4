const MAX_OWNER_LENGTH = 60;
/** With the owner and a separator, a name has at most 100 characters. */
export const MAX_LABEL_LENGTH = 37;

/** Returns the name of a browser. It begins with the owner, so that its token cannot pass for another client. */
export const deviceName = (owner: string, label: string): string =>
  `${[...owner].slice(0, MAX_OWNER_LENGTH).join("")} · ${label}`;

/** Returns the part of a browser's name that follows the owner. */
export function deviceLabel(owner: string, name: string): string {
  const start = deviceName(owner, "");
  return name.startsWith(start) ? name.slice(start.length) : name;
}
