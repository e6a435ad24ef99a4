/** Of swagger-ui.js, which stands before this in the page. */
declare const SwaggerUIBundle: (options: Readonly<Record<string, unknown>>) => unknown;

const dark = matchMedia("(prefers-color-scheme: dark)");
const follow = (): void => {
  document.documentElement.classList.toggle("dark-mode", dark.matches);
};
dark.addEventListener("change", follow);
follow();

SwaggerUIBundle({
  domNode: document.getElementById("docs"),
  url: "/api/openapi.json",
  deepLinking: true,
  docExpansion: "list",
  defaultModelsExpandDepth: 0,
  displayRequestDuration: true,
  tryItOutEnabled: true,
  // It would ask a server of its maker's whether the document is valid.
  validatorUrl: null,
});
