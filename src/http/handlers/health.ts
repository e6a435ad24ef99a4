import { ServiceError } from "../../error.ts";
import type { TodoStore } from "../../todo.ts";
import { text } from "../response.ts";
import type { Handler } from "../route.ts";

/**
 * Returns the handlers of `/livez` (the process is running) and `/readyz` (the store answers, its writes do not fail, and
 * the service is not draining).
 */
export function createHealthHandlers(store: TodoStore, isDraining: () => boolean) {
  return {
    live: () => text("ok\n"),
    ready: async () => {
      if (isDraining()) throw new ServiceError("stopping");
      await store.position();
      await store.checkWrites?.();
      return text("ready\n");
    },
  } satisfies Record<string, Handler>;
}
