import { createElement, requireElement, showFieldError } from "./dom.ts";
import { announce, quote, showToast } from "./notifications.ts";

interface Key {
  readonly id: string;
  readonly name: string;
  readonly createdAt: string;
  readonly expiresAt?: string;
  readonly lastUsedAt?: string;
}

interface MintedKey extends Key {
  readonly token: string;
}

/** Problem document of a failed request (RFC 9457). */
interface Problem {
  readonly title: string;
  readonly detail?: string;
  readonly errors?: readonly { readonly field: string; readonly message: string }[];
}

class ProblemError extends Error {
  readonly problem: Problem;

  constructor(problem: Problem) {
    super(problem.detail ?? problem.title);
    this.problem = problem;
  }
}

const form = requireElement("#new-key", HTMLFormElement);
const nameInput = requireElement("#name", HTMLInputElement);
const expiresInput = requireElement("#expires", HTMLInputElement);
const createKeyButton = requireElement("#new-key button", HTMLButtonElement);
const tokenCard = requireElement("#token", HTMLElement);
const tokenHeading = requireElement("#token-heading", HTMLElement);
const tokenText = requireElement("#token-text", HTMLElement);
const copyButton = requireElement("#copy", HTMLButtonElement);
const tableBody = requireElement("#keys", HTMLTableSectionElement);
const keysHeading = requireElement("#keys-heading", HTMLElement);
const placeholder = requireElement("#placeholder", HTMLElement);
const dialog = requireElement("#confirm", HTMLDialogElement);
const confirmButton = requireElement("#confirm-submit", HTMLButtonElement);
const confirmForm = requireElement("#confirm form", HTMLFormElement);
const overlapInput = requireElement("#overlap", HTMLInputElement);

/**
 * Sends a request; the browser adds the Basic credentials. Throws `ProblemError` for an error status or without a response.
 * The URL is absolute, because fetch rejects relative URLs on a page whose own URL contains credentials.
 */
async function sendRequest(method: string, path: string, body?: object): Promise<Response> {
  const headers = { Accept: "application/json", ...(body && { "Content-Type": "application/json" }) };
  const response = await fetch(location.origin + path, {
    method,
    headers,
    ...(body && { body: JSON.stringify(body) }),
  }).catch(() => {
    throw new ProblemError({ title: "The service cannot be reached." });
  });
  if (response.ok) return response;
  const problem: unknown = await response.json().catch(() => undefined);
  throw new ProblemError(
    isProblem(problem) ? problem : { title: `The service responded with status ${response.status}.` },
  );
}

const isProblem = (value: unknown): value is Problem =>
  typeof value === "object" && value !== null && "title" in value && typeof value.title === "string";

/** Parses a JSON response. Throws `ProblemError` if it is not JSON, such as the error page of a proxy. */
async function readJson<T>(response: Response): Promise<T> {
  return response.json().catch(() => {
    throw new ProblemError({ title: "The response is not from the service." });
  });
}

async function load(): Promise<void> {
  try {
    const keys = await readJson<readonly Key[]>(await sendRequest("GET", "/admin/keys"));
    tableBody.replaceChildren(...keys.map(createRow).reverse());
    placeholder.textContent = keys.length === 0 ? "No keys yet." : "";
  } catch (error) {
    placeholder.textContent = `The keys cannot be loaded: ${errorMessage(error)}`;
  }
}

function createRow(key: Key): HTMLTableRowElement {
  const isExpired = key.expiresAt !== undefined && Date.parse(key.expiresAt) <= Date.now();
  const actions = createElement("td", { className: "actions" });
  if (isExpired) actions.append(createButton("Remove", key, () => remove(key)));
  else
    actions.append(
      createButton("Rotate", key, () => rotate(key)),
      createButton("Revoke", key, () => revoke(key)),
    );
  return createElement(
    "tr",
    { className: isExpired ? "expired" : "" },
    createElement("th", { scope: "row", dir: "auto" }, key.name),
    createCell("ID", createElement("code", {}, key.id)),
    createCell("Created", createTime(key.createdAt)),
    createCell("Expires", key.expiresAt === undefined ? "never" : createTime(key.expiresAt)),
    createCell("Last used", key.lastUsedAt === undefined ? "never" : createTime(key.lastUsedAt)),
    actions,
  );
}

function createCell(label: string, content: string | Node): HTMLTableCellElement {
  const element = createElement("td", {}, createElement("span", {}, content));
  element.dataset.label = label;
  return element;
}

function createButton(label: string, key: Key, onclick: () => void): HTMLButtonElement {
  return createElement(
    "button",
    { type: "button", className: "quiet", ariaLabel: `${label} ${key.name}`, onclick },
    label,
  );
}

const TIME = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });

function createTime(text: string): HTMLTimeElement {
  return createElement("time", { dateTime: text, title: text }, TIME.format(new Date(text)));
}

form.onsubmit = exclusive(createKeyButton, async () => {
  try {
    const expires = expiresInput.value.trim();
    const input = { name: nameInput.value, ...(expires !== "" && { expires }) };
    const minted = await readJson<MintedKey>(await sendRequest("POST", "/admin/keys", input));
    form.reset();
    showFieldErrors([nameInput, expiresInput], []);
    showToken(minted);
    await load();
  } catch (error) {
    showError(error, [nameInput, expiresInput]);
  }
});

