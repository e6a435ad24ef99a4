/** The parts of the OpenAPI document that the page of the API uses. */
export interface OpenApiDocument {
  readonly info: { readonly description: string };
  readonly tags: readonly { readonly name: string; readonly description?: string }[];
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
  readonly components: {
    readonly parameters: Readonly<Record<string, Parameter>>;
    readonly responses: Readonly<Record<string, OperationResponse>>;
  };
}

export interface Operation {
  readonly tags: readonly string[];
  readonly operationId: string;
  readonly summary: string;
  readonly description?: string;
  readonly parameters?: readonly Parameter[];
  readonly responses: Readonly<Record<string, OperationResponse | Reference>>;
}

export interface Parameter {
  readonly required?: boolean;
  readonly description?: string;
  readonly example?: unknown;
}

interface Reference {
  readonly $ref: string;
}

interface OperationResponse {
  readonly description: string;
}

/** Routes that serve the pages of browsers. They are in the document, but not on its page. */
const TECHNICAL = ["/", "/docs", "/favicon.ico", "/assets/{name}", "/service-worker.js", "/admin"];

export const isShown = ([path]: readonly [path: string, ...unknown[]]): boolean => !TECHNICAL.includes(path);

/**
 * Returns the document as Swagger UI shows it: without the prose, which has its own section, and without technical routes.
 * The error responses of an operation become a collapsed list in its description.
 */
export function forDisplay(openapi: OpenApiDocument): OpenApiDocument {
  const { components } = openapi;
  const paths = Object.entries(openapi.paths).filter(isShown);
  return {
    ...openapi,
    info: { ...openapi.info, description: "" },
    paths: mapValues(Object.fromEntries(paths), (item) =>
      mapValues(item, (operation) => collapseErrors(operation, components)),
    ),
    components: { ...components, parameters: mapValues(components.parameters, describeExample) },
  };
}

function collapseErrors(operation: Operation, components: OpenApiDocument["components"]): Operation {
  const responses = Object.entries(operation.responses);
  const errors = responses.filter(([status]) => Number(status) >= 400);
  const lines = errors.map(([status, response]) => {
    const { description } = "$ref" in response ? resolve(response, components) : response;
    return `- **${status}** ${description}`;
  });
  const details = `<details><summary>Errors (${errors.length})</summary>\n\n${lines.join("\n")}\n\n</details>`;
  const { parameters } = operation;
  return {
    ...operation,
    description: [operation.description ?? "", details].join("\n\n"),
    responses: Object.fromEntries(responses.filter(([status]) => Number(status) < 400)),
    ...(parameters !== undefined && { parameters: parameters.map(describeExample) }),
  };
}

function resolve({ $ref }: Reference, { responses }: OpenApiDocument["components"]): OperationResponse {
  return responses[$ref.replace(/^.*\//, "")] ?? { description: "" };
}

/** Moves the example of an optional parameter into its description, because Swagger UI would send it with each request. */
function describeExample({ example, ...parameter }: Parameter): Parameter {
  if (parameter.required === true || example === undefined) return { example, ...parameter };
  return { ...parameter, description: `${parameter.description ?? ""} Example: \`${example}\`.` };
}

function mapValues<T, U>(record: Readonly<Record<string, T>>, map: (value: T) => U): Record<string, U> {
  return Object.fromEntries(Object.entries(record).map(([key, value]) => [key, map(value)]));
}
