/** The page /openapi/api, made from openapi.json. */
import openapi from "../../../openapi.json" with { type: "json" };

interface Documented {
  readonly $ref?: string;
  readonly description?: string;
}
interface Parameter extends Documented {
  readonly name?: string;
  readonly in?: string;
}
interface Media {
  readonly examples?: Readonly<Record<string, { readonly value: unknown }>>;
}
interface Message extends Documented {
  readonly content?: Readonly<Record<string, Media>>;
}
interface Operation {
  readonly tags: readonly string[];
  readonly summary: string;
  readonly description: string;
  readonly parameters?: readonly Parameter[];
  readonly requestBody?: Message;
  readonly responses: Readonly<Record<string, Message>>;
}
/** What an operation refers to. */
const { parameters, responses } = openapi.components;
const shared: Readonly<Record<string, Documented>> = { ...parameters, ...responses };

const resolve = <T extends Documented>(value: T): Documented =>
  shared[value.$ref?.split("/").at(-1) ?? ""] ?? value;

const cell = (text = ""): string => text.replaceAll("|", "\\|").replaceAll("\n", " ");
const table = (head: readonly string[], rows: readonly (readonly string[])[]): string =>
  rows.length === 0
    ? ""
    : [head, head.map(() => "---"), ...rows].map((cells) => `| ${cells.map(cell).join(" | ")} |`).join("\n");

function exampleOf({ content = {} }: Message): string {
  const [media] = Object.values(content);
  const [example] = Object.values(media?.examples ?? {});
  if (example === undefined) return "";
  const isText = typeof example.value === "string";
  return `\`\`\`${isText ? "text" : "json"}\n${isText ? example.value : JSON.stringify(example.value)}\n\`\`\``;
}

function describe(method: string, path: string, operation: Operation): string {
  const named: readonly Parameter[] = operation.parameters?.map(resolve) ?? [];
  const answers = Object.entries(operation.responses);
  const success = answers.find(([status]) => status.startsWith("2"))?.[1] ?? {};
  return [
    `### ${operation.summary}`,
    `\`${method.toUpperCase()} ${path}\``,
    operation.description,
    table(
      ["parameter", "in", "meaning"],
      named.map(({ name = "", in: place = "", description }) => [`\`${name}\``, place, description ?? ""]),
    ),
    operation.requestBody && `Request:\n\n${exampleOf(operation.requestBody)}`,
    exampleOf(success) && `Response:\n\n${exampleOf(success)}`,
    table(
      ["status", "meaning"],
      answers.map(([status, answer]) => [status, resolve(answer).description ?? ""]),
    ),
  ]
    .filter(Boolean)
    .join("\n\n");
}

function page(): string {
  const operations = Object.entries(openapi.paths).flatMap(([path, item]) =>
    Object.entries(item as Readonly<Record<string, Operation>>).map(([method, operation]) => ({
      tag: operation.tags[0],
      text: describe(method, path, operation),
    })),
  );
  const groups = openapi.tags.map(({ name, description }) => {
    const texts = operations.filter(({ tag }) => tag === name).map(({ text }) => text);
    return [`## ${name}`, description, ...texts].join("\n\n");
  });
  return [`# API\n\nEvery operation, from [openapi.json](../openapi.json).`, ...groups].join("\n\n");
}

export default { paths: () => [{ params: { page: "api" }, content: page() }] };
