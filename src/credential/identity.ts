import type { Scope } from "./client.ts";

/** The authenticated sender of a request in private mode. */
export interface Identity {
  /** Clients and users with the same name are different identities. */
  readonly kind: "client" | "user";
  readonly name: string;
  /** Users may always write. */
  readonly scope: Scope;
  /** The id of the API key, if the client has one. */
  readonly keyId: string | undefined;
  /** What the API key of a browser was made with. */
  readonly parent?: string | undefined;
  /** Returns whether the credential is no longer valid. API keys are also checked by their ids. */
  readonly isRevoked: (() => boolean) | undefined;
}

/** Returns the log fields that name an identity. A browser's parent appears without the hash of its entry. */
export function identityFields({ kind, name, keyId, parent }: Identity) {
  return { [kind]: name, key: keyId, parent: parent?.replace(/^(user|client):[^:]*:/, "$1:") };
}
