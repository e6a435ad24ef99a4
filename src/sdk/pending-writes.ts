import type { ConfirmedList } from "./confirmed-list.ts";
import { type Confirmation, type Effect, isNewId, newId, type Overlay, type Write } from "./overlay.ts";
import { newTodo } from "./todo.ts";
import { type FollowedList, type Todo, TodoApiError, type TodoId } from "./types.ts";
import type { Answer, Writes } from "./writes.ts";

/**
 * Returns the writes to a list. They are sent one after another, in the order of the calls.
 * @param overlay shows their effects
 * @param getList returns the service's list
 * @param onChange runs after each change of the effects, with the error of a write that failed
 */
export function createPendingWrites(
  writes: Writes,
  overlay: Overlay,
  getList: () => ConfirmedList,
  onChange: (error?: unknown) => void,
): Pick<FollowedList, "create" | "setDone" | "delete"> {
  /** Resolves when the last write has its answer. */
  let written: Promise<unknown> = Promise.resolve();

  const find = (id: TodoId | bigint): Todo => overlay.find(getList().todos, String(id));

  /** Shows a write, and sends it after the earlier ones. */
  const add = <T extends Todo | undefined>(
    effect: Effect,
    send: (id: TodoId) => Promise<Answer<T>>,
  ): Promise<T> => {
    const { todos, position } = getList();
    const write: Write = { ...effect, after: todos.at(-1)?.id, position };
    // After a sign-out, the overlay has other ones.
    const { pending } = overlay;
    const isPending = (): boolean => overlay.pending === pending;
    pending.push(write);
    onChange();
    const answered = written.then(async () => {
      if (!isPending()) throw new TodoApiError("unauthorized", "signed out");
      const { kind, todo } = write;
      let confirmation: Confirmation | undefined;
      let failure: unknown;
      try {
        if (kind !== "create" && isNewId(todo.id))
          throw new TodoApiError("todo_not_found", "the to-do was not created");
        const { result, position } = await send(todo.id);
        confirmation = { kind, todo: result ?? todo, position };
        return result;
      } catch (error) {
        failure = error;
        // The to-do does not exist any more, and the list may not know that yet.
        if (error instanceof TodoApiError && error.position)
          confirmation = { kind: "delete", todo, position: error.position };
        throw error;
      } finally {
        pending.shift();
        if (confirmation && isPending()) overlay.confirm(todo.id, confirmation);
        onChange(failure);
      }
    });
    written = answered.catch(() => {});
    return answered;
  };

  return {
    create: (title, call) =>
      add({ kind: "create", todo: newTodo(newId(), title) }, () => writes.create(title, call)),
    setDone: (id, done, call) =>
      add({ kind: "setDone", todo: { ...find(id), done } }, (current) => writes.setDone(current, done, call)),
    delete: (id, call) => add({ kind: "delete", todo: find(id) }, (current) => writes.delete(current, call)),
  };
}
