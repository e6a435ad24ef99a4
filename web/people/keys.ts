import { deviceLabel } from "../../src/device-name.ts";
import { type ApiKey, type FieldError, type MintedApiKey, TodoApiError } from "../../src/sdk/client.ts";
import { createKeysApi } from "../../src/sdk/keys.ts";
import { delay } from "../../src/sdk/retry.ts";
import { createCopyable, createLinkView } from "../view/copyable.ts";
import {
  createButton,
  createElement,
  isDialogOpen,
  onSubmit,
  requireElement,
  setChildren,
  showFieldError,
} from "../view/dom.ts";
import { errorMessage, formatTime } from "../view/messages.ts";
import { announce, showToast } from "../view/toasts.ts";
import { pageVisible } from "../visibility.ts";
import { request, requestJson } from "./request.ts";

/** Time between two reads of the keys while the page is visible. Key changes are not in the event stream. */
const POLL_INTERVAL_MS = 10_000;

const main = requireElement("main", HTMLElement);
const form = requireElement("#new-key", HTMLFormElement);
const submitButton = requireElement("#new-key > button", HTMLButtonElement);
const nameInput = requireElement("#name", HTMLInputElement);
const presetInput = requireElement("#preset", HTMLSelectElement);
const expiresInput = requireElement("#expires", HTMLInputElement);
const scopeInput = requireElement("#scope", HTMLSelectElement);
const invite = requireElement("#invite", HTMLDialogElement);
const inviteHeading = requireElement("#invite-heading", HTMLElement);
const inviteContent = requireElement("#invite-content", HTMLElement);
const tableBody = requireElement("#keys", HTMLTableSectionElement);
const keysHeading = requireElement("#keys-heading", HTMLElement);
const placeholder = requireElement("#placeholder", HTMLElement);

const api = createKeysApi(request);
let loads = 0;
/** The rows of the table by the JSON of what they show. */
let rows: ReadonlyMap<string, HTMLTableRowElement> = new Map();
/** Whether the service is private, so that browsers sign in with links. `undefined` until it is known. */
let isPrivate: boolean | undefined;
/** The key whose token the dialog shows. */
let shownId: string | undefined;
/** A token that is on its way, or that nobody has copied. The service cannot show it again. */
let isUnsaved = false;

