import { type SignInLink, TodoApiError } from "../src/sdk/client.ts";
import { readDeletion } from "../src/sdk/exchange.ts";
import { createLinkView } from "./copyable.ts";
import { createElement, requireElement, showFieldError } from "./dom.ts";
import { errorMessage, formatCount } from "./messages.ts";
import { ask, clearMessages, showToast } from "./notifications.ts";
import { request, requestJson } from "./request.ts";
import { onSettingChange, readSetting, writeSetting } from "./settings.ts";

/** A signed-in browser. */
interface Device {
  readonly id: string;
  readonly name: string;
  readonly lastUsedAt?: string;
  readonly isCurrent: boolean;
}

/** Who is signed in. */
export interface Session {
  readonly kind: "user" | "client";
  readonly name: string;
  /** `read`: to-dos cannot be changed. */
  readonly scope: "read" | "write";
  readonly devices: readonly Device[];
}

export interface SessionOptions {
  /** Deletes the list that the browser keeps. */
  readonly forgetList: () => Promise<void>;
  /** Sends what waits, while the connection works. Resolves to the number of changes that are left. */
  readonly sendChanges: () => Promise<number>;
  /** Deletes the changes that were not sent. */
  readonly forgetChanges: () => Promise<void>;
  /** The service is private, and this browser is signed in. */
  readonly onSignedIn: (session: Session, owner: string) => Promise<void>;
}

const app = requireElement("#app", HTMLElement);
const signInSection = requireElement("#sign-in", HTMLElement);
const signInNotice = requireElement("#sign-in-notice", HTMLElement);
const forms = requireElement("#sign-in-forms", HTMLElement);
const secretInput = requireElement("#secret", HTMLInputElement);
const userInput = requireElement("#user", HTMLInputElement);
const passwordInput = requireElement("#password", HTMLInputElement);
const linkQuestion = requireElement("#link-question", HTMLElement);
const linkButton = requireElement("#link-submit", HTMLButtonElement);
const dialog = requireElement("#devices", HTMLDialogElement);
const devicesButton = requireElement("#show-devices", HTMLButtonElement);
const deviceList = requireElement("#device-list", HTMLElement);
const deviceLink = requireElement("#device-link", HTMLElement);
const deviceLinkEnd = requireElement("#device-link-end", HTMLElement);

/** Whether a response has shown that the service is private. */
let isPrivate = false;

/** Fetches a list, and notes whether the service is private: its responses then vary by the cookie. */
export async function fetchList(url: string, init: RequestInit): Promise<Response> {
  const response = await fetch(url, init);
  if (response.headers.get("vary")?.includes("Cookie") === true) isPrivate = true;
  return response;
}

/** Names the person or the client that is signed in. All windows of the browser share this setting. */
const OWNER = "owner";
const LINK_CHECK_MS = 5000;
const LINK = /#sign-in=(\w+)$/;
const TIME = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });

/** Signs in and out where the service is private. In open mode, it shows nothing. */
export class SessionView {
  readonly #options: SessionOptions;
  /** The code of the link that opened this page. Nothing is done with it before a person agrees. */
  #code = takeCode();
  #isEnded = false;
  /** Who is signed in, once it is known. */
  #owner: string | undefined;
  /** The setting while this owner is signed in; `undefined` in a browser that blocks storage. */
  #setting: string | undefined;
  #identifying: Promise<void> | undefined;
  /** The session that the dialog shows, as JSON. */
  #shown = "";
  /** The code of the link that the dialog shows. */
  #shownCode: string | undefined;

