import { createKeyLookup } from "../src/credential/key.ts";
import { isCurrent } from "../src/credential/session.ts";
import type { ServiceOptions } from "../src/http/service.ts";
import type { Store } from "../src/storage/store.ts";
import { basic } from "./credentials.ts";
import { startService } from "./service.ts";

/** The user of a private service. */
export const ANN = { user: "ann", password: "pässword: s3cret" };
export const AS_ANN = basic(ANN.user, ANN.password);

/** Starts a service in private mode with the user ann and the API keys of its store. */
export function startPrivate<S extends Store>(store: S, options: Partial<ServiceOptions> = {}) {
  const { keys = store.keys, storedEntry = () => "entry" } = options.credentials ?? {};
  const service = startService({
    store,
    ...options,
    credentials: {
      keys,
      storedEntry,
      lookupClient: createKeyLookup(keys, options.now ?? Date.now, (parent) =>
        isCurrent(parent, storedEntry),
      ),
      checkUser: (user, password) => user === ANN.user && password === ANN.password,
      ...options.credentials,
    },
    access: { privateMode: true, ...options.access },
  });
  return { ...service, store };
}
