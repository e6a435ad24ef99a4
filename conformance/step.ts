/** The steps of a generated sequence. Ids are references, so that a shorter sequence still names its own to-dos. */

export type Method = "GET" | "POST" | "PATCH" | "DELETE";

/** What a request to a to-do route carries in its Authorization header. */
export type Credentials = "token" | "user" | "unknown token" | "unknown user" | "malformed";

export interface Request {
  readonly method: Method;
  /** The path parameter. Without it, the request is for the list. */
  readonly id?: IdText;
  /** The number of the to-do that a POST creates, for the references of later requests. */
  readonly creates?: number;
  /** The exact text to send as application/json. */
  readonly body?: string;
  /** The number of the to-do whose id replaces `"<id>"` in the body. */
  readonly named?: number;
  readonly credentials?: Credentials;
}

/** A text with the id of a created to-do in it: `{}` is the id, `{x}` is it in hexadecimal, `{+7}` is the id plus 7. */
export interface IdText {
  readonly of: number;
  readonly text: string;
}

/** Requests that are sent at once, or many plain to-dos to create. */
export type Step = { readonly requests: readonly Request[] } | { readonly many: number };

/** Returns the path parameter, or undefined when the to-do that it refers to was not created. */
export function resolveId({ of, text }: IdText, ids: ReadonlyMap<number, bigint>): string | undefined {
  const id = ids.get(of);
  if (id === undefined) return text.includes("{") ? undefined : text;
  return text.replace(/\{(x)?\+?(\d*)\}/g, (_, hexadecimal, plus) =>
    hexadecimal === undefined ? String(id + BigInt(plus || 0)) : id.toString(16),
  );
}
