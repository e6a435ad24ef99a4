import type { ApiKey, MintedApiKey } from "../src/sdk/client.ts";
import { createElement, requireElement, showFieldError } from "./dom.ts";
import { announce, quote, showToast } from "./notifications.ts";
import {
  errorMessage,
  type FieldErrors,
  FOREIGN_RESPONSE,
  type Problem,
  ProblemError,
  readJson,
  sendRequest,
} from "./request.ts";

/** Time between two reads of the keys while the page is visible. Key changes are not in the event stream. */
const POLL_INTERVAL_MS = 10_000;

const form = requireElement("#new-key", HTMLFormElement);
const nameInput = requireElement("#name", HTMLInputElement);
const presetInput = requireElement("#preset", HTMLSelectElement);
const expiresInput = requireElement("#expires", HTMLInputElement);
const otherDuration = requireElement("#other-duration", HTMLElement);
const scopeInput = requireElement("#scope", HTMLSelectElement);
const createKeyButton = requireElement("#new-key button", HTMLButtonElement);
const tokenCard = requireElement("#token", HTMLElement);
const tokenHeading = requireElement("#token-heading", HTMLElement);
const tokenHint = requireElement("#token-hint", HTMLElement);
const tokenText = requireElement("#token-text", HTMLElement);
const copyButton = requireElement("#copy", HTMLButtonElement);
const tableBody = requireElement("#keys", HTMLTableSectionElement);
const keysHeading = requireElement("#keys-heading", HTMLElement);
const placeholder = requireElement("#placeholder", HTMLElement);
const dialog = requireElement("#confirm", HTMLDialogElement);
const confirmButton = requireElement("#confirm-submit", HTMLButtonElement);
const confirmForm = requireElement("#confirm form", HTMLFormElement);
const overlapInput = requireElement("#overlap", HTMLInputElement);

interface Row {
  /** The key as JSON and whether it has expired. The row shows nothing else. */
  readonly content: string;
  readonly element: HTMLTableRowElement;
}

const rows = new Map<string, Row>();
let loads = 0;
/** The tokens that the user has not hidden. The last one is shown. The service cannot show them again. */
let tokens: readonly MintedApiKey[] = [];
/** The tokens that were copied. */
const copied = new Set<string>();
/** The number of requests whose response will contain a token. */
let pendingTokens = 0;

/** Reads the keys and shows them. Ignores the response if a later call has started, because that one knows more. */
async function load(): Promise<void> {
  const id = ++loads;
  let message = "";
  try {
    const keys = await readJson<readonly ApiKey[]>(await sendRequest("GET", "/admin/keys"));
    if (!Array.isArray(keys)) throw new ProblemError(FOREIGN_RESPONSE);
    if (id !== loads) return;
    showKeys(keys);
    if (keys.length === 0) message = "No keys yet.";
  } catch (error) {
    if (id !== loads) return;
    message = `The keys cannot be loaded: ${errorMessage(error)}`;
  }
  placeholder.textContent = message;
}

/** Shows the keys, newest first. Keeps the rows that did not change, and with them the focus. */
function showKeys(keys: readonly ApiKey[]): void {
  const focused = focusedButton();
  const listed = new Set(rows.keys());
  const shown = new Set(keys.map(({ id }) => id));
  for (const id of rows.keys()) if (!shown.has(id)) rows.delete(id);
  const elements = keys.map((key) => {
    const content = JSON.stringify([key, isExpired(key)]);
    const row = rows.get(key.id);
    if (row?.content === content) return row.element;
    const element = createRow(key);
    rows.set(key.id, { content, element });
    return element;
  });
  elements.reverse();
  for (const element of [...tableBody.children]) {
    if (!elements.some((shownElement) => shownElement === element)) element.remove();
  }
  // Rows that stay are not moved, because a moved element loses the focus.
  let next = tableBody.firstElementChild;
  for (const element of elements) {
    if (element === next) next = next.nextElementSibling;
    else tableBody.insertBefore(element, next);
  }
  if (focused !== undefined && !focused.button.isConnected) focusButton(focused);
  const valid = new Set(keys.filter((key) => !isExpired(key)).map(({ id }) => id));
  keepTokens(tokens.filter(({ id }) => valid.has(id) || !listed.has(id)));
}