/** Reads the keys and shows them. Ignores the response if a later call has started, because that one knows more. */
async function load(): Promise<void> {
  const id = ++loads;
  let message = "";
  try {
    isPrivate ??= await readPrivate();
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

/** Only a private service has sessions. */
async function readPrivate(): Promise<boolean> {
  try {
    await requestJson("GET", "/api/session");
    return true;
  } catch (error) {
    const code = error instanceof TodoApiError ? error.code : "";
    if (code === "route_not_found") return false;
    if (code === "unauthorized") return true;
    throw error;
  }
}

/** Returns the keys from the newest to the oldest, each followed by its browsers, and then the browsers of users. */
function sort(keys: readonly ApiKey[]): ApiKey[] {
  const newest = keys.toReversed();
  const [programs, others] = [newest.filter(isProgram), newest.filter((key) => key.parentId === undefined)];
  return [
    ...programs.flatMap((key) => [key, ...newest.filter(({ parentId }) => parentId === key.id)]),
    ...others.filter((key) => !isProgram(key)),
  ];
}

const isProgram = ({ deviceOf }: ApiKey): boolean => deviceOf === undefined;

/** Shows the keys, and only the token of a valid one. Keeps the rows that did not change, and the focus. */
function showKeys(keys: readonly ApiKey[]): void {
  const focused = focusedButton();
  const before = rows;
  rows = new Map(
    sort(keys).map((key) => {
      const isRotated =
        isProgram(key) && keys.findLast((other) => isProgram(other) && other.name === key.name) !== key;
      const content = JSON.stringify([key, isExpired(key), isRotated]);
      return [content, before.get(content) ?? createRow(key, isRotated)];
    }),
  );
  setChildren(tableBody, [...rows.values()]);
  if (focused?.button.isConnected === false) focusButton(focused);
  if (shownId !== undefined && !keys.some((key) => key.id === shownId && !isExpired(key))) invite.close();
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

function createRow(key: ApiKey, isRotated: boolean): HTMLTableRowElement {
  const actions = createElement("td", { className: "row-actions" });
  const addAction = (label: string, run: (key: ApiKey) => unknown): void =>
    actions.append(createButton(label, () => run(key), { ariaLabel: `${label} ${key.name}` }));
  if (isExpired(key)) addAction("Remove", remove);
  else {
    // The key of a browser is in its cookie, so a new token would reach nobody.
    if (isProgram(key) && !isRotated) {
      if (isPrivate === true) addAction("Invite", openInvite);
      addAction("Rotate", rotate);
    }
    addAction("Rename", rename);
    addAction("Revoke", revoke);
  }
  return createElement(
    "tr",
    { id: key.id, className: isExpired(key) ? "expired" : "" },
    createElement("th", { scope: "row", dir: "auto" }, key.name, ...describeKind(key, isRotated)),
    createCell("ID", createElement("code", {}, key.id)),
    createCell("Scope", key.scope),
    createCell("Created", createTime(key.createdAt)),
    createCell("Expires", ...createExpiry(key)),
    createCell("Last used", key.lastUsedAt === undefined ? "never" : createTime(key.lastUsedAt)),
    actions,
  );
}

function describeKind(key: ApiKey, isRotated: boolean): (string | Node)[] {
  if (!isProgram(key)) return [" ", createElement("small", {}, `Browser of ${key.deviceOf}`)];
  if (!isRotated || isExpired(key) || key.expiresAt === undefined) return [];
  return [" ", createElement("small", {}, "Old token, valid until ", createTime(key.expiresAt))];
}

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

function createTime(text: string): HTMLTimeElement {
  return createElement("time", { dateTime: text, title: text }, formatTime(new Date(text)));
}

presetInput.addEventListener("change", () => {
  showFieldError(expiresInput);
  if (presetInput.value === "other") expiresInput.focus();
});

function readExpires(): string | undefined {
  if (presetInput.value === "other") return expiresInput.value.trim();
  return presetInput.value === "never" ? undefined : presetInput.value;
}

/** Waits for a new token. Without an answer, the error gets `advice`: the key may exist, and its token is lost. */
async function mint(minting: Promise<MintedApiKey>, advice: string): Promise<MintedApiKey> {
  setMinting(true);
  try {
    const minted = await minting;
    // A list that was requested earlier may lack the key. Only the response to the last request counts.
    load();
    return minted;
  } catch (error) {
    if (!isUncertain(error)) throw error;
    throw new TodoApiError(error.code, error.message, { detail: `${errorMessage(error)} ${advice}` });
  } finally {
    setMinting(false);
  }
}

/** Until there is an answer, nothing else on the page can be used. */
function setMinting(is: boolean): void {
  isUnsaved = is;
  for (const section of document.querySelectorAll("section")) section.inert = is;
}

/** Returns whether a request failed without an answer from the service, which may have done what was requested. */
const isUncertain = (error: unknown): error is TodoApiError =>
  error instanceof TodoApiError && /^(?:network_error|timeout|unexpected_answer)$/.test(error.code);

onSubmit(form, async () => {
  const scope = scopeInput.value === "read" ? "read" : "write";
  const expires = readExpires();
  const advice = "If the key is listed below, revoke it and create another one, because its token is lost.";
  try {
    const creating = api.create(nameInput.value, { scope, ...(expires !== undefined && { expires }) });
    const minted = await mint(creating, advice);
    form.reset();
    showFieldErrors([nameInput, expiresInput], []);
    submitButton.focus();
    openInvite(minted, minted.token);
  } catch (error) {
    submitButton.focus();
    showError(error, [nameInput, expiresInput]);
    if (isUncertain(error)) await load();
  }
});

function rotate(key: ApiKey): void {
  const advice = "If the key is listed twice below, rotate the newer one, because its token is lost.";
  confirm(key, {
    heading: "Rotate this key?",
    text: "gets a new token. The old one and its browsers end later, so that you can replace them.",
    field: { name: "overlap", label: "The old token works for", value: "24h" },
    button: { textContent: "Rotate", className: "primary" },
    run: (overlap) => mint(api.rotate(key.id, overlap === "" ? {} : { overlap }), advice),
  });
}

function rename(key: ApiKey): void {
  const value = key.deviceOf === undefined ? key.name : deviceLabel(key.deviceOf, key.name);
  confirm(key, {
    heading: "Rename this key",
    text: "keeps its token.",
    field: { name: "name", label: "New name", value },
    button: { textContent: "Save", className: "primary" },
    run: async (name) => {
      await api.rename(key.id, name);
      announce(`Renamed: ${name}`);
    },
  });
}

function revoke(key: ApiKey): void {
  confirm(key, {
    heading: "Revoke this key?",
    text: "stops working immediately. This can't be undone.",
    button: { textContent: "Revoke", className: "danger" },
    run: async () => {
      await api.revoke(key.id);
      announce(`Revoked: ${key.name}`);
    },
  });
}

/** Deletes an expired key without confirmation, because the service rejects it already. */
async function remove({ id, name }: ApiKey): Promise<void> {
  try {
    await api.revoke(id);
    announce(`Removed: ${name}`);
  } catch (error) {
    showToast(errorMessage(error));
  }
  await load();
}

interface Confirmation {
  readonly heading: string;
  /** Follows the name of the key. */
  readonly text: string;
  readonly field?: { readonly name: string; readonly label: string; readonly value: string };
  readonly button: { readonly textContent: string; readonly className: string };
  /** Gets the value of the field. A token that it resolves to is shown. */
  readonly run: (value: string) => Promise<MintedApiKey | undefined>;
}

/**
 * Runs an action after confirmation, with the value of the dialog's field. Shows a validation error at the field and any other
 * error as a toast. An action continues if the user closes the dialog; its outcome then leaves the next dialog and the focus alone.
 */
function confirm({ name }: ApiKey, { heading, text, field, button, run }: Confirmation): void {
  document.querySelector("#confirm")?.remove();
  main.append(requireElement("#confirmation", HTMLTemplateElement).content.cloneNode(true));
  const dialog = requireElement("#confirm", HTMLDialogElement);
  const input = requireElement("#confirm-value", HTMLInputElement);
  requireElement("#confirm-heading", HTMLElement).textContent = heading;
  requireElement("#confirm bdi", HTMLElement).textContent = `“${name}”`;
  requireElement("#confirm span", HTMLElement).textContent = text;
  requireElement("#confirm .form-row", HTMLElement).hidden = field === undefined;
  const { label = "", ...properties } = field ?? {};
  requireElement("#confirm label", HTMLElement).textContent = label;
  Object.assign(input, properties);
  input.oninput = () => showFieldError(input);
  Object.assign(requireElement("#confirm-submit", HTMLButtonElement), button);
  requireElement("#confirm-cancel", HTMLButtonElement).onclick = () => dialog.close();
  const opener = focusedButton();
  let isDone = false;
  onSubmit(requireElement("#confirm form", HTMLFormElement), async () => {
    try {
      const minted = await run(input.value.trim());
      isDone = true;
      const wasOpen = dialog.open;
      dialog.close();
      if (minted !== undefined) openInvite(minted, minted.token);
      await load();
      if (wasOpen && !isDialogOpen()) keysHeading.focus();
    } catch (error) {
      if (!dialog.open) showToast(errorMessage(error));
      else if (showError(error, [input])) return;
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

/** Shows a new token, and in private mode a link with which a person signs in. */
function openInvite(key: ApiKey, token?: string): void {
  inviteHeading.replaceChildren(
    isPrivate === true ? "Invite " : "Token for ",
    createElement("bdi", {}, key.name),
  );
  inviteContent.replaceChildren();
  if (isPrivate === true) {
    const link = createElement("div");
    const advice = "A person signs in with this link. Scan or open it within ten minutes. It works once.";
    inviteContent.append(createElement("p", {}, advice), link);
    showLink(key, link);
  }
  shownId = token === undefined ? undefined : key.id;
  isUnsaved = token !== undefined;
  if (token !== undefined) {
    const advice = "A program uses this token. The service cannot show it again.";
    const copyable = createCopyable(token, () => {
      isUnsaved = false;
    });
    inviteContent.append(createElement("p", {}, advice), copyable);
  }
  // Escape would lose the token. Not every browser has `closedby`. With `oncancel` alone, Chromium closes at the second Escape.
  invite.setAttribute("closedby", token === undefined ? "any" : "none");
  invite.oncancel = (event) => {
    if (token !== undefined) event.preventDefault();
  };
  invite.showModal();
}

async function showLink({ id }: ApiKey, target: HTMLElement): Promise<void> {
  try {
    target.replaceChildren(createLinkView(await api.createLink(id)));
  } catch (error) {
    target.textContent = errorMessage(error);
  }
}

requireElement("#invite-done", HTMLButtonElement).onclick = () => invite.close();
invite.onclose = () => {
  inviteContent.replaceChildren();
  shownId = undefined;
  isUnsaved = false;
  if (!isDialogOpen() && document.activeElement === document.body) keysHeading.focus();
};

addEventListener("beforeunload", (event) => {
  if (isUnsaved) event.preventDefault();
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
  const isAtField =
    errors.length > 0 && errors.every(({ field }) => visible.some(({ name }) => name === field));
  if (isAtField) showFieldErrors(inputs, errors);
  else showToast(errorMessage(error));
  return isAtField;
}

function showFieldErrors(inputs: readonly HTMLInputElement[], errors: readonly FieldError[]): void {
  const invalid = inputs.filter((input) => {
    const messages = errors.filter(({ field }) => field === input.name).map(({ message }) => message);
    showFieldError(input, messages.length === 0 ? "" : `It ${messages.join(" and ")}.`);
    return messages.length > 0;
  });
  invalid[0]?.focus();
}

for (const input of [nameInput, expiresInput]) input.addEventListener("input", () => showFieldError(input));

requireElement(".no-script", HTMLElement).remove();
poll();
