import { createElement, requireElement } from "./dom.ts";
import { renderMarkdown } from "./markdown.ts";
import { forDisplay, type OpenApiDocument } from "./openapi.ts";

/** Global from swagger-ui.js. */
declare const SwaggerUIBundle: (options: Readonly<Record<string, unknown>>) => unknown;

/** The number of events that the page shows, the newest first. */
const MAX_EVENTS = 20;
const EVENT_TYPES = ["position", "created", "updated", "deleted", "resync"] as const;

const operations = requireElement("#operation-list", HTMLElement);
const operationsError = requireElement("#operations-error", HTMLElement);
const followButton = requireElement("#follow", HTMLButtonElement);
const eventLog = requireElement("#events", HTMLElement);

requireElement("#example", HTMLElement).replaceChildren(
  `curl ${location.origin}/api/todos `,
  // Browsers break lines after hyphens.
  createElement("span", { className: "unbroken" }, "--json"),
  ` '{"title": "buy milk"}'`,
);

// Operations

/** Lists the operations. Swagger UI takes seconds to load on a phone, so the page loads it when the user selects one. */
function listOperations({ tags, paths }: OpenApiDocument): void {
  const all = Object.entries(paths).flatMap(([path, item]) =>
    Object.entries(item).map(([method, operation]) => ({ path, method, operation })),
  );
  const groups = tags.map(({ name, description = "" }) => {
    const links = all
      .filter(({ operation }) => operation.tags.includes(name))
      .map(({ path, method, operation: { operationId, summary } }) => {
        const verb = createElement("span", { className: `method ${method}` }, method.toUpperCase());
        const content = [verb, " ", createElement("code", {}, path), " ", createElement("span", {}, summary)];
        return createElement("li", {}, createElement("a", { href: `#/${name}/${operationId}` }, ...content));
      });
    return [
      createElement("h3", {}, name),
      createElement("p", { className: "hint" }, description),
      createElement("ul", { className: "operations" }, ...links),
    ];
  });
  operations.replaceChildren(...groups.flat());
}

/** Replaces the list by Swagger UI, which opens the operation that the address names. */
async function showSwaggerUi(openapi: OpenApiDocument): Promise<void> {
  const { script = "", style = "" } = operations.dataset;
  await Promise.all([
    loaded(createElement("link", { rel: "stylesheet", href: style })),
    loaded(createElement("script", { src: script })),
  ]);
  SwaggerUIBundle({
    domNode: operations,
    spec: openapi,
    deepLinking: true,
    defaultModelsExpandDepth: 0,
    displayRequestDuration: true,
    tryItOutEnabled: true,
    syntaxHighlight: { theme: "obsidian" },
    plugins: [
      {
        wrapComponents: { InfoContainer: () => () => null },
        statePlugins: {
          spec: {
            wrapActions: {
              // Swagger UI shows a response when it is complete, and a stream never is.
              executeRequest:
                (execute: (request: ExecutedRequest) => unknown) => (request: ExecutedRequest) =>
                  request.pathName === "/api/events" ? showEvents() : execute(request),
            },
          },
        },
      },
    ],
  });
}

interface ExecutedRequest {
  readonly pathName: string;
}

function loaded(element: HTMLLinkElement | HTMLScriptElement): Promise<void> {
  return new Promise((resolve, reject) => {
    element.onload = () => resolve();
    element.onerror = () =>
      reject(new Error("The forms of the operations cannot be loaded. Reload the page."));
    // Before docs.css, which overrides the styles of Swagger UI.
    document.head.prepend(element);
  });
}

// Events

let source: EventSource | undefined;

function follow(): void {
  const opened = new EventSource("/api/events");
  const log = (line: string): void => {
    eventLog.prepend(`${line}\n`);
    while (eventLog.childNodes.length > MAX_EVENTS) eventLog.lastChild?.remove();
  };
  for (const type of EVENT_TYPES) {
    opened.addEventListener(type, ({ data, lastEventId }) => log(`${type} ${lastEventId}\n  ${data}`));
  }
  opened.onerror = () => log("The connection is lost. The browser reconnects.");
  source = opened;
  eventLog.hidden = false;
  setPressed(true);
}

function unfollow(): void {
  source?.close();
  source = undefined;
  setPressed(false);
}

function setPressed(isPressed: boolean): void {
  followButton.ariaPressed = String(isPressed);
}

function showEvents(): void {
  if (source === undefined) follow();
  followButton.focus();
}

followButton.addEventListener("click", () => (source === undefined ? follow() : unfollow()));
// A page in the back/forward cache must not keep one of the browser's few connections.
addEventListener("pagehide", unfollow);

// Theme

const prefersDark = matchMedia("(prefers-color-scheme: dark)");
const applyTheme = (): void => {
  document.documentElement.classList.toggle("dark-mode", prefersDark.matches);
};
prefersDark.addEventListener("change", applyTheme);
applyTheme();

// Start

/** Runs an action and shows its error. */
async function attempt(run: () => Promise<void>): Promise<void> {
  try {
    await run();
    operationsError.textContent = "";
  } catch (error) {
    operationsError.textContent = error instanceof Error ? error.message : String(error);
  }
}

async function fetchOpenApi(): Promise<OpenApiDocument> {
  // The URL is absolute, because fetch rejects relative URLs on a page whose own URL contains credentials.
  const response = await fetch(`${location.origin}/api/openapi.json`).catch(() => undefined);
  const openapi: unknown = await response?.json().catch(() => undefined);
  if (response?.ok && isOpenApi(openapi)) return openapi;
  throw new Error(
    "The operations cannot be loaded from /api/openapi.json. Check the connection, and reload the page.",
  );
}

const isOpenApi = (value: unknown): value is OpenApiDocument =>
  typeof value === "object" && value !== null && "paths" in value && "info" in value;

const namesOperation = (): boolean => location.hash.startsWith("#/");

attempt(async () => {
  operations.replaceChildren();
  const openapi = await fetchOpenApi();
  const shown = forDisplay(openapi);
  const reference = requireElement("#reference", HTMLElement);
  reference.append(...renderMarkdown(openapi.info.description));
  // The `type` of an error leads to its code.
  for (const code of reference.querySelectorAll("strong > code")) code.id = code.textContent;
  document.getElementById(location.hash.slice(1))?.scrollIntoView({ block: "center" });
  let isStarted = false;
  const start = async (): Promise<void> => {
    if (isStarted || !namesOperation()) return;
    isStarted = true;
    await showSwaggerUi(shown);
  };
  listOperations(shown);
  addEventListener("hashchange", () => attempt(start));
  await start();
});
