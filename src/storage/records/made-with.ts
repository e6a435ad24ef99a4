import { type Parent, parentText } from "../../credential/client.ts";
import type { Key } from "../../credential/key.ts";

const LINK = "code:";

/**
 * Returns the kind and the parent of a key as one text, such as `key:ID`, `code:key:ID` or `user:HASH:NAME`. Exports, checksums
 * and format 1 of both databases contain it.
 */
export const madeWithText = ({ kind, parent }: Pick<Key, "kind" | "parent">): string | undefined =>
  parent && (kind === "link" ? LINK : "") + parentText(parent);

/** Parses the text. Returns `undefined` if it is invalid. */
export function parseMadeWith(text: string): Required<Pick<Key, "kind" | "parent">> | undefined {
  const isLink = text.startsWith(LINK);
  const parent = parseParent(isLink ? text.slice(LINK.length) : text);
  return parent && { kind: isLink ? "link" : "device", parent };
}

function parseParent(text: string): Parent | undefined {
  const [, id] = /^key:([\w-]{1,64})$/.exec(text) ?? [];
  if (id !== undefined) return { kind: "key", id };
  const [, kind, entryHash = "", name = ""] = /^(user|client):([\w-]*):(.*)$/s.exec(text) ?? [];
  return kind === "user" || kind === "client" ? { kind, name, entryHash } : undefined;
}
