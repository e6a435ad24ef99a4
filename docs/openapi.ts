/** Renders openapi.json as Markdown, for the page at `/docs` and for the site. */

/** The parts of the OpenAPI document that its readers see. */
export interface OpenApiDocument {
  readonly info: { readonly description: string };
  readonly tags: readonly { readonly name: string; readonly description: string }[];
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
  readonly components: {
    readonly parameters: Readonly<Record<string, Parameter>>;
    readonly headers: Readonly<Record<string, Described>>;
    readonly responses: Readonly<Record<string, Message>>;
    readonly schemas: Readonly<Record<string, Schema>>;
  };
}

interface Operation {
  readonly operationId: string;
  readonly tags: readonly string[];
  readonly summary: string;
  readonly description: string;
  /** The alternatives; an empty one stands for no credentials. */
  readonly security: readonly Readonly<Record<string, unknown>>[];
  readonly parameters?: readonly Parameter[];
  readonly requestBody?: Message;
  readonly responses: Readonly<Record<string, Message>>;
}

interface Described {
  readonly $ref?: string;
  readonly description?: string;
}

interface Parameter extends Described {
  readonly name?: string;
  readonly in?: string;
  readonly required?: boolean;
  readonly schema?: Schema;
  readonly example?: unknown;
}

/** A request body or a response. */
interface Message extends Described {
  readonly headers?: Readonly<Record<string, Described>>;
  readonly content?: Readonly<Record<string, Media>>;
}

interface Media {
  readonly schema?: Schema;
  readonly example?: unknown;
  readonly examples?: Readonly<Record<string, { readonly summary?: string; readonly value: unknown }>>;
}

interface Schema extends Described {
  readonly type?: string;
  readonly format?: string;
  readonly const?: unknown;
  readonly enum?: readonly unknown[];
  readonly default?: unknown;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly maxLength?: number;
  readonly items?: Schema;
  readonly allOf?: readonly Schema[];
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly required?: readonly string[];
}

/** The address in the commands. A script of `/docs` replaces it by the address of the server. */
const EXAMPLE_ORIGIN = "http://127.0.0.1:3000";

const CREDENTIALS: Readonly<Record<string, string>> = {
  bearer: '-H "Authorization: Bearer $TODO_TOKEN"',
  basic: "-u admin",
};

/** Returns the examples of a body by their summaries, which may be empty. */
function examplesOf(media: Media = {}): readonly (readonly [summary: string, value: unknown])[] {
  const { example, examples = {} } = media;
  if (example !== undefined) return [["", example]];
  return Object.values(examples).map(({ summary = "", value }) => [summary, value]);
}

/** Returns a table, or nothing if it has no rows. */
function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]): string =>
    `| ${cells.map((cell) => cell.replaceAll("|", "\\|").replaceAll("\n", " ")).join(" | ")} |`;
  return rows.length === 0 ? "" : [line(head), line(head.map(() => "---")), ...rows.map(line)].join("\n");
}

/**
 * Returns a list of the operations, their descriptions, the schemas of their bodies, and the text of the document. Headings
 * have the ids of operations and schemas, as `## text {#id}`; each error code has its own id.
 */
