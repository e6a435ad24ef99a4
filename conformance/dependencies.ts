/** The rules that each case relies on. When one of them fails, a failure of the case shows nothing new. */
import type { RuleId } from "./rules.ts";

export const dependencies: Readonly<Partial<Record<RuleId, readonly RuleId[]>>> = {
  // Credentials, JSON and the path
  "api.prefix": ["todo.id.type"],
  "json.errors": ["json.success"],
  "todos.no-authentication": ["delete.either-state"],

  // POST
  "todo.keys": ["create.answer"],
  "todo.title.type": ["create.answer"],
  "todo.done.type": ["create.answer"],
  "todo.done.assigned": ["create.answer", "create.done"],
  "create.done": ["create.answer", "todo.done.type"],
  "create.title": ["create.answer", "todo.title.type", "get.answer"],
  "title.same": ["title.padded", "update.stored", "create.title", "create.title.whole", "list.complete"],
  "todos.concurrent": [
    "create.answer",
    "todo.id.unique",
    "list.complete",
    "list.unlimited",
    "update.only-one",
    "update.answer",
    "get.answer",
  ],
  "create.title.whole": ["create.title", "title.120", "title.characters"],
  "newtodo.title.string": ["newtodo.title.required"],
  "body.create.4xx": ["newtodo.title.required"],

  // Ids
  "todo.id.assigned": ["get.answer"],
  "todo.id.first": ["todo.id.type"],
  "todo.id.step": ["todo.id.increasing"],
  "todo.id.not-reused": ["todo.id.increasing", "todo.id.unique"],
  "create.invalid.counter": [
    "todo.id.step",
    "title.empty.422",
    "title.blank.422",
    "title.long.422",
    "create.invalid.not-stored",
  ],
  "counter.only-stored": [
    "todo.id.step",
    "todo.id.not-reused",
    "newtodo.title.required",
    "newtodo.title.string",
    "body.create.4xx",
  ],

  // GET
  "get.200": ["create.stored"],
  "list.emptied": ["list.empty", "delete.removes", "delete.either-state"],
  "get.answer": ["todo.id.type", "todo.title.type", "todo.done.type", "create.done"],
  "list.complete": [
    "create.stored",
    "create.done",
    "todo.id.type",
    "todo.title.type",
    "todo.done.type",
    "list.unlimited",
    "update.to-false",
    "update.stored",
    "update.only-one",
    "delete.removes",
    "delete.only-one",
  ],
  "list.order": ["todo.id.type", "todo.id.increasing"],
  "list.unlimited": ["create.stored", "todo.id.type"],

  // PATCH
  "update.200": ["create.stored"],
  "update.answer": ["todo.id.type", "todo.done.type"],
  "update.to-true": ["update.answer"],
  "update.to-false": ["update.answer", "update.to-true"],
  "update.stored": ["update.answer"],
  "update.only-one": ["create.done", "create.same-title"],
  "patch.done.required": ["update.to-true", "update.to-false", "update.stored"],
  "patch.done.boolean": ["update.to-true", "update.to-false", "update.stored", "patch.done.required"],
  "patch.only-done": ["todo.id.type", "get.answer", "update.stored", "update.only-one"],
  "body.update.4xx": ["create.done", "body.create.4xx", "patch.done.required"],

  // DELETE
  "delete.204": ["create.stored", "delete.empty"],
  "delete.removes": ["delete.204", "todo.id.type"],
  "delete.either-state": ["delete.204"],
  "delete.once": ["todos.concurrent", "delete.removes", "delete.absent.404"],
  "delete.only-one": ["create.same-title"],
  "absent.unchanged": ["todos.concurrent", "delete.removes", "delete.either-state"],

  // Statuses of absent to-dos and of malformed ids
  "get.absent.404": ["id.distinct-status", "delete.removes"],
  "update.absent.404": ["get.absent.404", "absent.unchanged", "delete.removes"],
  "delete.absent.404": ["get.absent.404", "delete.removes"],
  "id.range": ["todo.id.first", "get.absent.404", "update.absent.404", "delete.absent.404"],
  "get.malformed.400": ["id.distinct-status"],
  "update.malformed.400": ["get.malformed.400"],
  "delete.malformed.400": ["get.malformed.400"],
  "update.malformed.any-body": ["update.malformed.400"],
  "id.out-of-range": ["get.malformed.400", "update.malformed.400", "delete.malformed.400"],

  // Titles
  "title.blank.422": ["title.empty.422"],
  "title.long.422": ["title.empty.422"],
  "title.empty.message": ["title.empty.422", "title.blank.422"],
  "title.long.message": ["title.long.422", "title.empty.message"],
  "validation.field": ["title.empty.message", "title.long.message"],
  "validation.together": ["title.blank.422", "title.long.422", "title.empty.message", "title.long.message"],
  "create.validates-first": ["list.emptied"],
  "create.invalid.not-stored": ["list.emptied", "title.empty.422", "title.blank.422", "title.long.422"],
  "title.characters": ["title.120", "title.long.422"],

  // The bearer check
  "whoami.name": ["whoami.200", "whoami.text"],
  "whoami.text": ["whoami.200"],
  "client.request": ["whoami.200", "bearer.unknown.401"],
  "bearer.missing.challenge": ["bearer.missing.401"],
  "bearer.unknown.401": ["bearer.missing.401"],
  "bearer.unknown.challenge": ["bearer.unknown.401", "bearer.missing.challenge"],
  "bearer.near-miss.401": ["bearer.unknown.401", "bearer.unknown.challenge"],
  "bearer.scheme.401": ["bearer.unknown.401", "bearer.unknown.challenge", "bearer.missing.challenge"],
  "bearer.empty.401": ["bearer.unknown.401", "bearer.unknown.challenge", "bearer.missing.challenge"],
  "bearer.refused.no-name": ["whoami.200", "bearer.missing.401", "bearer.unknown.401"],
  "bearer.router": ["bearer.missing.401", "bearer.unknown.401"],

  // The Basic check
  "admin.greeting": ["admin.200", "admin.text"],
  "admin.text": ["admin.200"],
  "basicuser.request": ["admin.200", "basic.missing.refused"],
  "basic.malformed.refused": ["basic.missing.refused"],
  "basic.password.refused": ["basic.malformed.refused"],
  "basic.user.refused": ["basic.malformed.refused"],
  "basic.scheme.refused": ["basic.malformed.refused"],
  "basic.refused.no-greeting": ["admin.200", "basic.missing.refused", "basic.password.refused"],
  "basic.router": ["basic.missing.refused", "basic.malformed.refused"],
};
