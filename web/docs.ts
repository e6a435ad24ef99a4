/** Global from swagger-ui.js, which the page loads first. */
declare const SwaggerUIBundle: (options: Readonly<Record<string, unknown>>) => unknown;

interface Parameter {
  readonly required?: boolean;
  readonly description?: string;
  readonly example?: unknown;
}

interface OpenApiDocument {
  readonly paths: Readonly<Record<string, Readonly<Record<string, { parameters?: Parameter[] }>>>>;
  readonly components: { readonly parameters: Record<string, Parameter> };
}

const prefersDark = matchMedia("(prefers-color-scheme: dark)");
const applyTheme = (): void => {
  document.documentElement.classList.toggle("dark-mode", prefersDark.matches);
};
prefersDark.addEventListener("change", applyTheme);
applyTheme();

const response = await fetch(`${location.origin}/api/openapi.json`);
const openapi: OpenApiDocument = await response.json();
for (const operation of Object.values(openapi.paths).flatMap((path) => Object.values(path))) {
  if (operation.parameters !== undefined) operation.parameters = operation.parameters.map(describeExample);
}
const { parameters } = openapi.components;
for (const [name, parameter] of Object.entries(parameters)) parameters[name] = describeExample(parameter);

export const ui = SwaggerUIBundle({
  domNode: document.getElementById("docs"),
  spec: openapi,
  deepLinking: true,
  defaultModelsExpandDepth: 0,
  displayRequestDuration: true,
  tryItOutEnabled: true,
  syntaxHighlight: { theme: "obsidian" },
});

/** Moves the example of an optional parameter into its description, because Swagger UI would send it with each request. */
function describeExample({ example, ...parameter }: Parameter): Parameter {
  if (parameter.required === true || example === undefined) return { example, ...parameter };
  return { ...parameter, description: `${parameter.description ?? ""} Example: \`${example}\`.` };
}
