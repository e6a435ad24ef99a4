import openapi from "../openapi.json" with { type: "json" };
import { isShown } from "./openapi.ts";

const { escapeHTML } = Bun;

/** Returns the list of the operations as HTML. */
export function renderOperations(): string {
  const operations = Object.entries(openapi.paths)
    .filter(isShown)
    .flatMap(([path, item]) =>
      Object.entries(item).map(([method, operation]) => ({ path, method, ...operation })),
    );
  const groups = openapi.tags.map(({ name, description }) => {
    const items = operations
      .filter(({ tags }) => tags.includes(name))
      .map(
        ({ path, method, operationId, summary }) => `<li><a href="#/${name}/${operationId}">
          <span class="method ${method}">${method.toUpperCase()}</span>
          <code>${escapeHTML(path)}</code>
          <span>${escapeHTML(summary)}</span>
        </a></li>`,
      );
    return `<h3>${name}</h3><p class="hint">${escapeHTML(description)}</p><ul class="operations">${items.join("")}</ul>`;
  });
  return groups.join("");
}

/** Returns the description of the API as HTML, with headings below those of the page. The `type` of an error leads to its code. */
export function renderReference(): string {
  const html = Bun.markdown.html(openapi.info.description.replaceAll("\n## ", "\n### "));
  return html.replace(/<strong><code>(\w+)/g, '<strong><code id="$1">$1');
}