function rotate(key: Key): void {
  overlapInput.value = "24h";
  showFieldErrors([overlapInput], []);
  const text = " gets a new token. The old token works for the time below, so that the client can switch.";
  const run = async (): Promise<void> => {
    const overlap = overlapInput.value.trim();
    const response = await sendRequest(
      "POST",
      `/admin/keys/${key.id}/rotate`,
      overlap === "" ? undefined : { overlap },
    );
    showToken(await readJson<MintedKey>(response));
  };
  confirm({ title: "Rotate this key?", name: key.name, text, label: "Rotate", showsOverlap: true, run });
}

function revoke({ id, name }: Key): void {
  const text = " stops working immediately. This can't be undone.";
  const run = async (): Promise<void> => {
    await sendRequest("DELETE", `/admin/keys/${id}`);
    announce(`Revoked: ${name}`);
  };
  confirm({ title: "Revoke this key?", name, text, label: "Revoke", run });
}

/** Deletes an expired key without confirmation, because the service rejects it already. */
async function remove({ id, name }: Key): Promise<void> {
  try {
    await sendRequest("DELETE", `/admin/keys/${id}`);
    announce(`Removed: ${name}`);
    await load();
    keysHeading.focus();
  } catch (error) {
    showToast(errorMessage(error));
    await load();
  }
}

interface Confirmation {
  readonly title: string;
  /** Name of the key, the subject of `text`. */
  readonly name: string;
  readonly text: string;
  /** Label of the button that runs the action. */
  readonly label: string;
  /** Whether the dialog has a field for how long the old token works. Default: false. */
  readonly showsOverlap?: boolean;
  readonly run: () => Promise<void>;
}

/** Runs an action after confirmation. Shows a validation error at the dialog's field and any other error as a toast. */
function confirm({ title, name, text, label, showsOverlap, run }: Confirmation): void {
  requireElement("#confirm-heading", HTMLElement).textContent = title;
  requireElement("#confirm-text", HTMLElement).replaceChildren(quote(name), text);
  confirmButton.textContent = label;
  requireElement("#overlap-field", HTMLElement).hidden = showsOverlap !== true;
  confirmForm.onsubmit = exclusive(confirmButton, async () => {
    try {
      await run();
      dialog.close();
      await load();
      if (tokenCard.hidden) keysHeading.focus();
      else tokenHeading.focus();
    } catch (error) {
      if (showError(error, [overlapInput])) return;
      dialog.close();
      // Another window may have revoked the key.
      await load();
    }
  });
  dialog.showModal();
}

requireElement("#confirm-cancel", HTMLButtonElement).addEventListener("click", () => dialog.close());

/** Returns a submit handler that ignores further submits while `run` is pending. */
function exclusive(
  button: HTMLButtonElement,
  run: () => Promise<void>,
): (event: SubmitEvent) => Promise<void> {
  return async (event) => {
    event.preventDefault();
    if (button.ariaDisabled === "true") return;
    button.ariaDisabled = "true";
    await run().finally(() => {
      button.ariaDisabled = null;
    });
  };
}

function showToken({ name, token }: MintedKey): void {
  tokenHeading.replaceChildren("Token for ", createElement("bdi", {}, name));
  tokenText.textContent = token;
  copyButton.textContent = "Copy";
  tokenCard.hidden = false;
  tokenHeading.focus();
}

copyButton.addEventListener("click", async () => {
  try {
    await navigator.clipboard.writeText(tokenText.textContent ?? "");
    announce("Copied.");
    copyButton.textContent = "Copied";
  } catch {
    // Without HTTPS browsers have no clipboard API. Select the text instead.
    getSelection()?.selectAllChildren(tokenText);
    announce("The token is selected. Copy it with the keyboard.");
  }
});

requireElement("#hide-token", HTMLButtonElement).addEventListener("click", () => {
  tokenText.textContent = "";
  tokenCard.hidden = true;
  keysHeading.focus();
});

/** Shows validation errors at their fields and any other error as a toast. Returns whether it was a validation error. */
function showError(error: unknown, inputs: readonly HTMLInputElement[]): boolean {
  const errors = error instanceof ProblemError ? (error.problem.errors ?? []) : [];
  if (errors.length > 0) showFieldErrors(inputs, errors);
  else showToast(errorMessage(error));
  return errors.length > 0;
}

function showFieldErrors(inputs: readonly HTMLInputElement[], errors: NonNullable<Problem["errors"]>): void {
  const invalid = inputs.filter((input) => {
    const messages = errors.filter(({ field }) => field === input.id).map(({ message }) => message);
    showFieldError(input, messages.length === 0 ? "" : `It ${messages.join(" and ")}.`);
    return messages.length > 0;
  });
  invalid[0]?.focus();
}

function errorMessage(error: unknown): string {
  if (!(error instanceof ProblemError)) throw error;
  return error.message;
}

for (const input of [nameInput, expiresInput, overlapInput])
  input.addEventListener("input", () => showFieldError(input));

load();
