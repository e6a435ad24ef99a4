/**
 * Every rule of the specification, as data.
 *
 * The model judges most rules of the to-do routes. A case under `cases/` judges each of the others, unless `notObservable`
 * says why no client can check it and names the test that does. The kit has no rule for what the specification marks
 * "not shown", unless another sentence implies it. It has none for permissions either, such as storage in memory (section 1).
 */

/** What a rule needs: `--token`, `--user`, or `--fresh` (an empty server without other clients). */
export type Need = "token" | "user" | "fresh";

export interface Rule {
  readonly id: string;
  /** The first section of the specification that states the rule. */
  readonly section: "1" | "2" | "3" | "4" | "5" | "7" | "8" | "9";
  readonly description: string;
  readonly needs?: Need;
  /** True when the model judges the rule. */
  readonly byModel?: boolean;
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

const BY_MODEL = {
  "todo.keys": ["2", "a Todo has exactly the keys id, title and done"],
  "todo.id.type": ["2", "id is an unsigned 64-bit integer"],
  "todo.title.type": ["2", "title is a string"],
  "todo.done.type": ["2", "done is a boolean"],
  "title.same": ["2", "every response shows the same title of a to-do"],
  "todo.id.increasing": ["2", "a later to-do has a greater id"],
  "todo.id.unique": ["2", "two to-dos have different ids"],
  "todo.id.not-reused": ["2", "the id of a deleted to-do is not reused"],
  "todo.id.assigned": ["2", "the service assigns the id and does not use an id in the body"],
  "todo.done.assigned": ["2", "the service sets done to false and does not use a done in the body"],
  "newtodo.title.required": ["2", "POST without a title is rejected"],
  "newtodo.title.string": ["2", "POST with a title that is not a string is rejected"],
  "patch.done.required": ["2", "PATCH without done is rejected"],
  "patch.done.boolean": ["2", "PATCH with a done that is not a boolean is rejected"],
  "patch.only-done": ["2", "PATCH changes neither title nor id"],
  "create.stored": ["3", "after a valid POST the to-do exists"],
  "create.done": ["3", "a new to-do has done=false"],
  "create.invalid.not-stored": ["3", "an invalid POST creates nothing"],
  "update.to-true": ["3", "PATCH done=true sets true, whatever the value was"],
  "update.to-false": ["3", "PATCH done=false sets false, whatever the value was"],
  "update.stored": ["3", "the new value is stored"],
  "update.only-one": ["3", "PATCH changes no other to-do"],
  "delete.removes": ["3", "after DELETE the to-do does not exist"],
  "delete.either-state": ["3", "DELETE succeeds whether done is false or true"],
  "delete.only-one": ["3", "DELETE removes no other to-do"],
  "delete.once": ["3", "exactly one of several concurrent DELETEs succeeds"],
  "absent.unchanged": ["3", "a request for an absent to-do does not create it"],
  "todos.concurrent": ["3", "concurrent requests have the results of some order"],
  "json.success": ["4", "successful responses of the to-do routes are JSON"],
  "json.errors": ["4", "error responses of the to-do routes are JSON if they have a body"],
  "list.200": ["4", "GET /api/todos returns 200"],
  "list.array": ["4", "the list is a JSON array"],
  "list.complete": ["4", "the list contains the current state of every to-do once"],
  "list.unlimited": ["4", "the list is not limited, with up to 1,001 to-dos"],
  "list.order": ["4", "the list is ordered by ascending id"],
  "create.201": ["4", "a valid POST returns 201"],
  "create.answer": ["4", "POST returns the Todo"],
  "create.title": ["4", "the Todo has the title from the request"],
  "create.same-title": ["4", "two to-dos may have the same title"],
  "create.validates-first": ["4", "POST stores nothing from a malformed body"],
  "get.200": ["4", "GET of a to-do returns 200"],
  "get.answer": ["4", "GET of a to-do returns that Todo"],
  "update.200": ["4", "PATCH returns 200"],
  "update.answer": ["4", "PATCH returns the Todo after the change"],
  "delete.204": ["4", "DELETE returns 204"],
  "id.range": ["4", "every integer from 0 to 2^64-1 is a well-formed id"],
  "id.out-of-range": ["4", "an integer above 2^64-1 as id returns 400"],
  "todos.open": ["4", "the to-do routes require no credentials"],
  "todos.no-authentication": ["5", "the to-do routes ignore credentials"],
  "get.malformed.400": ["7", "GET with an id that is not an unsigned integer returns 400"],
  "update.malformed.400": ["7", "PATCH with an id that is not an unsigned integer returns 400"],
  "update.malformed.any-body": [
    "7",
    "PATCH with a malformed id returns 400, even if done is missing or invalid",
  ],
  "delete.malformed.400": ["7", "DELETE with an id that is not an unsigned integer returns 400"],
  "get.absent.404": ["7", "GET of an absent to-do returns 404"],
  "update.absent.404": ["7", "PATCH of an absent to-do returns 404"],
  "delete.absent.404": ["7", "DELETE of an absent to-do returns 404"],
  "title.empty.422": ["7", "an empty title gets 422"],
  "title.blank.422": ["7", "a blank title gets 422"],
  "title.long.422": ["7", "a title of more than 120 characters gets 422"],
  "title.empty.message": ["7", 'the message for a blank title is "must not be empty"'],
  "title.long.message": ["7", 'the message for a long title is "must be at most 120 characters"'],
  "validation.field": ["7", 'a validation error names the field "title"'],
  "validation.together": ["7", "a title that violates both rules gets one of their messages, or both"],
  "validation.only-failed": ["7", "only violated rules are reported"],
  "title.characters": ["7", "the length counts characters, not bytes"],
  "body.create.4xx": ["7", "POST with a missing or malformed body is rejected"],
  "body.update.4xx": ["7", "PATCH with a missing or malformed body is rejected"],
  "title.120": ["8", "a title of up to 120 characters is accepted"],
  "title.padded": ["8", "a title that is not empty after trimming is accepted"],
} as const;

/** Rules that the model judges on an empty server without other clients. */
const BY_MODEL_FRESH = {
  "todo.id.first": ["2", "the first id is 1"],
  "todo.id.step": ["2", "each created to-do increments the id by 1"],
  "counter.only-stored": ["3", "only a stored to-do uses an id"],
  "list.empty": ["4", "without to-dos the list is an empty array"],
} as const;

const BY_CASE = {
  "api.prefix": ["1", "the to-do routes are mounted only under /api"],
  "delete.empty": ["4", "the response to DELETE has no body"],
  "bearer.router": ["4", "the bearer check covers every route of its router"],
  "basic.router": ["4", "the Basic check covers every route of its router"],
  "bearer.missing.401": ["5", "a request without an Authorization header gets 401"],
  "bearer.missing.challenge": ["5", "a 401 without an Authorization header has a WWW-Authenticate header"],
  "bearer.unknown.401": ["5", "an unknown token gets 401"],
  "bearer.unknown.challenge": ["5", "a 401 for an unknown token has a WWW-Authenticate header"],
  "basic.missing.refused": ["5", "a request without credentials is rejected"],
  "basic.malformed.refused": ["5", "malformed or unknown credentials are rejected"],
  "basic.realm": ["5", "every Basic challenge has a realm"],
  "bearer.empty.401": ["7", "a bearer header without a token gets 401 with WWW-Authenticate"],
  "api.no-version": ["9", "the prefix /api has no version segment"],
} as const;

const WITH_TOKEN = {
  "client.request": ["2", "each request has its own Client; concurrent requests do not share it"],
  "whoami.200": ["4", "GET /api/whoami with a known token returns 200"],
  "whoami.name": ["4", "the body of GET /api/whoami is the client's name"],
  "whoami.text": ["4", "the body of GET /api/whoami is text"],
  "bearer.near-miss.401": ["5", "a token similar to a known one gets 401 with WWW-Authenticate"],
  "bearer.scheme.401": ["5", "a known token with another scheme gets 401 with WWW-Authenticate"],
  "bearer.refused.no-name": ["5", "without a known token, no response contains the client's name"],
} as const;

const WITH_USER = {
  "basicuser.request": ["2", "each request has its own BasicUser; concurrent requests do not share it"],
  "admin.200": ["4", "GET /admin/ with valid credentials returns 200"],
  "admin.greeting": ["4", "the body of GET /admin/ greets the user by name"],
  "admin.text": ["4", "the body of GET /admin/ is text"],
  "basic.password.refused": ["5", "a wrong password is rejected"],
  "basic.user.refused": ["5", "a wrong user is rejected"],
  "basic.scheme.refused": ["5", "valid credentials with another scheme are rejected"],
  "basic.refused.no-greeting": ["5", "without valid credentials, no response contains the greeting"],
} as const;

const NOT_OBSERVABLE = {
  "bearer.asynchronous": [
    "the lookup is asynchronous and may use any source",
    'clients cannot see how the service looks up a token — proved by src/http/auth/bearer.test.ts "may be asynchronous"',
  ],
  "bearer.constant-time": [
    "tokens are compared in constant time",
    'differences that small cannot be measured over a network — proved by test/timing.system.test.ts "tokens are compared in constant time"',
  ],
  "bearer.hash-only": [
    "only a hash of each key is stored",
    'clients cannot see what the service stores — proved by src/credential/client.test.ts "stores only the hash of a token"',
  ],
  "bearer.by-hash": [
    "a key is looked up by its hash",
    'clients cannot see how the service looks up a token — proved by src/credential/client.test.ts "finds the client by the hash of the token"',
  ],
  "basic.pair": [
    "one fixed user and password can be configured",
    'clients cannot see how the service is configured — proved by src/http/auth/basic.test.ts "accepts a configured user and password"',
  ],
  "basic.check": [
    "any function that checks user and password can be configured",
    'clients cannot see how the service is configured — proved by src/http/auth/basic.test.ts "accepts the users of a check function"',
  ],
  "basic.https": [
    "Basic is used only over HTTPS",
    'a proxy may terminate HTTPS for the service — proved by src/http/auth/basic.test.ts "is rejected off loopback"',
  ],
} as const;

export type ModelRuleId = keyof typeof BY_MODEL | keyof typeof BY_MODEL_FRESH;
export type CaseRuleId = keyof typeof BY_CASE | keyof typeof WITH_TOKEN | keyof typeof WITH_USER;
export type RuleId = ModelRuleId | CaseRuleId | keyof typeof NOT_OBSERVABLE;

type Group = Readonly<Record<string, readonly [section: Rule["section"], description: string]>>;

function fromGroup(group: Group, more: Pick<Rule, "needs" | "byModel"> = {}): Rule[] {
  return Object.entries(group).map(([id, [section, description]]) => ({ id, section, description, ...more }));
}

/** All rules by section. */
export const rules: readonly Rule[] = [
  ...fromGroup(BY_MODEL, { byModel: true }),
  ...fromGroup(BY_MODEL_FRESH, { byModel: true, needs: "fresh" }),
  ...fromGroup(BY_CASE),
  ...fromGroup(WITH_TOKEN, { needs: "token" }),
  ...fromGroup(WITH_USER, { needs: "user" }),
  ...Object.entries(NOT_OBSERVABLE).map(
    ([id, [description, notObservable]]): Rule => ({ id, section: "5", description, notObservable }),
  ),
].toSorted((a, b) => Number(a.section) - Number(b.section));