interface FocusedButton {
  readonly keyId: string;
  readonly button: HTMLButtonElement;
}

function focusedButton(): FocusedButton | undefined {
  const { activeElement: button } = document;
  const keyId = button?.closest("tr")?.dataset.id;
  return keyId !== undefined && button instanceof HTMLButtonElement ? { keyId, button } : undefined;
}

/** Focuses the button with the same label in the row of the key, or the heading if the row has none. */
function focusButton({ keyId, button }: FocusedButton): void {
  const buttons = rows.get(keyId)?.element.querySelectorAll("button") ?? [];
  const successor = [...buttons].find(({ textContent }) => textContent === button.textContent);
  (successor ?? keysHeading).focus();
}

async function poll(): Promise<never> {
  while (true) {
    await new Promise((resolve) => setTimeout(resolve, POLL_INTERVAL_MS));
    if (document.hidden) {
      await new Promise<void>((resolve) => {
        document.addEventListener("visibilitychange", () => resolve(), { once: true });
      });
    }
    await load();
  }
}

const isExpired = ({ expiresAt }: ApiKey): boolean =>
  expiresAt !== undefined && Date.parse(expiresAt) <= Date.now();

function createRow(key: ApiKey): HTMLTableRowElement {
  const actions = createElement("td", { className: "row-actions" });
  if (isExpired(key)) actions.append(createButton("Remove", key, () => remove(key)));
  else {
    // The key of a browser is in its cookie, so a new token would reach nobody.
    if (key.deviceOf === undefined) actions.append(createButton("Rotate", key, () => rotate(key)));
    actions.append(createButton("Revoke", key, () => revoke(key)));
  }
  const element = createElement(
    "tr",
    { className: isExpired(key) ? "expired" : "" },
    createElement("th", { scope: "row", dir: "auto" }, key.name, ...describeDevice(key)),
    createCell("ID", createElement("code", {}, key.id)),
    createCell("Scope", key.scope),
    createCell("Created", createTime(key.createdAt)),
    createCell("Expires", ...createExpiry(key)),
    createCell("Last used", key.lastUsedAt === undefined ? "never" : createTime(key.lastUsedAt)),
    actions,
  );
  element.dataset.id = key.id;
  return element;
}

const describeDevice = ({ deviceOf }: ApiKey): (string | Node)[] =>
  deviceOf === undefined ? [] : [" ", createElement("small", {}, `Device of ${deviceOf}`)];

function createExpiry(key: ApiKey): (string | Node)[] {
  if (key.expiresAt === undefined) return ["never"];
  const time = createTime(key.expiresAt);
  return isExpired(key) ? [createElement("strong", { className: "label" }, "Expired"), " ", time] : [time];
}

function createCell(label: string, ...content: readonly (string | Node)[]): HTMLTableCellElement {
  const element = createElement("td", {}, createElement("span", {}, ...content));
  element.dataset.label = label;
  return element;
}

