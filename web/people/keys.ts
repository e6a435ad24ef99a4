import { deviceLabel } from "../../src/device-name.ts";
import { type ApiKey, type MintedApiKey, TodoApiError } from "../../src/sdk/client.ts";
import { createKeysApi } from "../../src/sdk/keys.ts";
import { delay } from "../../src/sdk/retry.ts";
import { createCopyable, createLinkView } from "../view/copyable.ts";
import {
  createButton,
  createElement,
  onSubmit,
  quote,
  requireElement,
  setChildren,
  showFieldError,
} from "../view/dom.ts";
import { errorMessage, formatTime } from "../view/messages.ts";
import { announce, showToast } from "../view/toasts.ts";
import { pageVisible } from "../visibility.ts";
import { readSession, request } from "./requests.ts";

/** Time between two reads of the keys while the page is visible. Key changes are not in the event stream. */
const POLL_INTERVAL_MS = 10_000;

const content = requireElement("#content", HTMLElement);
const form = requireElement("#new-key", HTMLFormElement);
const nameInput = requireElement("#name", HTMLInputElement);
const presetInput = requireElement("#preset", HTMLSelectElement);
const expiresInput = requireElement("#expires", HTMLInputElement);
const scopeInput = requireElement("#scope", HTMLSelectElement);
const invite = requireElement("#invite", HTMLDialogElement);
const inviteHeading = requireElement("#invite-heading", HTMLElement);
const inviteContent = requireElement("#invite-content", HTMLElement);
const confirmation = requireElement("#confirm", HTMLDialogElement);
const confirmationInput = requireElement("#confirm-value", HTMLInputElement);
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
/** Nobody has copied the token that the dialog shows. The service cannot show it again. */
let isUnsaved = false;
/** The id of the button that opened the last dialog or started the last action. */
let startedBy = "";

