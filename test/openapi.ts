import { Ajv2020, type ValidateFunction } from "ajv/dist/2020.js";
import document from "../openapi.json" with { type: "json" };

interface Reference {
  $ref: string;
}

interface Header {
  required: boolean;
  schema: object;
}

interface Answer {
  headers: Record<string, Reference | Header>;
  content?: Record<string, { schema?: object }>;
}

type Answers = Record<string, Reference | Answer>;

type PathItem = Partial<Record<"get" | "post" | "patch" | "delete", { responses: Answers }>>;

interface Contract {
  paths: Record<string, PathItem>;
  components: { headers: Record<string, Header>; responses: Record<string, Answer> };
  "x-beyond-operations": Record<
    "anyRequest" | "unknownPath" | "unlistedMethod" | "options" | "preflight",
    Answers
  > & { guarded: Record<string, Answers> };
}

const contract: Contract = document;

/** Throws unless openapi.json allows the response. Reads a clone, so that the caller can read the body; skips event streams. */
export async function validateResponse(method: string, path: string, response: Response): Promise<void> {
  const route = path.replace(/\?.*$/s, "");
  const isEndless = method !== "HEAD" && response.headers.get("content-type") === "text/event-stream";
  const text = isEndless ? "" : await response.clone().text();
  const found = [...faults(method, route, response, text)];
  if (found.length > 0) {
    const body = JSON.stringify(text.slice(0, 500));
    throw new Error(`${method} ${path} answered ${response.status}: ${found.join("; ")}. Body: ${body}`);
  }
}

function* faults(method: string, route: string, response: Response, text: string): Generator<string> {
  const { status, headers } = response;
  const answers = answersTo(method, route, headers.has("access-control-allow-methods"));
  const answer = answers[status];
  if (answer === undefined) {
    const kind =
      itemAt(route) === undefined ? "openapi.json has no such path" : "openapi.json has no such answer";
    yield `${kind}: only ${Object.keys(answers).join(", ")} are documented`;
    return;
  }
  const { headers: documented, content } = resolve(answer, contract.components.responses);
  yield* headerFaults(documented, headers);
  yield* allowFaults(method, route, response);
  yield* cacheFaults(route, response);
  if (!isErrorPage(route, response))
    yield* bodyFaults(content ?? {}, method === "HEAD", headers.get("content-type"), text);
}

/** The responses that the document allows, by status, for a request that matches no operation. */
function answersTo(method: string, route: string, preflight: boolean): Answers {
  const beyond = contract["x-beyond-operations"];
  if (method === "OPTIONS" && preflight) {
    return { ...beyond.anyRequest, ...beyond.preflight };
  }
  const item = itemAt(route);
  const wanted = method === "HEAD" ? "get" : method.toLowerCase();
  const operation = Object.entries(item ?? {}).find(([verb]) => verb === wanted);
  if (operation !== undefined) {
    return operation[1].responses;
  }
  const known = method === "OPTIONS" ? beyond.options : beyond.unlistedMethod;
  return { ...beyond.anyRequest, ...guardAt(route), ...(item === undefined ? beyond.unknownPath : known) };
}

function itemAt(route: string): PathItem | undefined {
  const sent = route.split("/");
  return Object.entries(contract.paths).find(([template]) => {
    const parts = template.split("/");
    return (
      parts.length === sent.length &&
      parts.every((part, at) => (part.startsWith("{") ? sent[at] !== "" : sent[at] === part))
    );
  })?.[1];
}

/** Returns the responses with which the guard of this path rejects requests. */
function guardAt(route: string): Answers | undefined {
  const { guarded } = contract["x-beyond-operations"];
  return Object.entries(guarded).find(([root]) => route === root || route.startsWith(`${root}/`))?.[1];
}

function* headerFaults(documented: Answer["headers"], headers: Headers): Generator<string> {
  for (const [name, entry] of Object.entries(documented)) {
    const { required, schema } = resolve(entry, contract.components.headers);
    const value = headers.get(name);
    if (value === null) {
      if (required) yield `${name} is missing`;
      continue;
    }
    const typed =
      /^[0-9]+$/.test(value) && "type" in schema && schema.type === "integer" ? Number(value) : value;
    const fault = mismatch(schema, typed);
    if (fault !== undefined) yield `${name} is ${JSON.stringify(value)}: ${fault}`;
  }
}

