import type { Client } from "./client.ts";
import type { Scope } from "./scope.ts";
import type { BasicUser } from "./user.ts";

/** The authenticated sender of a request in private mode. */
export interface Identity {
  /** Clients and users with the same name are different identities. */
  readonly kind: "client" | "user";
  readonly name: string;
  /** Users may always write. */
  readonly scope: Scope;
  /** The id of the API key, if the client has one. */
  readonly keyId: string | undefined;
  /** Returns whether the credential is no longer valid. API keys are checked by their ids instead. */
  readonly isRevoked: (() => boolean) | undefined;
}

export const clientIdentity = ({ name, scope = "write", keyId, isRevoked }: Client): Identity => ({
  kind: "client",
  name,
  scope,
  keyId,
  isRevoked,
});

export const userIdentity = ({ name }: BasicUser, isRevoked: () => boolean): Identity => ({
  kind: "user",
  name,
  scope: "write",
  keyId: undefined,
  isRevoked,
});

/** Returns the log fields that name an identity: the id of an API key, or else the client or the user. */
export function identityFields({ kind, name, keyId }: Identity): Readonly<Record<string, string>> {
  return keyId === undefined ? { [kind]: name } : { key: keyId };
}