/** Reads the keys and shows them. Ignores the response if a later call has started, because that one knows more. */
async function load(): Promise<void> {
  const id = ++loads;
  let message = "";
  try {
    isPrivate ??= (await readSession()) !== "not private";
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

/** Returns the keys from the newest to the oldest, each followed by its browsers, and then the browsers of users. */
function sort(keys: readonly ApiKey[]): ApiKey[] {
  const newest = keys.toReversed();
  const browsersOf = (id?: string): ApiKey[] =>
    newest.filter((key) => !isProgram(key) && key.parentId === id);
  return [...newest.filter(isProgram).flatMap((key) => [key, ...browsersOf(key.id)]), ...browsersOf()];
}

const isProgram = ({ deviceOf }: ApiKey): boolean => deviceOf === undefined;

/** Shows the keys, and only the token of one of them. Keeps the rows that did not change, and the focus. */
function showKeys(keys: readonly ApiKey[]): void {
  const { activeElement: focused } = document;
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
  // It is removed, or it has moved in a browser without `moveBefore`.
  if (focused !== null && focused !== document.activeElement) focusButton(focused.id);
  if (shownId !== undefined && !keys.some(({ id }) => id === shownId)) invite.close();
}

/** Focuses a button, or the heading if the button is gone. The page does not scroll. Behind an open dialog, does nothing. */
const focusButton = (id: string): void =>
  (document.getElementById(id) ?? keysHeading).focus({ preventScroll: true });

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
  const addAction = (label: string, run: () => unknown): void => {
    const id = `${label.toLowerCase()}-${key.id}`;
    const start = (): void => {
      startedBy = id;
      run();
    };
    actions.append(createButton(label, start, { id, ariaLabel: `${label} ${key.name}` }));
  };
  if (isExpired(key)) addAction("Remove", () => confirm(key, "Remove"));
  else {
    // The key of a browser is in its cookie, so a new token would reach nobody.
    const isRenewable = isProgram(key) && !isRotated;
    if (isRenewable && isPrivate === true) addAction("Invite", () => openInvite(key));
    const labels = isRenewable ? (["Rotate", "Rename", "Revoke"] as const) : (["Rename", "Revoke"] as const);
    for (const label of labels) addAction(label, () => confirm(key, label));
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

/** Resolves to a new key, whose token is then shown, or to what is announced. */
type Action = () => Promise<MintedApiKey | string>;

/**
 * Runs an action, and reads the keys again. Until the action ends, nothing but its dialog can be used.
 * @param inputs have the values that the service may reject
 */
async function act(action: Action, inputs: readonly HTMLInputElement[] = []): Promise<void> {
  for (const input of inputs) showFieldError(input);
  content.inert = true;
  try {
    const result = await action().finally(() => {
      content.inert = false;
      // A list that was requested earlier may lack a new key. Only the response to the last request counts.
      load();
      focusButton(startedBy);
    });
    confirmation.close();
    if (typeof result === "string") announce(result);
    else openInvite(result, result.token);
  } catch (error) {
    if (!showError(error, inputs)) confirmation.close();
  }
}

onSubmit(form, () => {
  startedBy = "create";
  const scope = scopeInput.value === "read" ? "read" : "write";
  const preset = presetInput.value;
  const expires = preset === "other" ? expiresInput.value.trim() : preset;
  return act(async () => {
    const options = { scope, ...(expires !== "never" && { expires }) } as const;
    const minted = await api.create(nameInput.value, options);
    form.reset();
    return minted;
  }, [nameInput, expiresInput]);
});

/** What can be done with a key after a confirmation. */
interface KeyAction {
  /** Follows the name of the key. */
  readonly text: string;
  readonly field?: (key: ApiKey) => { readonly name: string; readonly label: string; readonly value: string };
  /** Gets the value of the field. */
  readonly run: (key: ApiKey, value: string) => ReturnType<Action>;
}

const KEY_ACTIONS: Readonly<Record<"Rotate" | "Rename" | "Revoke" | "Remove", KeyAction>> = {
  Rotate: {
    text: "gets a new token. The old one and its browsers end later, so that you can replace them.",
    field: () => ({ name: "overlap", label: "The old token works for", value: "24h" }),
    run: ({ id }, overlap) => api.rotate(id, overlap === "" ? {} : { overlap }),
  },
  Rename: {
    text: "keeps its token.",
    field: ({ deviceOf, name }) => {
      const value = deviceOf === undefined ? name : deviceLabel(deviceOf, name);
      return { name: "name", label: "New name", value };
    },
    run: async ({ id }, name) => {
      await api.rename(id, name);
      return `Renamed: ${name}`;
    },
  },
  Revoke: {
    text: "stops working immediately. This can't be undone.",
    run: (key) => revoke(key, "Revoked"),
  },
  // The clock of this device may be wrong, and the key valid.
  Remove: {
    text: "is deleted, and no longer works. This can't be undone.",
    run: (key) => revoke(key, "Removed"),
  },
};

/** Asks before an action. The action continues if the user closes the dialog meanwhile. */
function confirm(key: ApiKey, label: keyof typeof KEY_ACTIONS): void {
  const { text, field: toField, run } = KEY_ACTIONS[label];
  const field = toField?.(key);
  requireElement("#confirm-heading", HTMLElement).textContent = `${label} this key?`;
  requireElement("#confirm-text", HTMLElement).replaceChildren(quote(key.name), ` ${text}`);
  requireElement("#confirm .form-row", HTMLElement).hidden = field === undefined;
  requireElement("#confirm label", HTMLElement).textContent = field?.label ?? "";
  confirmationInput.name = field?.name ?? "";
  confirmationInput.value = field?.value ?? "";
  showFieldError(confirmationInput);
  const button = requireElement("#confirm-submit", HTMLButtonElement);
  button.textContent = label;
  button.className = field === undefined ? "danger" : "primary";
  onSubmit(requireElement("#confirm form", HTMLFormElement), () =>
    act(() => run(key, confirmationInput.value.trim()), [confirmationInput]),
  );
  confirmation.showModal();
}

async function revoke({ id, name }: ApiKey, done: string): Promise<string> {
  await api.revoke(id);
  return `${done}: ${name}`;
}

/** Shows a new token, and in private mode a link with which a person signs in. */
function openInvite(key: ApiKey, token?: string): void {
  inviteHeading.replaceChildren(
    isPrivate === true ? "Invite " : "Token for ",
    createElement("bdi", {}, key.name),
  );
  if (isPrivate === true) {
    const link = createElement("div");
    const advice = "A person signs in with this link. Scan or open it within ten minutes. It works once.";
    inviteContent.append(createElement("p", {}, advice), link);
    api
      .createLink(key.id)
      .then(createLinkView, errorMessage)
      .then((view) => link.replaceChildren(view));
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

requireElement("#confirm-cancel", HTMLButtonElement).onclick = () => confirmation.close();
invite.onclose = () => {
  inviteContent.replaceChildren();
  shownId = undefined;
  isUnsaved = false;
  focusButton(startedBy);
};
// The row may have been replaced while the dialog was open.
confirmation.onclose = () => focusButton(startedBy);

addEventListener("beforeunload", (event) => {
  if (isUnsaved || content.inert) event.preventDefault();
});

const NAME_IN_USE = "is already in use: rotate or revoke the key of this name, or enter another name";
/** Follows an error without an answer from the service, which may have done what was requested. */
const UNCERTAIN =
  " The list below shows whether it was done. If there is a new key, revoke it or rotate it, because its token is lost.";

/** Shows an error at its visible fields, or as a toast if it has none. Returns whether it was shown at a field. */
function showError(error: unknown, inputs: readonly HTMLInputElement[]): boolean {
  const { code, fields = [] } = error instanceof TodoApiError ? error : {};
  const errors = code === "key_exists" ? [{ field: "name", message: NAME_IN_USE }] : fields;
  const messagesOf = ({ name }: HTMLInputElement): string[] =>
    errors.filter(({ field }) => field === name).map(({ message }) => message);
  const invalid = inputs.filter((input) => input.checkVisibility() && messagesOf(input).length > 0);
  for (const input of invalid) showFieldError(input, `It ${messagesOf(input).join(" and ")}.`);
  invalid[0]?.focus();
  const isUncertain = code !== undefined && /^(?:network_error|timeout|unexpected_answer)$/.test(code);
  if (invalid.length === 0) showToast(errorMessage(error), isUncertain ? UNCERTAIN : "");
  return invalid.length > 0;
}

requireElement(".no-script", HTMLElement).remove();
poll();
