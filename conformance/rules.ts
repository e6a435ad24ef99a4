/**
 * Every rule of the specification, as data.
 *
 * A rule has one case under `cases/`, or a `notObservable` that says why no client can check it and names the test that does.
 * The kit has no rule for what the specification marks "not shown", unless another sentence implies it. It has none for
 * permissions either, such as storage in memory or in a database (section 1).
 */

/** What a rule needs: `--token`, `--user`, or `--fresh` (an empty server without other clients). */
export type Need = "token" | "user" | "fresh";

export interface Rule {
  readonly id: string;
  /** The first section of the specification that states the rule. */
  readonly section: "1" | "2" | "3" | "4" | "5" | "7" | "8" | "9";
  readonly description: string;
  readonly needs?: Need;
  readonly notObservable?: string;
}

/** The names of the sections, in order. Section 6 (events) states no rule. */
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
  { id: "api.prefix", section: "1", description: "the to-do routes are mounted only under /api" },
  {
    id: "id.distinct-status",
    section: "1",
    description: "an unknown id and a malformed id get different statuses",
  },

  // 2. Resources and their fields
  { id: "todo.keys", section: "2", description: "a Todo has exactly the keys id, title and done" },
  { id: "todo.id.type", section: "2", description: "id is an unsigned 64-bit integer" },
  { id: "todo.title.type", section: "2", description: "title is a string" },
  { id: "title.same", section: "2", description: "every response shows the same title of a to-do" },
  { id: "todo.done.type", section: "2", description: "done is a boolean" },
  { id: "todo.id.first", section: "2", needs: "fresh", description: "the first id is 1" },
  {
    id: "todo.id.step",
    section: "2",
    needs: "fresh",
    description: "each created to-do increments the id by 1",
  },
  { id: "todo.id.increasing", section: "2", description: "a later to-do has a greater id" },
  { id: "todo.id.unique", section: "2", description: "to-dos created concurrently have different ids" },
  { id: "todo.id.not-reused", section: "2", description: "the id of a deleted to-do is not reused" },
  {
    id: "todo.id.assigned",
    section: "2",
    description: "the service assigns the id and does not use an id in the body",
  },
  {
    id: "todo.done.assigned",
    section: "2",
    description: "the service sets done to false and does not use a done in the body",
  },
  { id: "newtodo.title.required", section: "2", description: "POST without a title is rejected" },
  {
    id: "newtodo.title.string",
    section: "2",
    description: "POST with a title that is not a string is rejected",
  },
  { id: "patch.done.required", section: "2", description: "PATCH without done is rejected" },
  {
    id: "patch.done.boolean",
    section: "2",
    description: "PATCH with a done that is not a boolean is rejected",
  },
  { id: "patch.only-done", section: "2", description: "PATCH changes neither title nor id" },
  {
    id: "client.request",
    section: "2",
    needs: "token",
    description: "each request has its own Client; concurrent requests do not share it",
  },
  {
    id: "basicuser.request",
    section: "2",
    needs: "user",
    description: "each request has its own BasicUser; concurrent requests do not share it",
  },

  // 3. States and transitions
  { id: "create.stored", section: "3", description: "after a valid POST the to-do exists" },
  { id: "create.done", section: "3", description: "a new to-do has done=false" },
  { id: "create.invalid.not-stored", section: "3", description: "an invalid POST creates nothing" },
  {
    id: "create.invalid.counter",
    section: "3",
    needs: "fresh",
    description: "a rejected to-do does not use an id",
  },
  {
    id: "counter.only-stored",
    section: "3",
    needs: "fresh",
    description: "only a stored to-do uses an id",
  },
  { id: "update.to-true", section: "3", description: "PATCH done=true sets true, whatever the value was" },
  {
    id: "update.to-false",
    section: "3",
    description: "PATCH done=false sets false, whatever the value was",
  },
  { id: "update.stored", section: "3", description: "the new value is stored" },
  { id: "update.only-one", section: "3", description: "PATCH changes no other to-do" },
  { id: "delete.removes", section: "3", description: "after DELETE the to-do does not exist" },
  { id: "delete.either-state", section: "3", description: "DELETE succeeds whether done is false or true" },
  { id: "delete.only-one", section: "3", description: "DELETE removes no other to-do" },
  {
    id: "delete.once",
    section: "3",
    description: "exactly one of several concurrent DELETEs succeeds",
  },
  {
    id: "absent.unchanged",
    section: "3",
    description: "a request for an absent to-do does not create it",
  },

  {
    id: "todos.concurrent",
    section: "3",
    description: "concurrent requests for different to-dos do not affect each other",
  },

  // 4. Endpoints
  { id: "json.success", section: "4", description: "successful responses of the to-do routes are JSON" },
  {
    id: "json.errors",
    section: "4",
    description: "error responses of the to-do routes are JSON if they have a body",
  },
  { id: "list.200", section: "4", description: "GET /api/todos returns 200" },
  { id: "list.array", section: "4", description: "the list is a JSON array" },
  {
    id: "list.empty",
    section: "4",
    needs: "fresh",
    description: "without to-dos the list is an empty array",
  },
  {
    id: "list.emptied",
    section: "4",
    needs: "fresh",
    description: "after the last to-do was deleted, the list is an empty array",
  },
  {
    id: "list.complete",
    section: "4",
    description: "the list contains the current state of every to-do once",
  },
  { id: "list.unlimited", section: "4", description: "the list is not limited to 100 to-dos" },
  { id: "list.order", section: "4", description: "the list is ordered by ascending id" },
  { id: "create.201", section: "4", description: "a valid POST returns 201" },
  { id: "create.answer", section: "4", description: "POST returns the Todo" },
  { id: "create.title", section: "4", description: "the Todo has the title from the request" },
  { id: "create.title.whole", section: "4", description: "a title of 120 characters is stored whole" },
  { id: "create.same-title", section: "4", description: "two to-dos may have the same title" },
  {
    id: "create.validates-first",
    section: "4",
    description: "POST validates the body first and stores nothing from a malformed body",
  },
  { id: "get.200", section: "4", description: "GET of a to-do returns 200" },
  { id: "get.answer", section: "4", description: "GET of a to-do returns that Todo" },
  { id: "update.200", section: "4", description: "PATCH returns 200" },
  { id: "update.answer", section: "4", description: "PATCH returns the Todo after the change" },
  { id: "delete.204", section: "4", description: "DELETE returns 204" },
  { id: "delete.empty", section: "4", description: "the response to DELETE has no body" },
  {
    id: "whoami.200",
    section: "4",
    needs: "token",
    description: "GET /api/whoami with a known token returns 200",
  },
  {
    id: "whoami.name",
    section: "4",
    needs: "token",
    description: "the body of GET /api/whoami is the client's name",
  },
  { id: "whoami.text", section: "4", needs: "token", description: "the body of GET /api/whoami is text" },
  {
    id: "admin.200",
    section: "4",
    needs: "user",
    description: "GET /admin/ with valid credentials returns 200",
  },
  {
    id: "admin.greeting",
    section: "4",
    needs: "user",
    description: "the body of GET /admin/ greets the user by name",
  },
  { id: "admin.text", section: "4", needs: "user", description: "the body of GET /admin/ is text" },
  { id: "id.range", section: "4", description: "every integer from 0 to 2^64-1 is a well-formed id" },
  { id: "id.out-of-range", section: "4", description: "an integer above 2^64-1 as id returns 400" },
  { id: "todos.open", section: "4", description: "the to-do routes require no credentials" },
  { id: "bearer.router", section: "4", description: "the bearer check covers every route of its router" },
  { id: "basic.router", section: "4", description: "the Basic check covers every route of its router" },

  // 5. Authentication
  {
    id: "todos.no-authentication",
    section: "5",
    description: "the to-do routes ignore credentials",
  },
  {
    id: "bearer.missing.401",
    section: "5",
    description: "a request without an Authorization header gets 401",
  },
  {
    id: "bearer.missing.challenge",
    section: "5",
    description: "a 401 without an Authorization header has a WWW-Authenticate header",
  },
  { id: "bearer.unknown.401", section: "5", description: "an unknown token gets 401" },
  {
    id: "bearer.unknown.challenge",
    section: "5",
    description: "a 401 for an unknown token has a WWW-Authenticate header",
  },
  {
    id: "bearer.near-miss.401",
    section: "5",
    needs: "token",
    description: "a token similar to a known one gets 401 with WWW-Authenticate",
  },
  {
    id: "bearer.scheme.401",
    section: "5",
    needs: "token",
    description: "a known token with another scheme gets 401 with WWW-Authenticate",
  },
  {
    id: "bearer.refused.no-name",
    section: "5",
    needs: "token",
    description: "without a known token, no response contains the client's name",
  },
  {
    id: "bearer.asynchronous",
    section: "5",
    description: "the lookup is asynchronous and may use any source",
    notObservable:
      'clients cannot see how the service looks up a token — proved by src/http/auth/bearer.test.ts "may be asynchronous"',
  },
  {
    id: "bearer.constant-time",
    section: "5",
    description: "tokens are compared in constant time",
    notObservable:
      'differences that small cannot be measured over a network — proved by test/timing.system.test.ts "tokens are compared in constant time"',
  },
  {
    id: "bearer.hash-only",
    section: "5",
    description: "only a hash of each key is stored",
    notObservable:
      'clients cannot see what the service stores — proved by src/credential/client.test.ts "stores only the hash of a token"',
  },
  {
    id: "bearer.by-hash",
    section: "5",
    description: "a key is looked up by its hash",
    notObservable:
      'clients cannot see how the service looks up a token — proved by src/credential/client.test.ts "finds the client by the hash of the token"',
  },
  { id: "basic.missing.refused", section: "5", description: "a request without credentials is rejected" },
  {
    id: "basic.malformed.refused",
    section: "5",
    description: "malformed or unknown credentials are rejected",
  },
  { id: "basic.password.refused", section: "5", needs: "user", description: "a wrong password is rejected" },
  { id: "basic.user.refused", section: "5", needs: "user", description: "a wrong user is rejected" },
  {
    id: "basic.scheme.refused",
    section: "5",
    needs: "user",
    description: "valid credentials with another scheme are rejected",
  },
  {
    id: "basic.refused.no-greeting",
    section: "5",
    needs: "user",
    description: "without valid credentials, no response contains the greeting",
  },
  {
    id: "basic.realm",
    section: "5",
    description: "every Basic challenge has a realm",
  },
  {
    id: "basic.pair",
    section: "5",
    description: "one fixed user and password can be configured",
    notObservable:
      'clients cannot see how the service is configured — proved by src/http/auth/basic.test.ts "accepts a configured user and password"',
  },
  {
    id: "basic.check",
    section: "5",
    description: "any function that checks user and password can be configured",
    notObservable:
      'clients cannot see how the service is configured — proved by src/http/auth/basic.test.ts "accepts the users of a check function"',
  },
  {
    id: "basic.https",
    section: "5",
    description: "Basic is used only over HTTPS",
    notObservable:
      'a proxy may terminate HTTPS for the service — proved by src/http/auth/basic.test.ts "is rejected off loopback"',
  },

  // 7. Errors
  {
    id: "get.malformed.400",
    section: "7",
    description: "GET with an id that is not an unsigned integer returns 400",
  },
  {
    id: "update.malformed.400",
    section: "7",
    description: "PATCH with an id that is not an unsigned integer returns 400",
  },
  {
    id: "update.malformed.any-body",
    section: "7",
    description: "PATCH with a malformed id returns 400, even if done is missing or invalid",
  },
  {
    id: "delete.malformed.400",
    section: "7",
    description: "DELETE with an id that is not an unsigned integer returns 400",
  },
  {
    id: "bearer.empty.401",
    section: "7",
    description: "a bearer header without a token gets 401 with WWW-Authenticate",
  },
  { id: "get.absent.404", section: "7", description: "GET of an absent to-do returns 404" },
  { id: "update.absent.404", section: "7", description: "PATCH of an absent to-do returns 404" },
  { id: "delete.absent.404", section: "7", description: "DELETE of an absent to-do returns 404" },
  { id: "title.empty.422", section: "7", description: "an empty title gets 422" },
  { id: "title.blank.422", section: "7", description: "a blank title gets 422" },
  { id: "title.long.422", section: "7", description: "a title of more than 120 characters gets 422" },
  {
    id: "title.empty.message",
    section: "7",
    description: 'the message for a blank title is "must not be empty"',
  },
  {
    id: "title.long.message",
    section: "7",
    description: 'the message for a long title is "must be at most 120 characters"',
  },
  { id: "validation.field", section: "7", description: 'a validation error names the field "title"' },
  {
    id: "validation.together",
    section: "7",
    description: "a title that violates both rules gets one of their messages, or both",
  },
  { id: "validation.only-failed", section: "7", description: "only violated rules are reported" },
  { id: "title.characters", section: "7", description: "the length counts characters, not bytes" },
  { id: "body.create.4xx", section: "7", description: "POST with a missing or malformed body is rejected" },
  { id: "body.update.4xx", section: "7", description: "PATCH with a missing or malformed body is rejected" },

  // 8. Limits
  { id: "title.120", section: "8", description: "a title of up to 120 characters is accepted" },
  { id: "title.padded", section: "8", description: "a title that is not empty after trimming is accepted" },

  // 9. Versioning
  { id: "api.no-version", section: "9", description: "the prefix /api has no version segment" },
] as const satisfies readonly Rule[];

export type RuleId = (typeof rules)[number]["id"];