export function renderOpenApi({ info, tags, paths, components }: OpenApiDocument): string {
  /** Returns the component that a reference names. */
  const resolve = <T extends Described>(value: T, named: Readonly<Record<string, T>>): T =>
    named[value.$ref?.split("/").at(-1) ?? ""] ?? value;

  const typeOf = (schema: Schema): string => {
    const {
      type = "",
      items,
      format,
      minimum,
      maximum,
      maxLength,
      ...rest
    } = resolve(schema, components.schemas);
    const name = schema.$ref?.split("/").at(-1);
    if (name !== undefined && type === "object") return `[${name}](#${name})`;
    if (items !== undefined) return `array of ${typeOf(items)}`;
    return [
      rest.enum?.map((value) => `\`${value}\``).join(" or ") ?? format ?? type,
      format === undefined && maximum !== undefined && `${minimum} to ${maximum}`,
      maxLength !== undefined && `at most ${maxLength} characters`,
      rest.default !== undefined && `default \`${rest.default}\``,
    ]
      .filter(Boolean)
      .join(", ");
  };

  const describeBody = ({ content = {} }: Message): readonly string[] =>
    Object.entries(content).flatMap(([type, media]) => [
      `Body: \`${type}\`${media.schema?.$ref || media.schema?.items ? `, ${typeOf(media.schema)}` : ""}`,
      ...examplesOf(media).flatMap(([summary, value]) => [
        summary && `${summary}:`,
        typeof value === "string" ? fence("text", value.trimEnd()) : fence("json", JSON.stringify(value)),
      ]),
    ]);

  const describeSuccess = ([status, response]: readonly [string, Message]): readonly string[] => [
    `#### Response ${status}`,
    response.description ?? "",
    table(
      ["header", "meaning"],
      Object.entries(response.headers ?? {})
        .filter(([name]) => name !== "X-Content-Type-Options")
        .map(([name, header]) => [`\`${name}\``, resolve(header, components.headers).description ?? ""]),
    ),
    ...describeBody(response),
  ];

  const codesOf = ({ content = {} }: Message): string =>
    Object.values(content)
      .flatMap(({ schema }) => schema?.allOf ?? [])
      .flatMap(({ properties }) => properties?.code?.enum ?? properties?.code?.const ?? [])
      .map((code) => `[\`${code}\`](#${code})`)
      .join(", ");

  const describeOperation = (method: string, path: string, operation: Operation): string => {
    const parameters = (operation.parameters ?? []).map((value) => resolve(value, components.parameters));
    const responses = Object.entries(operation.responses);
    const errors = responses.filter(([status]) => status >= "400");
    return [
      `### ${operation.summary} {#${operation.operationId}}`,
      `\`${method.toUpperCase()} ${path}\``,
      operation.description,
      fence("sh", curl(method, path, parameters, operation)),
      table(
        ["parameter", "in", "type", "meaning"],
        parameters.map(({ name = "", in: place = "", required = false, schema = {}, description = "" }) => [
          `\`${name}\``,
          required ? `${place}, required` : place,
          typeOf(schema),
          description,
        ]),
      ),
      ...(operation.requestBody === undefined
        ? []
        : ["#### Request", operation.requestBody.description ?? "", ...describeBody(operation.requestBody)]),
      ...responses.filter(([status]) => status < "400").flatMap(describeSuccess),
      `<details><summary>Errors (${errors.length})</summary>`,
      table(
        ["status", "code", "meaning"],
        errors
          .map(([status, error]) => [status, resolve(error, components.responses)] as const)
          .map(([status, error]) => [status, codesOf(error), error.description ?? ""]),
      ),
      "</details>",
    ]
      .filter(Boolean)
      .join("\n\n");
  };

  const operations = Object.entries(paths).flatMap(([path, item]) =>
    Object.entries(item).map(([method, operation]) => ({ path, method, operation })),
  );
  const groups = tags.map(({ name, description }) => ({
    head: `${name}: ${description}`,
    members: operations.filter(({ operation }) => operation.tags.includes(name)),
  }));
  const objects = Object.entries(components.schemas).filter(([, { properties }]) => properties !== undefined);
  return [
    ...groups.flatMap(({ head, members }) => [
      `**${head.replace(":", ":**")}`,
      members
        .map(
          ({ path, method, operation: { operationId, summary } }) =>
            `- [\`${method.toUpperCase()} ${path}\` ${summary}](#${operationId})`,
        )
        .join("\n"),
    ]),
    "## Operations",
    ...operations.map(({ method, path, operation }) => describeOperation(method, path, operation)),
    "## Bodies",
    ...objects.flatMap(([name, { description = "", properties = {}, required = [] }]) => [
      `### ${name} {#${name}}`,
      description,
      table(
        ["member", "type", "meaning"],
        Object.entries(properties).map(([member, schema]) => [
          `\`${member}\`${required.includes(member) ? "" : " (optional)"}`,
          typeOf(schema),
          schema.description ?? resolve(schema, components.schemas).description ?? "",
        ]),
      ),
    ]),
    "## General",
    info.description
      .replaceAll("\n## ", "\n### ")
      .replace(/\*\*`(\w+)`\*\*/g, '<strong id="$1"><code>$1</code></strong>'),
  ].join("\n\n");
}

const fence = (language: string, text: string): string => `\`\`\`${language}\n${text}\n\`\`\``;

/** Returns a command for a POSIX shell. `TODO_TOKEN` is the token; curl asks for a password. */
function curl(
  method: string,
  path: string,
  parameters: readonly Parameter[],
  { security, requestBody, responses }: Operation,
): string {
  const [, body] = examplesOf(requestBody?.content?.["application/json"])[0] ?? [];
  const [type = ""] = Object.keys(responses["200"]?.content ?? {});
  const isOpen = security.length === 0 || security.some((scheme) => Object.keys(scheme).length === 0);
  const scheme = security
    .flatMap((alternative) => Object.keys(alternative))
    .find((name) => name in CREDENTIALS);
  const implied = body === undefined ? "get" : "post";
  const url = path.replace(/\{(\w+)\}/g, (_, name) =>
    String(parameters.find((parameter) => parameter.name === name)?.example),
  );
  return [
    [
      "curl",
      type === "text/event-stream" && "-N",
      type.startsWith("image/") && "-O",
      method !== implied && `-X ${method.toUpperCase()}`,
      EXAMPLE_ORIGIN + url,
    ]
      .filter(Boolean)
      .join(" "),
    !isOpen && CREDENTIALS[scheme ?? ""],
    body !== undefined && `--json '${JSON.stringify(body).replaceAll("'", "'\\''")}'`,
  ]
    .filter(Boolean)
    .join(" \\\n  ");
}
