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

const BROWSERS: readonly (readonly [pattern: RegExp, name: string])[] = [
  [/\bEdg(?:A|iOS)?\//, "Edge"],
  [/\bOPR\//, "Opera"],
  [/\bSamsungBrowser\//, "Samsung Internet"],
  [/\b(?:Firefox|FxiOS)\//, "Firefox"],
  [/(?:Chrome|CriOS)\//, "Chrome"],
  [/\bSafari\//, "Safari"],
];

const SYSTEMS: readonly (readonly [pattern: RegExp, name: string])[] = [
  [/\bAndroid\b/, "Android"],
  [/\biPhone\b/, "iPhone"],
  [/\biPad\b/, "iPad"],
  [/\bWindows\b/, "Windows"],
  [/\bCrOS\b/, "ChromeOS"],
  [/\bMac OS X\b/, "Mac"],
  [/\bLinux\b/, "Linux"],
];

/** Returns a name for a browser and its system, such as "Firefox on Android", by its `User-Agent`. */
export function describeBrowser(userAgent: string): string {
  const find = (names: typeof BROWSERS) => names.find(([pattern]) => pattern.test(userAgent))?.[1];
  const system = find(SYSTEMS);
  return (find(BROWSERS) ?? "Browser") + (system === undefined ? "" : ` on ${system}`);
}
