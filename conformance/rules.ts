/**
 * Every rule of the specification, as data: what a server must do, in our own short words.
 *
 * A rule has one case under `cases/`, or says in `notObservable` why no black box can see it and which test proves it.
 * What the specification marks "not shown" makes no rule beyond what its other sentences still imply; nor does what
 * it merely permits (storage in memory or in a database, section 1).
 */

/** What a rule can only be judged with: `--token`, `--user`, or `--fresh` (a server that is empty, and ours alone). */
export type Need = "token" | "user" | "fresh";

export interface Rule {
  readonly id: string;
  /** The section of the specification that says it first. */
  readonly section: "1" | "2" | "3" | "4" | "5" | "7" | "8" | "9";
  readonly says: string;
  readonly needs?: Need;
  readonly notObservable?: string;
}

/** The sections' names, in order. Sections 6 (events) shows nothing, so it has no rule. */
export const sections: Readonly<Record<Rule["section"], string>> = {
  "1": "What the service does",
  "2": "Resources and their fields",
  "3": "States and transitions",
  "4": "Endpoints",
  "5": "Authentication",
  "7": "Errors",
  "8": "Limits",
  "9": "Versioning",
};

export const rules = [
  // 1. What the service does
  { id: "api.prefix", section: "1", says: "the to-do routes are mounted under /api, and only there" },
  { id: "id.distinct-status", section: "1", says: "an unknown and a malformed id differ in status" },

  // 2. Resources and their fields
  { id: "todo.keys", section: "2", says: "a Todo has exactly the keys id, title and done" },
  { id: "todo.id.type", section: "2", says: "id is an unsigned 64-bit integer" },
  { id: "todo.title.type", section: "2", says: "title is a string" },
  { id: "todo.done.type", section: "2", says: "done is a boolean" },
  { id: "todo.id.first", section: "2", needs: "fresh", says: "the counter of ids starts at 1" },
  { id: "todo.id.step", section: "2", needs: "fresh", says: "the counter grows by 1 for each created item" },
  { id: "todo.id.increasing", section: "2", says: "a later item has a greater id" },
  { id: "todo.id.unique", section: "2", says: "items created at the same time have different ids" },
  { id: "todo.id.not-reused", section: "2", says: "the id of a deleted item is not used again" },
  {
    id: "todo.id.assigned",
    section: "2",
    says: "the service assigns the id: one sent on create is not taken",
  },
  {
    id: "todo.done.assigned",
    section: "2",
    says: "the service sets done to false: true sent on create is not taken",
  },
  { id: "newtodo.title.required", section: "2", says: "create without a title is refused" },
  { id: "newtodo.title.string", section: "2", says: "create with a title that is not a string is refused" },
  { id: "patch.done.required", section: "2", says: "an update without done is refused" },
  { id: "patch.done.boolean", section: "2", says: "an update whose done is not a boolean is refused" },
  { id: "patch.only-done", section: "2", says: "an update changes neither title nor id" },
  {
    id: "client.request",
    section: "2",
    needs: "token",
    says: "the Client belongs to its own request: simultaneous callers are not mixed up",
  },
  {
    id: "basicuser.request",
    section: "2",
    needs: "user",
    says: "the BasicUser belongs to its own request: simultaneous callers are not mixed up",
  },

  // 3. States and transitions
  { id: "create.stored", section: "3", says: "after a valid POST the item exists" },
  { id: "create.done", section: "3", says: "a new item has done=false" },
  { id: "create.invalid.not-stored", section: "3", says: "an invalid POST creates nothing" },
  {
    id: "create.invalid.counter",
    section: "3",
    needs: "fresh",
    says: "a rejected item does not use the counter",
  },
  {
    id: "counter.only-stored",
    section: "3",
    needs: "fresh",
    says: "nothing but storing an item moves the counter",
  },
  { id: "update.to-true", section: "3", says: "PATCH done=true sets true, whichever value was there" },
  { id: "update.to-false", section: "3", says: "PATCH done=false sets false, whichever value was there" },
  { id: "update.stored", section: "3", says: "the value sent stays" },
  { id: "update.only-one", section: "3", says: "PATCH changes no other item" },
  { id: "delete.removes", section: "3", says: "after DELETE the item does not exist" },
  { id: "delete.either-state", section: "3", says: "DELETE succeeds whether done is false or true" },
  { id: "delete.only-one", section: "3", says: "DELETE removes no other item" },
  {
    id: "delete.once",
    section: "3",
    says: "of several simultaneous DELETEs one succeeds, the others find nothing",
  },
  { id: "absent.unchanged", section: "3", says: "a request on an absent item does not bring it into being" },

  // 4. Endpoints
  { id: "json.success", section: "4", says: "successful to-do answers are JSON" },
  { id: "json.errors", section: "4", says: "an error of a to-do route that has a body is JSON" },
  { id: "list.200", section: "4", says: "GET /api/todos answers 200" },
  { id: "list.array", section: "4", says: "the list is a JSON array" },
  {
    id: "list.empty",
    section: "4",
    needs: "fresh",
    says: "the list is an empty array when there is no item",
  },
  { id: "list.complete", section: "4", says: "the list has every item once, as it is now" },
  { id: "list.order", section: "4", says: "the list is ordered by ascending id" },
  { id: "create.201", section: "4", says: "a valid POST answers 201" },
  { id: "create.answer", section: "4", says: "POST answers with the Todo" },
  { id: "create.title", section: "4", says: "the Todo has the title that was sent" },
  {
    id: "create.validates-first",
    section: "4",
    says: "POST validates the body before storing: a malformed one stores nothing",
  },
  { id: "get.200", section: "4", says: "GET of an item answers 200" },
  { id: "get.answer", section: "4", says: "GET of an item answers with that Todo" },
  { id: "update.200", section: "4", says: "PATCH answers 200" },
  { id: "update.answer", section: "4", says: "PATCH answers with the Todo after the change" },
  { id: "delete.204", section: "4", says: "DELETE answers 204" },
  { id: "delete.empty", section: "4", says: "the answer to DELETE has no body" },
  { id: "whoami.200", section: "4", needs: "token", says: "GET /api/whoami with a known token answers 200" },
  { id: "whoami.name", section: "4", needs: "token", says: "its body is the client's name" },
  { id: "whoami.text", section: "4", needs: "token", says: "its body is text" },
  { id: "admin.200", section: "4", needs: "user", says: "GET /admin/ with valid credentials answers 200" },
  { id: "admin.greeting", section: "4", needs: "user", says: "its body greets the user by name" },
  { id: "admin.text", section: "4", needs: "user", says: "its body is text" },
  { id: "id.range", section: "4", says: "all of 0 to 2^64-1 is a well-formed id" },
  { id: "id.out-of-range", section: "4", says: "a number past 2^64-1 is not an id: 400" },
  { id: "todos.open", section: "4", says: "the to-do routes need no credentials" },
  { id: "bearer.router", section: "4", says: "the bearer check covers every route of its router" },
  { id: "basic.router", section: "4", says: "the Basic check covers every route of its router" },

  // 5. Authentication
  { id: "todos.no-authentication", section: "5", says: "credentials sent to a to-do route are not judged" },
  { id: "bearer.missing.401", section: "5", says: "no authorization header: 401" },
  { id: "bearer.missing.challenge", section: "5", says: "the answer has a WWW-Authenticate header" },
  { id: "bearer.unknown.401", section: "5", says: "an unknown token: 401" },
  { id: "bearer.unknown.challenge", section: "5", says: "the answer has a WWW-Authenticate header" },
  {
    id: "bearer.near-miss.401",
    section: "5",
    needs: "token",
    says: "a token that is nearly a known one: 401, with WWW-Authenticate",
  },
  {
    id: "bearer.scheme.401",
    section: "5",
    needs: "token",
    says: "a known token under another scheme: 401, with WWW-Authenticate",
  },
  {
    id: "bearer.refused.no-name",
    section: "5",
    needs: "token",
    says: "no client's name without a known token",
  },
  {
    id: "bearer.asynchronous",
    section: "5",
    says: "the lookup is asynchronous and may ask any source",
    notObservable:
      'how a lookup waits does not show from outside — proved by src/http/whoami.test.ts "the lookup may be asynchronous"',
  },
  {
    id: "bearer.constant-time",
    section: "5",
    says: "tokens are compared in constant time",
    notObservable:
      'a network hides such small differences — proved by test/timing.test.ts "tokens are compared in constant time"',
  },
  {
    id: "bearer.hash-only",
    section: "5",
    says: "only a hash of each key is stored",
    notObservable:
      'storage does not show from outside — proved by src/credential/client.test.ts "only a hash of a token is stored"',
  },
  {
    id: "bearer.by-hash",
    section: "5",
    says: "a key is looked up by its hash",
    notObservable:
      'the lookup does not show from outside — proved by src/credential/client.test.ts "a token is looked up by its hash"',
  },
  { id: "basic.missing.refused", section: "5", says: "no credentials: refused" },
  { id: "basic.malformed.refused", section: "5", says: "malformed or unknown credentials: refused" },
  { id: "basic.password.refused", section: "5", needs: "user", says: "a wrong password: refused" },
  { id: "basic.user.refused", section: "5", needs: "user", says: "a wrong user: refused" },
  {
    id: "basic.scheme.refused",
    section: "5",
    needs: "user",
    says: "the right pair under another scheme: refused",
  },
  {
    id: "basic.refused.no-greeting",
    section: "5",
    needs: "user",
    says: "no greeting without valid credentials",
  },
  {
    id: "basic.realm",
    section: "5",
    says: "the surface has a realm: a Basic challenge, where one is sent, names it",
  },
  {
    id: "basic.pair",
    section: "5",
    says: "a single fixed user and password can be configured",
    notObservable:
      'how a server is configured does not show — proved by src/http/admin.test.ts "a fixed pair can be configured"',
  },
  {
    id: "basic.check",
    section: "5",
    says: "an arbitrary check of user and password can be configured",
    notObservable:
      'how a server is configured does not show — proved by src/http/admin.test.ts "a check function can be configured"',
  },
  {
    id: "basic.https",
    section: "5",
    says: "Basic is used over HTTPS only",
    notObservable:
      'a proxy may speak HTTPS for the server — proved by src/http/admin.test.ts "Basic in clear is refused off loopback"',
  },

  // 7. Errors
  { id: "get.malformed.400", section: "7", says: "GET with an id that is no unsigned integer: 400" },
  { id: "update.malformed.400", section: "7", says: "PATCH with an id that is no unsigned integer: 400" },
  { id: "delete.malformed.400", section: "7", says: "DELETE with an id that is no unsigned integer: 400" },
  {
    id: "bearer.empty.401",
    section: "7",
    says: "a bearer header with no credential in it: 401, with WWW-Authenticate",
  },
  { id: "get.absent.404", section: "7", says: "GET of an absent item: 404" },
  { id: "update.absent.404", section: "7", says: "PATCH of an absent item: 404" },
  { id: "delete.absent.404", section: "7", says: "DELETE of an absent item: 404" },
  { id: "title.empty.422", section: "7", says: "an empty title: 422" },
  { id: "title.blank.422", section: "7", says: "a title of only whitespace: 422" },
  { id: "title.long.422", section: "7", says: "a title longer than 120: 422" },
  { id: "title.empty.message", section: "7", says: 'its message is "must not be empty"' },
  { id: "title.long.message", section: "7", says: 'its message is "must be at most 120 characters"' },
  { id: "validation.field", section: "7", says: 'a failure names its field, "title"' },
  { id: "validation.together", section: "7", says: "both failures of a title are reported together" },
  { id: "validation.only-failed", section: "7", says: "a rule the title keeps is not reported" },
  { id: "title.characters", section: "7", says: "the length counts characters, not bytes" },
  { id: "body.create.4xx", section: "7", says: "a missing or malformed body on POST is refused" },
  { id: "body.update.4xx", section: "7", says: "a missing or malformed body on PATCH is refused" },

  // 8. Limits
  { id: "title.120", section: "8", says: "a title of up to 120 is accepted" },
  { id: "title.padded", section: "8", says: "a title that is not empty after trimming is accepted" },

  // 9. Versioning
  { id: "api.no-version", section: "9", says: "the prefix is /api with no version segment" },
] as const satisfies readonly Rule[];

export type RuleId = (typeof rules)[number]["id"];
