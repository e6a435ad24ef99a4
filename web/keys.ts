import { type ApiKey, type FieldError, type MintedApiKey, TodoApiError } from "../src/sdk/client.ts";
import { createKeysApi } from "../src/sdk/keys.ts";
import { delay } from "../src/sdk/retry.ts";
import { copyText } from "./clipboard.ts";
import { createElement, pageVisible, requireElement, showFieldError } from "./dom.ts";
import { errorMessage } from "./messages.ts";
import { announce, showToast } from "./notifications.ts";
import { request } from "./request.ts";

/** Time between two reads of the keys while the page is visible. Key changes are not in the event stream. */
const POLL_INTERVAL_MS = 10_000;

const main = requireElement("main", HTMLElement);
const form = requireElement("#new-key", HTMLFormElement);
const nameInput = requireElement("#name", HTMLInputElement);
const presetInput = requireElement("#preset", HTMLSelectElement);
const expiresInput = requireElement("#expires", HTMLInputElement);
const otherDuration = requireElement("#other-duration", HTMLElement);
const scopeInput = requireElement("#scope", HTMLSelectElement);
const tokenCard = requireElement("#token", HTMLElement);
const tokenHeading = requireElement("#token-heading", HTMLElement);
const moreTokens = requireElement("#more-tokens", HTMLElement);
const tokenText = requireElement("#token-text", HTMLElement);
const copyButton = requireElement("#copy", HTMLButtonElement);
const tableBody = requireElement("#keys", HTMLTableSectionElement);
const keysHeading = requireElement("#keys-heading", HTMLElement);
const placeholder = requireElement("#placeholder", HTMLElement);

const api = createKeysApi(request);
let loads = 0;
/** The rows of the table by the JSON of what they show. */
let rows: ReadonlyMap<string, HTMLTableRowElement> = new Map();
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
    const keys = await api.list();
    if (id !== loads) return;
    showKeys(keys);
    if (keys.length === 0) message = "No keys yet.";
  } catch (error) {
    if (id !== loads) return;
    message = `The keys cannot be loaded. ${errorMessage(error)}`;
  }
  placeholder.textContent = message;
}

/** Shows the keys, newest first, and only the tokens of valid ones. Keeps the rows that did not change, and the focus. */
function showKeys(keys: readonly ApiKey[]): void {
  const focused = focusedButton();
  const shown = rows;
  rows = new Map(
    keys.toReversed().map((key) => {
      const content = JSON.stringify([key, isExpired(key)]);
      return [content, shown.get(content) ?? createRow(key)];
    }),
  );
  for (const [content, row] of shown) if (!rows.has(content)) row.remove();
  // A row that stays is not moved, because that would end a selection in it.
  [...rows.values()].forEach((row, index) => {
    if (tableBody.rows[index] !== row) tableBody.insertBefore(row, tableBody.rows[index] ?? null);
  });
  if (focused?.button.isConnected === false) focusButton(focused);
  const valid = keys.filter((key) => !isExpired(key)).map(({ id }) => id);
  keepTokens(tokens.filter(({ id }) => valid.includes(id)));
}

interface FocusedButton {
  readonly keyId: string;
  readonly button: HTMLButtonElement;
}

function focusedButton(): FocusedButton | undefined {
  const { activeElement: button } = document;
  const keyId = button?.closest("tr")?.id;
  return keyId !== undefined && button instanceof HTMLButtonElement ? { keyId, button } : undefined;
}

/** Focuses the button with the same label in the row of the key, or the heading if the row has none. */
function focusButton({ keyId, button }: FocusedButton): void {
  const buttons = document.getElementById(keyId)?.querySelectorAll("button") ?? [];
  const successor = [...buttons].find(({ textContent }) => textContent === button.textContent);
  (successor ?? keysHeading).focus();
}

