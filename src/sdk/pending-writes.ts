import { type Effect, isNewId, newId, Overlay } from "./overlay.ts";
import { newTodo } from "./todo.ts";
import { type FollowedList, type Todo, TodoApiError, type TodoId } from "./types.ts";
import type { Answer, Writes } from "./writes.ts";

interface PendingWrites extends Pick<FollowedList, "create" | "setDone" | "delete"> {
  readonly overlay: Overlay;
}

/**
 * Returns the writes to a list. They are sent one after another, in the order of the calls.
 * @param getTodos returns the service's list
 * @param onChange runs after each change of the effects, with the error of a write that failed
 */
export function createPendingWrites(
  writes: Writes,
  getTodos: () => readonly Todo[],
  onChange: (error?: unknown) => void,
): PendingWrites {
  const overlay = new Overlay();
  /** Resolves when the last write has its answer. */
  let written: Promise<unknown> = Promise.resolve();

  const find = (id: TodoId | bigint): Todo => overlay.find(getTodos(), String(id));

  /** Shows a write, and sends it after the earlier ones. */
  const write = <T extends Todo | undefined>(
    effect: Effect,
    send: (id: TodoId) => Promise<Answer<T>>,
  ): Promise<T> => {
    overlay.add(send, effect, getTodos().at(-1)?.id ?? "");
    onChange();
    const answered = written.then(() => sendWrite(send));
    written = answered.catch(() => {});
    return answered;
  };

  /** Sends a write, whose function is also the key of its effect. */
  const sendWrite = async <T extends Todo | undefined>(
    send: (id: TodoId) => Promise<Answer<T>>,
  ): Promise<T> => {
    const effect = overlay.get(send);
    if (effect === undefined) throw new TodoApiError("unauthorized", "signed out");
    const { kind, todo } = effect;
    try {
      if (kind !== "create" && isNewId(todo.id))
        throw new TodoApiError("todo_not_found", "the to-do was not created");
      const { result, position } = await send(todo.id);
      overlay.confirm(send, { kind, todo: result ?? todo, position });
      onChange();
      return result;
    } catch (error) {
      // The to-do does not exist any more, and the list may not know that yet.
      if (error instanceof TodoApiError && error.position !== undefined)
        overlay.confirm(send, { kind: "delete", todo, position: error.position });
      else overlay.remove(send);
      onChange(error);
      throw error;
    }
  };

  return {
    overlay,
    create: (title, call) =>
      write({ kind: "create", todo: newTodo(newId(), title) }, () => writes.create(title, call)),
    setDone: (id, done, call) =>
      write({ kind: "setDone", todo: { ...find(id), done } }, (current) =>
        writes.setDone(current, done, call),
      ),
    delete: (id, call) =>
      write({ kind: "delete", todo: find(id) }, (current) => writes.delete(current, call)),
  };
}
