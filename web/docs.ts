import { createElement, requireElement } from "./dom.ts";
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

const example = requireElement("#example", HTMLElement);
// A new text does not count as a layout shift.
example.textContent = `curl ${location.origin}/api/todos --json '{"title": "buy milk"}'`;

// Operations

/**
 * Replaces the list by Swagger UI, which opens the operation that the address names. Swagger UI takes seconds to load on a
 * phone, so the page loads it when the user selects an operation.
 */
async function showSwaggerUi(): Promise<void> {
  const { script = "", style = "" } = operations.dataset;
  const [openapi] = await Promise.all([
    fetchOpenApi(),
    loaded(createElement("link", { rel: "stylesheet", href: style })),
    loaded(createElement("script", { src: script })),
  ]);
  SwaggerUIBundle({
    domNode: operations,
    spec: forDisplay(openapi),
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
                  request.pathName === "/api/events" ? follow() : execute(request),
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

/** The URL is absolute, because fetch rejects relative URLs on a page whose own URL contains credentials. */
const fetchOpenApi = async (): Promise<OpenApiDocument> =>
  (await fetch(`${location.origin}/api/openapi.json`)).json();

function loaded(element: HTMLLinkElement | HTMLScriptElement): Promise<unknown> {
  return new Promise((resolve, reject) => {
    element.onload = resolve;
    element.onerror = reject;
    // Before docs.css, which overrides the styles of Swagger UI.
    document.head.prepend(element);
  });
}

// Events

let source: EventSource | undefined;

/** Shows the events, and moves the focus to the button that stops it. */
function follow(): void {
  followButton.focus();
  if (source !== undefined) return;
  const log = (line: string): void => {
    eventLog.prepend(`${line}\n`);
    while (eventLog.childNodes.length > MAX_EVENTS) eventLog.lastChild?.remove();
  };
  source = new EventSource("/api/events");
  for (const type of EVENT_TYPES)
    source.addEventListener(type, ({ data, lastEventId }) => log(`${type} ${lastEventId}\n  ${data}`));
  source.onerror = () => log("The connection is lost. The browser reconnects.");
  eventLog.hidden = false;
  followButton.ariaPressed = "true";
}

function unfollow(): void {
  source?.close();
  source = undefined;
  followButton.ariaPressed = "false";
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

let isStarted = false;

async function start(): Promise<void> {
  if (isStarted || !location.hash.startsWith("#/")) return;
  isStarted = true;
  await showSwaggerUi().catch(() => {
    operationsError.textContent = "The forms of the operations cannot be loaded. Reload the page.";
  });
}

addEventListener("hashchange", start);
start();