async function poll(): Promise<never> {
  while (true) {
    await load();
    await delay(POLL_INTERVAL_MS, undefined);
    await pageVisible();
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
  return createElement(
    "tr",
    { id: key.id, className: isExpired(key) ? "expired" : "" },
    createElement("th", { scope: "row", dir: "auto" }, key.name, ...describeDevice(key)),
    createCell("ID", createElement("code", {}, key.id)),
    createCell("Scope", key.scope),
    createCell("Created", createTime(key.createdAt)),
    createCell("Expires", ...createExpiry(key)),
    createCell("Last used", key.lastUsedAt === undefined ? "never" : createTime(key.lastUsedAt)),
    actions,
  );
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

function createButton(label: string, { name }: ApiKey, onclick: () => void): HTMLButtonElement {
  return createElement("button", { type: "button", ariaLabel: `${label} ${name}`, onclick }, label);
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

/** Runs an action when a form is submitted, unless the previous one is pending, and shows that at the button. */
function onSubmit(target: HTMLFormElement, run: () => Promise<void>): void {
  target.addEventListener("submit", async (event) => {
    event.preventDefault();
    const { submitter } = event;
    if (submitter === null || submitter.ariaDisabled === "true") return;
    submitter.ariaDisabled = "true";
    await run().finally(() => {
      submitter.ariaDisabled = null;
    });
  });
}

/** Waits for a new token and shows it. Without an answer, the error gets `advice`: the key may exist, and its token is lost. */
async function mint(minting: Promise<MintedApiKey>, advice: string): Promise<void> {
  pendingTokens++;
  try {
    const minted = await minting;
    // A list that was requested earlier may lack the key. Only the response to the last request counts.
    load();
    keepTokens([...tokens, minted]);
    announce(`The token for ${minted.name} is shown above your keys.`);
  } catch (error) {
    if (!isUncertain(error)) throw error;
    throw new TodoApiError(error.code, error.message, { detail: `${errorMessage(error)} ${advice}` });
  } finally {
    pendingTokens--;
  }
}

/** Returns whether a request failed without an answer from the service, which may have done what was requested. */
const isUncertain = (error: unknown): error is TodoApiError =>
  error instanceof TodoApiError && /^(?:network_error|timeout|unexpected_answer)$/.test(error.code);

const readForm = (): string =>
  JSON.stringify([nameInput, presetInput, expiresInput, scopeInput].map(({ value }) => value));

onSubmit(form, async () => {
  const submitted = readForm();
  const scope = scopeInput.value === "read" ? "read" : "write";
  const expires = readExpires();
  const advice = "If the key is listed below, revoke it and create another one, because its token is lost.";
  try {
    await mint(api.create(nameInput.value, { scope, ...(expires !== undefined && { expires }) }), advice);
    // The user may have typed the next name, or opened a dialog, before the response came.
    if (readForm() !== submitted) return;
    form.reset();
    showOtherDuration();
    showFieldErrors([nameInput, expiresInput], []);
    focusResult();
  } catch (error) {
    if (readForm() === submitted) showError(error, [nameInput, expiresInput]);
    else showToast("The key was not created. ", errorMessage(error));
    if (isUncertain(error)) await load();
  }
});

function rotate(key: ApiKey): void {
  confirm("#rotate", key, () => {
    const overlap = requireElement("#overlap", HTMLInputElement).value.trim();
    const advice = "If the key is listed twice below, rotate the newer one, because its token is lost.";
    return mint(api.rotate(key.id, overlap === "" ? {} : { overlap }), advice);
  });
  const input = requireElement("#overlap", HTMLInputElement);
  input.oninput = () => showFieldError(input);
}

function revoke(key: ApiKey): void {
  confirm("#revoke", key, async () => {
    await api.revoke(key.id);
    announce(`Revoked: ${key.name}`);
  });
}

/** Deletes an expired key without confirmation, because the service rejects it already. */
async function remove({ id, name }: ApiKey): Promise<void> {
  try {
    await api.revoke(id);
    announce(`Removed: ${name}`);
    await load();
    keysHeading.focus();
  } catch (error) {
    showToast(errorMessage(error));
    await load();
  }
}

/**
 * Runs an action after confirmation. Shows a validation error at the dialog's field and any other error as a toast. An
 * action continues if the user closes the dialog; its outcome then leaves the next dialog and the focus alone.
 */
function confirm(template: string, { name }: ApiKey, run: () => Promise<void>): void {
  document.querySelector("dialog")?.remove();
  main.append(requireElement(template, HTMLTemplateElement).content.cloneNode(true));
  const dialog = requireElement("dialog", HTMLDialogElement);
  requireElement("dialog bdi", HTMLElement).textContent = `“${name}”`;
  requireElement("#confirm-cancel", HTMLButtonElement).onclick = () => dialog.close();
  const inputs = [...dialog.querySelectorAll("input")];
  const opener = focusedButton();
  let isDone = false;
  onSubmit(requireElement("dialog form", HTMLFormElement), async () => {
    try {
      await run();
      isDone = true;
      const wasOpen = dialog.open;
      dialog.close();
      await load();
      if (wasOpen) focusResult();
    } catch (error) {
      if (!dialog.open) showToast(errorMessage(error));
      else if (showError(error, inputs)) return;
      dialog.close();
      // Another window may have revoked the key.
      await load();
    }
  });
  dialog.onclose = () => {
    dialog.remove();
    // The row may have been replaced while the dialog was open. After the action, the focus goes elsewhere.
    if (!isDone && opener !== undefined && !opener.button.isConnected) focusButton(opener);
  };
  dialog.showModal();
}

/** Moves the focus to a new token, or to the keys, unless a dialog is open. */
function focusResult(): void {
  if (document.querySelector("dialog[open]") === null)
    (tokenCard.hidden ? keysHeading : tokenHeading).focus();
}

/** Forgets all tokens except these, and shows the last one. */
function keepTokens(kept: readonly MintedApiKey[]): void {
  const hadFocus = tokenCard.contains(document.activeElement);
  const isSame = kept.at(-1) === tokens.at(-1);
  tokens = kept;
  moreTokens.hidden = kept.length < 2;
  if (isSame) return;
  const { name = "", token = "" } = kept.at(-1) ?? {};
  tokenCard.hidden = token === "";
  tokenText.textContent = token;
  tokenHeading.replaceChildren("Token for ", createElement("bdi", {}, name));
  copyButton.textContent = "Copy";
  if (hadFocus) focusResult();
}

// A token that nobody has copied would be lost.
addEventListener("beforeunload", (event) => {
  if (pendingTokens > 0 || tokens.some(({ token }) => !copied.has(token))) event.preventDefault();
});
tokenText.addEventListener("copy", () => copied.add(tokenText.textContent ?? ""));

copyButton.addEventListener("click", async () => {
  const token = tokenText.textContent ?? "";
  if (await copyText(token)) {
    copied.add(token);
    announce("Copied.");
    copyButton.textContent = "Copied";
  } else showToast("The browser forbids copying. Select the token, and copy it with the keyboard.");
});

requireElement("#hide-token", HTMLButtonElement).addEventListener("click", () => {
  keepTokens(tokens.slice(0, -1));
});

const NAME_IN_USE: FieldError = {
  field: "name",
  message: "is already in use: rotate or revoke the key of this name, or enter another name",
};

/** Shows an error at its field, or as a toast if it belongs to no visible field. Returns whether it was shown at a field. */
function showError(error: unknown, inputs: readonly HTMLInputElement[]): boolean {
  const { code, fields = [] } = error instanceof TodoApiError ? error : {};
  const errors = code === "key_exists" ? [NAME_IN_USE] : fields;
  const visible = inputs.filter((input) => input.checkVisibility());
  const isAtField = errors.length > 0 && errors.every(({ field }) => visible.some(({ id }) => id === field));
  if (isAtField) showFieldErrors(inputs, errors);
  else showToast(errorMessage(error));
  return isAtField;
}

function showFieldErrors(inputs: readonly HTMLInputElement[], errors: readonly FieldError[]): void {
  const invalid = inputs.filter((input) => {
    const messages = errors.filter(({ field }) => field === input.id).map(({ message }) => message);
    showFieldError(input, messages.length === 0 ? "" : `It ${messages.join(" and ")}.`);
    return messages.length > 0;
  });
  invalid[0]?.focus();
}

for (const input of [nameInput, expiresInput]) input.addEventListener("input", () => showFieldError(input));

requireElement(".no-script", HTMLElement).remove();
showOtherDuration();
poll();