  constructor(options: SessionOptions) {
    this.#options = options;
    onSubmit("#secret-form", () => this.#submitSecret());
    onSubmit("#password-form", () => this.#submitPassword());
    for (const input of [secretInput, userInput, passwordInput])
      input.addEventListener("input", () => showFieldError(input));
    devicesButton.addEventListener("click", () => this.#showDevices());
    listen("#link-cancel", () => this.#cancelLink());
    listen("#add-device", () => this.#addDevice());
    listen("#close-devices", () => dialog.close());
    addEventListener("focus", () => {
      if (dialog.open) this.#loadDevices();
    });
    // Another device may use the link while this window keeps the focus.
    setInterval(() => {
      if (dialog.open) this.#checkLink();
    }, LINK_CHECK_MS);
    onSettingChange((name) => {
      if (name !== OWNER) return;
      // Another window has signed in.
      if (this.#isEnded && this.#code === undefined && readSetting(OWNER) !== undefined)
        location.replace("/");
      else this.isOwnerSignedIn();
    });
    // Another link, opened while this page is shown.
    addEventListener("hashchange", () => {
      if (LINK.test(location.hash)) location.reload();
    });
  }

  /** The list can be read. Finds out who is signed in if the service is private. Rejects with a TodoApiError without an answer. */
  identify(): Promise<void> {
    this.#identifying ??= this.#identify().finally(() => {
      this.#identifying = undefined;
    });
    return this.#identifying;
  }

  async #identify(): Promise<void> {
    if (!isPrivate) return;
    const session = await readSession();
    if (session === undefined || this.#isEnded) return;
    const owner = `${session.kind} ${session.name}`;
    if (this.#owner !== undefined) {
      if (this.#owner !== owner) await this.#leave();
      return;
    }
    await this.#options.onSignedIn(session, owner);
    writeSetting(OWNER, owner);
    this.#setting = readSetting(OWNER);
    this.#owner = owner;
    devicesButton.hidden = false;
    if (this.#code !== undefined) showToast("You are signed in already. To use the link, sign out first.");
    // The back button must not show the list again after a sign-out.
    addEventListener("pagehide", () => {
      app.hidden = true;
    });
    window.addEventListener("pageshow", ({ persisted }) => {
      if (persisted) location.reload();
    });
  }

  /** Whether this window no longer shows the list, because the browser was signed out. */
  get isEnded(): boolean {
    return this.#isEnded;
  }

  /** Returns whether the browser is still signed in as the owner of this window. Otherwise the window loads again. */
  isOwnerSignedIn(): boolean {
    if (this.#isEnded) return false;
    if (this.#owner === undefined || readSetting(OWNER) === this.#setting) return true;
    this.#leave();
    return false;
  }

  /** Another window has signed out, or someone else has signed in: shows and keeps nothing of the owner of this window. */
  async #leave(): Promise<void> {
    this.#end();
    await this.#options.forgetList();
    location.replace("/");
  }

  #end(): void {
    this.#isEnded = true;
    // The page loads again after a sign-in.
    app.remove();
    dialog.close();
    clearMessages();
    document.title = "To-dos";
  }

  /** The service has rejected this browser: deletes the list, keeps unsent changes for the same user, and shows the form. */
  async onRejected({ code, detail }: TodoApiError): Promise<void> {
    if (this.#isEnded) return;
    const wasSignedIn = this.#owner !== undefined;
    this.#end();
    if (code !== "https_required") await this.#options.forgetList();
    signInSection.hidden = false;
    if (code === "https_required") {
      forms.hidden = true;
      signInNotice.textContent = `This list is private. ${detail ?? "It needs HTTPS."}`;
    } else if (this.#code !== undefined) await this.#showLink(this.#code);
    else this.#showForm(wasSignedIn ? "This browser was signed out." : "This list is private.");
  }

  #showForm(notice: string): void {
    this.#code = undefined;
    signInNotice.textContent = notice;
    linkQuestion.hidden = true;
    forms.hidden = false;
    secretInput.focus();
  }

  /** Asks whether to sign in with a link. Another person may have sent it, so the service says whose it is. */
  async #showLink(code: string): Promise<void> {
    try {
      const { name } = await requestJson<Session>("POST", "/api/session/link", { code });
      this.#code = code;
      requireElement("#link-owner", HTMLElement).textContent = name;
      linkButton.textContent = `Sign in as ${name}`;
      linkButton.onclick = () => this.#signIn({ code }, secretInput);
      signInNotice.textContent = "";
      forms.hidden = true;
      linkQuestion.hidden = false;
    } catch (error) {
      this.#showError(secretInput, errorMessage(error));
    }
  }

  /** The history of the browser keeps the code, so the next person at this browser must not be able to use it. */
  async #cancelLink(): Promise<void> {
    const code = this.#code;
    this.#showForm("");
    try {
      await request({ method: "POST", path: "/api/session/link/cancel", body: { code } }, {}, readDeletion);
    } catch (error) {
      if (!isUnauthorized(error))
        this.#showError(secretInput, `The link is still valid. ${errorMessage(error)}`);
    }
  }

  async #submitSecret(): Promise<void> {
    const secret = secretInput.value.trim();
    const code = LINK.exec(secret)?.[1];
    if (secret === "") this.#showError(secretInput, "Paste a link or a token.");
    else if (code !== undefined) await this.#showLink(code);
    else await this.#signIn({ token: secret }, secretInput, "This is neither a link nor a valid token.");
  }

  async #submitPassword(): Promise<void> {
    const [user, password] = [userInput.value.trim(), passwordInput.value];
    if (user === "") this.#showError(userInput, "Enter the user name.");
    else if (password === "") this.#showError(passwordInput, "Enter the password.");
    else await this.#signIn({ user, password }, passwordInput, "The user name or the password is wrong.");
  }

  /**
   * Signs in, and loads the page again.
   * @param input shows an error
   * @param unauthorized the error for a wrong credential, instead of the service's
   */
  async #signIn(body: object, input: HTMLInputElement, unauthorized?: string): Promise<void> {
    // Windows of someone else who was signed in before must notice it before they send anything.
    writeSetting(OWNER);
    try {
      await requestJson("POST", "/api/session", body);
      if ((await readSession()) === undefined) return this.#showError(input, NO_COOKIE);
      location.reload();
    } catch (error) {
      const message = isUnauthorized(error) ? unauthorized : undefined;
      this.#showError(input, message ?? errorMessage(error));
    }
  }

  #showError(input: HTMLInputElement, message: string): void {
    this.#showForm("");
    input.focus();
    showFieldError(input, message);
  }

  async #signOut(): Promise<void> {
    const count = await this.#options.sendChanges();
    if (this.#isEnded) return;
    if (count === 0) return this.#endSession();
    // The question is outside the dialog, which would cover it.
    dialog.close();
    const subject = count === 1 ? "1 change is not sent" : `${formatCount(count)} changes are not sent`;
    const answer = count === 1 ? "delete it" : "delete them";
    ask([`${subject}. Sign out and ${answer}?`], {
      "Sign out": () => {
        if (!dialog.open) dialog.showModal();
        this.#endSession();
      },
      Cancel: () => {},
    });
  }

  async #endSession(): Promise<void> {
    await attempt(async () => {
      await deleteSession("/api/session").catch((error) => {
        if (!isUnauthorized(error)) throw error;
      });
      this.#end();
      // Tells the other windows, which do the same.
      writeSetting(OWNER);
      await Promise.all([this.#options.forgetList(), this.#options.forgetChanges()]);
      location.replace("/");
    });
  }

  async #showDevices(): Promise<void> {
    this.#hideLink("");
    if (!dialog.open) dialog.showModal();
    this.#shown = "";
    await this.#loadDevices();
  }

  async #loadDevices(): Promise<void> {
    await attempt(async () => {
      const session = await readSession();
      // An unchanged list keeps the focus of its buttons, and a new name that someone types stays.
      if (session === undefined || JSON.stringify(session) === this.#shown) return;
      if (deviceList.querySelector("form") !== null) return;
      this.#shown = JSON.stringify(session);
      const as = createElement("strong", { dir: "auto" }, session.name);
      const scope = session.scope === "read" ? ", who can read the list only." : ".";
      requireElement("#signed-in-as", HTMLElement).replaceChildren("Signed in as ", as, scope);
      const prefix = `${session.name} · `;
      deviceList.replaceChildren(...session.devices.map((device) => this.#createItem(device, prefix)));
    });
  }

  /** Hides the link when no other device can use it any more. */
  async #checkLink(): Promise<void> {
    const code = this.#shownCode;
    if (code === undefined) return;
    await attempt(async () => {
      try {
        await requestJson("POST", "/api/session/link", { code });
      } catch (error) {
        if (!isUnauthorized(error)) throw error;
        this.#hideLink("The link was used, or it has expired.");
      }
    });
    await this.#loadDevices();
  }

  #hideLink(reason: string): void {
    this.#shownCode = undefined;
    deviceLink.replaceChildren();
    deviceLinkEnd.textContent = reason;
  }

  /** @param prefix the part of each name that this list leaves out, because it is the same for all */
  #createItem(device: Device, prefix: string): HTMLElement {
    const { id, isCurrent, lastUsedAt } = device;
    const name = device.name.startsWith(prefix) ? device.name.slice(prefix.length) : device.name;
    const used = lastUsedAt === undefined ? "" : `Last used ${TIME.format(new Date(lastUsedAt))}`;
    const details = createElement("small", {}, isCurrent ? "This browser" : used);
    const text = createElement("span", { dir: "auto" }, name, createElement("br"), details);
    const signOut = async (): Promise<void> => {
      if (isCurrent) return this.#signOut();
      await attempt(async () => {
        await deleteSession(`/api/session/devices/${id}`);
        await this.#showDevices();
      });
    };
    const item = createElement("li");
    const buttons = [
      createButton("Rename", `Rename ${name}`, () => item.replaceChildren(this.#createRenameForm(id, name))),
      createButton("Sign out", isCurrent ? "Sign out this browser" : `Sign out ${name}`, signOut),
    ];
    item.append(text, createElement("span", { className: "dialog-buttons" }, ...buttons));
    return item;
  }

  #createRenameForm(id: string, name: string): HTMLElement {
    const input = createElement("input", {
      id: "device-name",
      value: name,
      dir: "auto",
      ariaLabel: "Name of the device",
    });
    const error = createElement("p", { id: "device-name-error", className: "field-error", role: "alert" });
    const form = createElement("form", { noValidate: true }, input, error);
    const close = async (): Promise<void> => {
      form.remove();
      this.#shown = "";
      await this.#loadDevices();
    };
    const save = createElement("button", { type: "submit", className: "primary" }, "Save");
    form.append(
      createElement("span", { className: "dialog-buttons" }, createButton("Cancel", "Cancel", close), save),
    );
    form.onsubmit = (event) => {
      event.preventDefault();
      return attempt(async () => {
        try {
          await requestJson("PATCH", `/api/session/devices/${id}`, { name: input.value.trim() });
          await close();
        } catch (cause) {
          const [violation] = cause instanceof TodoApiError ? cause.fields : [];
          if (violation === undefined) throw cause;
          showFieldError(input, `The name ${violation.message}.`);
        }
      });
    };
    // The form is not in the document yet.
    queueMicrotask(() => input.select());
    return form;
  }

  async #addDevice(): Promise<void> {
    await attempt(async () => {
      const created = await requestJson<SignInLink>("POST", "/api/session/links");
      this.#shownCode = LINK.exec(created.link)?.[1];
      const owner = requireElement("#signed-in-as strong", HTMLElement).cloneNode(true);
      const text =
        ". Scan or open it within ten minutes. It works once. Another person needs a key of their own.";
      const advice = createElement("p", {}, "This link signs in as ", owner, text);
      deviceLink.replaceChildren(advice, createLinkView(created));
      deviceLinkEnd.textContent = "";
      deviceLink.scrollIntoView({ block: "nearest" });
    });
  }
}