function createButton(label: string, key: ApiKey, onclick: () => void): HTMLButtonElement {
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

function showOtherDuration(): void {
  otherDuration.hidden = presetInput.value !== "other";
}

presetInput.addEventListener("change", () => {
  showOtherDuration();
  showFieldError(expiresInput);
  if (!otherDuration.hidden) expiresInput.focus();
});

function readExpires(): string | undefined {
  if (presetInput.value === "other") return expiresInput.value.trim();
  return presetInput.value === "never" ? undefined : presetInput.value;
}

const createOnce = exclusive(createKeyButton);

/**
 * Requests a key with a new token. An error that is not from the service gets `advice`, because the key may exist and its
 * token is lost.
 */
async function mint(path: string, body: object | undefined, advice: string): Promise<MintedApiKey> {
  pendingTokens++;
  try {
    return await readJson<MintedApiKey>(await sendRequest("POST", path, body));
  } catch (error) {
    if (!isUncertain(error)) throw error;
    throw new ProblemError({ title: `${error.message} ${advice}` });
  } finally {
    pendingTokens--;
  }
}

/** Returns whether a request failed without an answer from the service, which may have done what was requested. */
const isUncertain = (error: unknown): error is ProblemError =>
  error instanceof ProblemError && error.problem.code === undefined;

const readForm = (): string =>
  JSON.stringify([nameInput, presetInput, expiresInput, scopeInput].map(({ value }) => value));

form.addEventListener("submit", (event) => {
  event.preventDefault();
  createOnce(async () => {
    const submitted = readForm();
    try {
      const expires = readExpires();
      const input = {
        name: nameInput.value,
        scope: scopeInput.value,
        ...(expires !== undefined && { expires }),
      };
      const advice =
        "If the key is listed below, revoke it and create another one, because its token is lost.";
      const minted = await mint("/admin/keys", input, advice);
      showToken(minted);
      // The user may have typed the next name, or opened a dialog, before the response came.
      if (readForm() === submitted) {
        form.reset();
        showOtherDuration();
        showFieldErrors([nameInput, expiresInput], []);
        focusToken();
      }
      await load();
    } catch (error) {
      if (readForm() === submitted) showError(error, [nameInput, expiresInput]);
      else showToast("The key was not created: ", errorMessage(error));
      if (isUncertain(error)) await load();
    }
  });
});

function rotate(key: ApiKey): void {
  overlapInput.value = "24h";
  showFieldErrors([overlapInput], []);
  const text = " gets a new token. The old token works for the time below, so that the client can switch.";
  const run = async (): Promise<void> => {
    const overlap = overlapInput.value.trim();
    const body = overlap === "" ? undefined : { overlap };
    const advice = "If the key is listed twice below, rotate the newer one, because its token is lost.";
    showToken(await mint(`/admin/keys/${key.id}/rotate`, body, advice));
  };
  confirm({ title: "Rotate this key?", name: key.name, text, label: "Rotate", showsOverlap: true, run });
}

function revoke({ id, name }: ApiKey): void {
  const text = " stops working immediately. This can't be undone.";
  const run = async (): Promise<void> => {
    await sendRequest("DELETE", `/admin/keys/${id}`);
    announce(`Revoked: ${name}`);
  };
  confirm({ title: "Revoke this key?", name, text, label: "Revoke", run });
}

/** Deletes an expired key without confirmation, because the service rejects it already. */
async function remove({ id, name }: ApiKey): Promise<void> {
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

/** The confirmation that the dialog shows, if it is open. */
let shownConfirmation: Confirmation | undefined;

/**
 * Runs an action after confirmation. Shows a validation error at the dialog's field and any other error as a toast. An
 * action continues if the user closes the dialog; its outcome then leaves the dialog and the focus alone.
 */
function confirm(confirmation: Confirmation): void {
  const { title, name, text, label, showsOverlap, run } = confirmation;
  confirmButton.className = label === "Revoke" ? "danger" : "primary";
  requireElement("#confirm-heading", HTMLElement).textContent = title;
  requireElement("#confirm-text", HTMLElement).replaceChildren(quote(name), text);
  confirmButton.textContent = label;
  requireElement("#overlap-field", HTMLElement).hidden = showsOverlap !== true;
  const opener = focusedButton();
  const runOnce = exclusive(confirmButton);
  const isShown = (): boolean => shownConfirmation === confirmation;
  let isDone = false;
  confirmForm.onsubmit = (event) => {
    event.preventDefault();
    runOnce(async () => {
      try {
        await run();
        isDone = true;
        const wasShown = isShown();
        if (wasShown) dialog.close();
        await load();
        if (!wasShown || dialog.open) return;
        if (tokenCard.hidden) keysHeading.focus();
        else focusToken();
      } catch (error) {
        if (isShown() && showError(error, [overlapInput])) return;
        if (isShown()) dialog.close();
        else showToast(errorMessage(error));
        // Another window may have revoked the key.
        await load();
      }
    });
  };
  dialog.onclose = () => {
    // The event arrives late: the next dialog may be open already.
    if (dialog.open) return;
    shownConfirmation = undefined;
    confirmButton.ariaDisabled = null;
    // The row may have been replaced while the dialog was open. After the action, the focus goes elsewhere.
    if (!isDone && opener !== undefined && !opener.button.isConnected) focusButton(opener);
  };
  shownConfirmation = confirmation;
  dialog.showModal();
}

requireElement("#confirm-cancel", HTMLButtonElement).addEventListener("click", () => dialog.close());

/** Returns a function that runs an action unless the previous one is pending, and shows that at the button. */
function exclusive(button: HTMLButtonElement): (run: () => Promise<void>) => Promise<void> {
  let isPending = false;
  return async (run) => {
    if (isPending) return;
    isPending = true;
    button.ariaDisabled = "true";
    await run().finally(() => {
      isPending = false;
      button.ariaDisabled = null;
    });
  };
}

/** Shows a token above those that the user has not hidden yet. */
function showToken(minted: MintedApiKey): void {
  keepTokens([...tokens, minted]);
  announce(`The token for ${minted.name} is shown above your keys.`);
}

/** Moves the focus to the token, unless a dialog is open. */
function focusToken(): void {
  if (!dialog.open) tokenHeading.focus();
}

/** Forgets all tokens except these, and shows the last one. */
function keepTokens(kept: readonly MintedApiKey[]): void {
  const hadFocus = tokenCard.contains(document.activeElement);
  const shown = tokens.at(-1);
  tokens = kept;
  const last = kept.at(-1);
  const others = kept.length - 1;
  tokenHint.textContent = "Copy the token now. The service cannot show it again.";
  if (others > 0)
    tokenHint.append(
      others === 1
        ? " Another token appears when you hide this one."
        : ` ${others} other tokens appear when you hide this one.`,
    );
  if (last === shown) return;
  tokenCard.hidden = last === undefined;
  tokenText.textContent = last?.token ?? "";
  tokenHeading.replaceChildren("Token for ", createElement("bdi", {}, last?.name ?? ""));
  copyButton.textContent = "Copy";
  if (hadFocus) (last === undefined ? keysHeading : tokenHeading).focus();
}

// A token that nobody has copied would be lost.
addEventListener("beforeunload", (event) => {
  if (pendingTokens > 0 || tokens.some(({ token }) => !copied.has(token))) event.preventDefault();
});
tokenText.addEventListener("copy", () => copied.add(tokenText.textContent ?? ""));

copyButton.addEventListener("click", async () => {
  const token = tokenText.textContent ?? "";
  try {
    await navigator.clipboard.writeText(token);
    copied.add(token);
    announce("Copied.");
    copyButton.textContent = "Copied";
  } catch {
    // Without HTTPS browsers have no clipboard API. Select the text instead.
    getSelection()?.selectAllChildren(tokenText);
    announce("The token is selected. Copy it with the keyboard.");
  }
});

requireElement("#hide-token", HTMLButtonElement).addEventListener("click", () => {
  keepTokens(tokens.slice(0, -1));
});

/** Shows an error at its field, or as a toast if it belongs to no visible field. Returns whether it was shown at a field. */
function showError(error: unknown, inputs: readonly HTMLInputElement[]): boolean {
  const errors = error instanceof ProblemError ? toFieldErrors(error.problem) : [];
  const visible = inputs.filter((input) => input.checkVisibility());
  const isAtField = errors.length > 0 && errors.every(({ field }) => visible.some(({ id }) => id === field));
  if (isAtField) showFieldErrors(inputs, errors);
  else showToast(errorMessage(error));
  return isAtField;
}

function toFieldErrors({ code, errors = [] }: Problem): FieldErrors {
  if (code !== "key_exists") return errors;
  return [
    {
      field: "name",
      message: "is already in use: rotate or revoke the key of this name, or enter another name",
    },
  ];
}

function showFieldErrors(inputs: readonly HTMLInputElement[], errors: FieldErrors): void {
  const invalid = inputs.filter((input) => {
    const messages = errors.filter(({ field }) => field === input.id).map(({ message }) => message);
    showFieldError(input, messages.length === 0 ? "" : `It ${messages.join(" and ")}.`);
    return messages.length > 0;
  });
  invalid[0]?.focus();
}

for (const input of [nameInput, expiresInput, overlapInput])
  input.addEventListener("input", () => showFieldError(input));

requireElement(".no-script", HTMLElement).remove();
showOtherDuration();
load();
poll();
