import { make, showFieldError, the } from "./element.ts";
import { announce, quote, warn } from "./say.ts";

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

/** What the service says of a request that it refuses (RFC 9457). */
interface Problem {
  readonly title: string;
  readonly detail?: string;
  readonly errors?: readonly { readonly field: string; readonly message: string }[];
}

class Refused extends Error {
  readonly problem: Problem;

  constructor(problem: Problem) {
    super(problem.detail ?? problem.title);
    this.problem = problem;
  }
}

const form = the("#new-key", HTMLFormElement);
const nameInput = the("#name", HTMLInputElement);
const expiresInput = the("#expires", HTMLInputElement);
const createButton = the("#new-key button", HTMLButtonElement);
const tokenCard = the("#token", HTMLElement);
const tokenHeading = the("#token-heading", HTMLElement);
const tokenText = the("#token-text", HTMLElement);
const copyButton = the("#copy", HTMLButtonElement);
const body = the("#keys", HTMLTableSectionElement);
const keysHeading = the("#keys-heading", HTMLElement);
const placeholder = the("#placeholder", HTMLElement);
const dialog = the("#confirm", HTMLDialogElement);
const confirmButton = the("#confirm-yes", HTMLButtonElement);
const confirmForm = the("#confirm form", HTMLFormElement);
const overlapInput = the("#overlap", HTMLInputElement);

/**
 * Asks the service; the browser sends along the password that it asked for. Throws Refused when that is the answer.
 * By its origin: the page's own address may have the password in it, and nothing is fetched relative to such a one.
 */
async function ask(method: string, path: string, body?: object): Promise<Response> {
  const headers = { Accept: "application/json", ...(body && { "Content-Type": "application/json" }) };
  const response = await fetch(location.origin + path, {
    method,
    headers,
    ...(body && { body: JSON.stringify(body) }),
  }).catch(() => {
    throw new Refused({ title: "The service cannot be reached." });
  });
  if (response.ok) return response;
  const problem: unknown = await response.json().catch(() => undefined);
  throw new Refused(isProblem(problem) ? problem : { title: `The service answered ${response.status}.` });
}

const isProblem = (value: unknown): value is Problem =>
  typeof value === "object" && value !== null && "title" in value && typeof value.title === "string";

/** What an answer holds; a proxy's page is no answer. */
async function read<T>(response: Response): Promise<T> {
  return response.json().catch(() => {
    throw new Refused({ title: "What answered is not the service." });
  });
}

async function load(): Promise<void> {
  try {
    const keys = await read<readonly Key[]>(await ask("GET", "/admin/keys"));
    body.replaceChildren(...keys.map(rowOf).reverse());
    placeholder.textContent = keys.length === 0 ? "There are no keys yet." : "";
  } catch (error) {
    placeholder.textContent = `The keys cannot be shown: ${reasonOf(error)}`;
  }
}

function rowOf(key: Key): HTMLTableRowElement {
  const isEnded = key.expiresAt !== undefined && Date.parse(key.expiresAt) <= Date.now();
  const actions = make("td", { className: "actions" });
  if (isEnded) actions.append(action("Remove", key, () => remove(key)));
  else
    actions.append(
      action("Rotate", key, () => rotate(key)),
      action("Revoke", key, () => revoke(key)),
    );
  return make(
    "tr",
    { className: isEnded ? "ended" : "" },
    make("th", { scope: "row", dir: "auto" }, key.name),
    cell("Id", make("code", {}, key.id)),
    cell("Created", timeOf(key.createdAt)),
    cell("Expires", key.expiresAt === undefined ? "never" : timeOf(key.expiresAt)),
    cell("Last used", key.lastUsedAt === undefined ? "not yet" : timeOf(key.lastUsedAt)),
    actions,
  );
}

function cell(label: string, content: string | Node): HTMLTableCellElement {
  const element = make("td", {}, make("span", {}, content));
  element.dataset.label = label;
  return element;
}

function action(label: string, key: Key, onclick: () => void): HTMLButtonElement {
  return make(
    "button",
    { type: "button", className: "quiet", ariaLabel: `${label} ${key.name}`, onclick },
    label,
  );
}

const TIME = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });

function timeOf(text: string): HTMLTimeElement {
  return make("time", { dateTime: text, title: text }, TIME.format(new Date(text)));
}

form.onsubmit = once(createButton, async () => {
  try {
    const expires = expiresInput.value.trim();
    const asked = { name: nameInput.value, ...(expires !== "" && { expires }) };
    const minted = await read<MintedKey>(await ask("POST", "/admin/keys", asked));
    form.reset();
    showErrors([nameInput, expiresInput], []);
    showToken(minted);
    await load();
  } catch (error) {
    showRefusal(error, [nameInput, expiresInput]);
  }
});

