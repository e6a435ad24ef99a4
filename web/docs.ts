/** Of swagger-ui.js, which stands before this in the page. */
declare const SwaggerUIBundle: (options: Readonly<Record<string, unknown>>) => unknown;

interface Parameter {
  readonly required?: boolean;
  readonly description?: string;
  readonly example?: unknown;
}

interface Contract {
  readonly paths: Readonly<Record<string, Readonly<Record<string, { parameters?: Parameter[] }>>>>;
  readonly components: { readonly parameters: Record<string, Parameter> };
}

const dark = matchMedia("(prefers-color-scheme: dark)");
const follow = (): void => {
  document.documentElement.classList.toggle("dark-mode", dark.matches);
};
dark.addEventListener("change", follow);
follow();

const response = await fetch(`${location.origin}/api/openapi.json`);
const contract: Contract = await response.json();
for (const operation of Object.values(contract.paths).flatMap((path) => Object.values(path))) {
  if (operation.parameters !== undefined) operation.parameters = operation.parameters.map(withoutFilling);
}
const { parameters } = contract.components;
for (const [name, parameter] of Object.entries(parameters)) parameters[name] = withoutFilling(parameter);

export const ui = SwaggerUIBundle({
  domNode: document.getElementById("docs"),
  spec: contract,
  deepLinking: true,
  defaultModelsExpandDepth: 0,
  displayRequestDuration: true,
  tryItOutEnabled: true,
  syntaxHighlight: { theme: "obsidian" },
});

/** The renderer fills examples in, and a first request would then ask for page 2 of nothing: say them instead. */
function withoutFilling({ example, ...parameter }: Parameter): Parameter {
  if (parameter.required === true || example === undefined) return { example, ...parameter };
  return { ...parameter, description: `${parameter.description ?? ""} Such as \`${example}\`.` };
}
