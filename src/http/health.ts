import { Failure } from "../failure.ts";
import type { TodoStore } from "../todo.ts";
import { text } from "./reply.ts";
import type { Handler } from "./route.ts";

/** `/livez`: the process answers. `/readyz`: it also has a store that answers, and is not about to stop. */
export function healthHandlers(store: TodoStore, isStopping: () => boolean) {
  return {
    live: () => text("ok\n"),
    ready: async () => {
      if (isStopping()) throw new Failure("stopping");
      await store.position();
      return text("ready\n");
    },
  } satisfies Record<string, Handler>;
}