function rotate(key: Key): void {
  overlapInput.value = "24h";
  showErrors([overlapInput], []);
  const text =
    " gets a new token. The one it has now passes for a while more, so that its client can change over.";
  const act = async (): Promise<void> => {
    const overlap = overlapInput.value.trim();
    const answer = await ask(
      "POST",
      `/admin/keys/${key.id}/rotate`,
      overlap === "" ? undefined : { overlap },
    );
    showToken(await read<MintedKey>(answer));
  };
  confirm({ title: "Rotate the key?", name: key.name, text, label: "Rotate", withOverlap: true, act });
}

function revoke({ id, name }: Key): void {
  const text = " stops passing at once. There is no way back.";
  const act = async (): Promise<void> => {
    await ask("DELETE", `/admin/keys/${id}`);
    announce(`Revoked: ${name}`);
  };
  confirm({ title: "Revoke the key?", name, text, label: "Revoke", act });
}

/** One that has ended passes no more anyway. */
async function remove({ id, name }: Key): Promise<void> {
  try {
    await ask("DELETE", `/admin/keys/${id}`);
    announce(`Removed: ${name}`);
    await load();
    keysHeading.focus();
  } catch (error) {
    warn(reasonOf(error));
    await load();
  }
}

interface Question {
  readonly title: string;
  /** Of the client; the text goes on from it. */
  readonly name: string;
  readonly text: string;
  /** Of the button that does it. */
  readonly label: string;
  /** Whether to ask for how long older keys go on, too. */
  readonly withOverlap?: boolean;
  readonly act: () => Promise<void>;
}

/** Asks whether to do something, and does it; what is refused is said in the dialog's field, or beside the page. */
function confirm({ title, name, text, label, withOverlap, act }: Question): void {
  the("#confirm-heading", HTMLElement).textContent = title;
  the("#confirm-text", HTMLElement).replaceChildren(quote(name), text);
  confirmButton.textContent = label;
  the("#overlap-field", HTMLElement).hidden = withOverlap !== true;
  confirmForm.onsubmit = once(confirmButton, async () => {
    try {
      await act();
      dialog.close();
      await load();
      if (tokenCard.hidden) keysHeading.focus();
      else tokenHeading.focus();
    } catch (error) {
      if (showRefusal(error, [overlapInput])) return;
      dialog.close();
      // Another window may have revoked it.
      await load();
    }
  });
  dialog.showModal();
}

the("#confirm-no", HTMLButtonElement).addEventListener("click", () => dialog.close());

/** What a form does when it is sent; nothing while it is still at it. */
function once(button: HTMLButtonElement, act: () => Promise<void>): (event: SubmitEvent) => Promise<void> {
  return async (event) => {
    event.preventDefault();
    if (button.ariaDisabled === "true") return;
    button.ariaDisabled = "true";
    await act().finally(() => {
      button.ariaDisabled = null;
    });
  };
}

function showToken({ name, token }: MintedKey): void {
  tokenHeading.replaceChildren("The token of ", make("bdi", {}, name));
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
    // Over plain HTTP there is no clipboard: then the text is at least chosen.
    getSelection()?.selectAllChildren(tokenText);
    announce("The token is selected: copy it with the keyboard.");
  }
});

the("#forget", HTMLButtonElement).addEventListener("click", () => {
  tokenText.textContent = "";
  tokenCard.hidden = true;
  keysHeading.focus();
});

/** Says a refusal beside the fields that it is about, or else above the page; gives whether it was about one. */
function showRefusal(error: unknown, inputs: readonly HTMLInputElement[]): boolean {
  const errors = error instanceof Refused ? (error.problem.errors ?? []) : [];
  if (errors.length > 0) showErrors(inputs, errors);
  else warn(reasonOf(error));
  return errors.length > 0;
}

function showErrors(inputs: readonly HTMLInputElement[], errors: NonNullable<Problem["errors"]>): void {
  const broken = inputs.filter((input) => {
    const messages = errors.filter(({ field }) => field === input.id).map(({ message }) => message);
    showFieldError(input, messages.length === 0 ? "" : `It ${messages.join(" and ")}.`);
    return messages.length > 0;
  });
  broken[0]?.focus();
}

function reasonOf(error: unknown): string {
  if (!(error instanceof Refused)) throw error;
  return error.message;
}

for (const input of [nameInput, expiresInput, overlapInput])
  input.addEventListener("input", () => showFieldError(input));

load();