function* allowFaults(method: string, route: string, { status, headers }: Response): Generator<string> {
  const allow = headers.get("allow");
  if (allow === null || (status !== 405 && method !== "OPTIONS")) {
    return;
  }
  const verbs = Object.keys(itemAt(route) ?? {}).map((verb) => verb.toUpperCase());
  const expected = [...verbs, ...(verbs.includes("GET") ? ["HEAD"] : []), "OPTIONS"].sort().join(", ");
  if (allow.split(/, ?/).sort().join(", ") !== expected) {
    yield `Allow is ${JSON.stringify(allow)} where the methods are ${expected}`;
  }
}

/** An unknown path below a guard is not an operation, but its 404 or 405 also needs headers that forbid caching. */
function* cacheFaults(route: string, { status, headers }: Response): Generator<string> {
  const storable = status === 404 || status === 405;
  if (storable && guardAt(route) !== undefined && headers.get("cache-control") !== "no-store") {
    yield "Cache-Control is not no-store on a protected surface";
  }
}

/** The document describes these pages in words only, because a second media type makes errors untyped in generated clients. */
function isErrorPage(route: string, { status, headers }: Response): boolean {
  const isHtml = headers.get("content-type") === "text/html; charset=utf-8";
  return isHtml && [401, 403, 404, 421].includes(status) && !route.startsWith("/api/");
}

function* bodyFaults(
  content: NonNullable<Answer["content"]>,
  bodiless: boolean,
  type: string | null,
  text: string,
): Generator<string> {
  const types = Object.keys(content);
  if ((bodiless || types.length === 0) && text !== "") {
    yield "there is a body where none may be";
  }
  if (types.length === 0) {
    if (type !== null) yield `there is no body, but Content-Type is ${type}`;
    return;
  }
  const plain = (name: string) => name.toLowerCase().replaceAll(" ", "");
  const found = Object.entries(content).find(([name]) => type !== null && plain(name) === plain(type));
  if (found === undefined) {
    yield `Content-Type is ${type} where ${types.join(" or ")} is documented`;
    return;
  }
  if (bodiless) {
    return;
  }
  const [name, media] = found;
  // Binary content has no schema (OpenAPI 3.1 §4.8.14.3).
  if (media.schema === undefined) return;
  const fault = name.endsWith("json") ? jsonMismatch(media.schema, text) : mismatch(media.schema, text);
  if (fault !== undefined) yield `the body is not as documented: ${fault}`;
}

function jsonMismatch(schema: object, text: string): string | undefined {
  try {
    const value = JSON.parse(text);
    // The document says so in words only, because some generators fail on a schema that forbids a property.
    if (value?.code !== undefined && value.code !== "validation_failed" && value.errors !== undefined)
      return `/errors belongs to validation_failed, not to ${value.code}`;
    return mismatch(schema, value);
  } catch (error) {
    if (error instanceof SyntaxError) return error.message;
    throw error;
  }
}

function resolve<T extends object>(entry: Reference | T, components: Record<string, T>): T {
  if (!("$ref" in entry)) {
    return entry;
  }
  const target = components[entry.$ref.replace(/^.*\//, "")];
  if (target === undefined) {
    throw new Error(`openapi.json has no ${entry.$ref}`);
  }
  return target;
}

const ajv = new Ajv2020({ strict: true, allErrors: true });
ajv.addVocabulary(["components"]);
ajv.addFormat("date-time", (text) => !Number.isNaN(Date.parse(text)));
// Parsed ids are doubles, so the bounds of the schema check the range only as exactly as a double can.
ajv.addFormat("uint64", { type: "number", validate: (id) => Number.isInteger(id) && id >= 0 });

const compiled = new Map<object, ValidateFunction>();

export function mismatch(schema: object, value: unknown): string | undefined {
  let validate = compiled.get(schema);
  if (validate === undefined) {
    // A schema alone has no components, so they are added to resolve its references.
    validate = ajv.compile({ ...schema, components: contract.components });
    compiled.set(schema, validate);
  }
  return validate(value) ? undefined : ajv.errorsText(validate.errors, { dataVar: "" });
}