const createButton = (label: string, ariaLabel: string, onclick: () => unknown): HTMLButtonElement =>
  createElement("button", { type: "button", className: "secondary", ariaLabel, onclick }, label);

function onSubmit(selector: string, submit: () => unknown): void {
  requireElement(selector, HTMLFormElement).onsubmit = (event) => {
    event.preventDefault();
    submit();
  };
}

const NO_COOKIE = "This browser does not keep the cookie of a sign-in. Allow cookies, or use HTTPS.";

const isUnauthorized = (error: unknown): boolean =>
  error instanceof TodoApiError && error.code === "unauthorized";

const deleteSession = (path: string): Promise<void> => request({ method: "DELETE", path }, {}, readDeletion);

/** Returns who is signed in, or `undefined` if nobody is or the service is not private. */
async function readSession(): Promise<Session | undefined> {
  try {
    return await requestJson<Session>("GET", "/api/session");
  } catch (error) {
    if (error instanceof TodoApiError && /^(?:unauthorized|route_not_found)$/.test(error.code))
      return undefined;
    throw error;
  }
}

/** Runs an action of the dialog. Shows an error there. */
async function attempt(action: () => Promise<void>): Promise<void> {
  const message = requireElement("#devices-error", HTMLElement);
  message.textContent = "";
  try {
    await action();
  } catch (error) {
    message.textContent = errorMessage(error);
  }
}

function listen(selector: string, onclick: () => unknown): void {
  requireElement(selector, HTMLButtonElement).onclick = onclick;
}

/** Returns the code in the address, and removes it there. The history of the browser keeps it, because the visit stays in it. */
function takeCode(): string | undefined {
  const code = LINK.exec(location.hash)?.[1];
  if (code !== undefined) history.replaceState(undefined, "", location.pathname + location.search);
  return code;
}
