import { TodoApiError } from "../src/sdk/client.ts";
import { readDeletion } from "../src/sdk/exchange.ts";
import { copyText } from "./clipboard.ts";
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

interface DeviceLink {
  readonly link: string;
  readonly qrCode: { readonly size: number; readonly path: string };
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
const form = requireElement("#sign-in-form", HTMLFormElement);
const userInput = requireElement("#user", HTMLInputElement);
const passwordInput = requireElement("#password", HTMLInputElement);
const linkQuestion = requireElement("#link-question", HTMLElement);
const linkButton = requireElement("#link-submit", HTMLButtonElement);
const dialog = requireElement("#devices", HTMLDialogElement);
const devicesButton = requireElement("#show-devices", HTMLButtonElement);
const deviceList = requireElement("#device-list", HTMLElement);
const deviceLink = requireElement("#device-link", HTMLElement);
const deviceLinkText = requireElement("#device-link-text", HTMLElement);
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
const TOKEN = /^todo_\w{49}$/;
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

  constructor(options: SessionOptions) {
    this.#options = options;
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#submit();
    });
    for (const input of [userInput, passwordInput])
      input.addEventListener("input", () => showFieldError(input));
    devicesButton.addEventListener("click", () => this.#showDevices());
    listen("#link-cancel", () => this.#cancelLink());
    listen("#sign-out", () => this.#signOut());
    listen("#add-device", () => this.#addDevice());
    listen("#close-devices", () => dialog.close());
    addEventListener("focus", () => {
      if (dialog.open) this.#loadDevices();
    });
    // Another device may use the link while this window keeps the focus.
    setInterval(() => {
      if (dialog.open && !deviceLink.hidden) this.#checkLink();
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
      form.hidden = true;
      signInNotice.textContent = `This list is private. ${detail ?? "It needs HTTPS."}`;
    } else if (this.#code !== undefined) await this.#showLink(this.#code);
    else this.#showForm(wasSignedIn ? "This browser was signed out." : "This list is private.");
  }

  #showForm(notice: string): void {
    this.#code = undefined;
    signInNotice.textContent = notice;
    linkQuestion.hidden = true;
    form.hidden = false;
    userInput.focus();
  }

  /** Asks whether to sign in with a link. Another person may have sent it, so the service says whose it is. */
  async #showLink(code: string): Promise<void> {
    try {
      const { name } = await requestJson<Session>("POST", "/api/session/link", { code });
      this.#code = code;
      requireElement("#link-owner", HTMLElement).textContent = name;
      linkButton.textContent = `Sign in as ${name}`;
      linkButton.onclick = () => this.#signIn({ code });
      signInNotice.textContent = "";
      form.hidden = true;
      linkQuestion.hidden = false;
    } catch (error) {
      this.#showError(errorMessage(error));
    }
  }

  /** The history of the browser keeps the code, so the next person at this browser must not be able to use it. */
  async #cancelLink(): Promise<void> {
    const code = this.#code;
    this.#showForm("");
    try {
      await request({ method: "POST", path: "/api/session/link/cancel", body: { code } }, {}, readDeletion);
    } catch (error) {
      if (!isUnauthorized(error)) this.#showError(`The link is still valid. ${errorMessage(error)}`);
    }
  }

  async #submit(): Promise<void> {
    const [user, secret] = [userInput.value.trim(), passwordInput.value.trim()];
    if (secret === "") return this.#showError("Enter a password, a token or a link.");
    const code = LINK.exec(secret)?.[1];
    if (code !== undefined) await this.#showLink(code);
    else if (TOKEN.test(secret)) await this.#signIn({ token: secret });
    else if (user === "") {
      showFieldError(userInput, "Enter the user name of this password.");
      userInput.focus();
    } else await this.#signIn({ user, password: passwordInput.value });
  }

  async #signIn(body: object): Promise<void> {
    // Windows of someone else who was signed in before must notice it before they send anything.
    writeSetting(OWNER);
    try {
      await requestJson("POST", "/api/session", body);
      if ((await readSession()) === undefined) return this.#showError(NO_COOKIE);
      location.reload();
    } catch (error) {
      const isWrong = isUnauthorized(error) && !("code" in body);
      this.#showError(isWrong ? "The user name, password or token is wrong." : errorMessage(error));
    }
  }

  #showError(message: string): void {
    this.#showForm("");
    passwordInput.focus();
    showFieldError(passwordInput, message);
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
    deviceLink.hidden = true;
    deviceLinkEnd.textContent = "";
    if (!dialog.open) dialog.showModal();
    this.#shown = "";
    await this.#loadDevices();
  }

  async #loadDevices(): Promise<void> {
    await attempt(async () => {
      const session = await readSession();
      // An unchanged list keeps the focus of its buttons.
      if (session === undefined || JSON.stringify(session) === this.#shown) return;
      this.#shown = JSON.stringify(session);
      const as = createElement("strong", { dir: "auto" }, session.name);
      const scope = session.scope === "read" ? ", who can read the list only." : ".";
      requireElement("#signed-in-as", HTMLElement).replaceChildren("Signed in as ", as, scope);
      requireElement("#device-link-owner", HTMLElement).textContent = session.name;
      deviceList.replaceChildren(...session.devices.map((device) => this.#createItem(device)));
    });
  }

  /** Hides the link when no other device can use it any more. */
  async #checkLink(): Promise<void> {
    await attempt(async () => {
      const code = LINK.exec(deviceLinkText.textContent ?? "")?.[1];
      try {
        await requestJson("POST", "/api/session/link", { code });
      } catch (error) {
        if (!isUnauthorized(error)) throw error;
        deviceLink.hidden = true;
        deviceLinkEnd.textContent = "The link was used, or it has expired.";
      }
    });
    await this.#loadDevices();
  }

  #createItem({ id, name, isCurrent, lastUsedAt }: Device): HTMLElement {
    const used = lastUsedAt === undefined ? "" : `Last used ${TIME.format(new Date(lastUsedAt))}`;
    const text = createElement("span", {}, name, createElement("br"), createElement("small", {}, used));
    if (isCurrent) return createElement("li", {}, text, createElement("span", {}, "This browser"));
    const revoke = (): Promise<void> =>
      attempt(async () => {
        await deleteSession(`/api/session/devices/${id}`);
        await this.#showDevices();
      });
    const button = createElement("button", { type: "button", className: "secondary" }, "Sign out");
    button.ariaLabel = `Sign out ${name}`;
    button.onclick = revoke;
    return createElement("li", {}, text, button);
  }

  async #addDevice(): Promise<void> {
    await attempt(async () => {
      const { link, qrCode } = await requestJson<DeviceLink>("POST", "/api/session/links");
      const svg = requireElement("#device-qr", SVGSVGElement);
      svg.setAttribute("viewBox", `0 0 ${qrCode.size} ${qrCode.size}`);
      requireElement("#device-qr path", SVGPathElement).setAttribute("d", qrCode.path);
      deviceLinkText.textContent = link;
      deviceLinkEnd.textContent = "";
      const copyStatus = requireElement("#copy-status", HTMLElement);
      copyStatus.textContent = "";
      listen("#copy-link", async () => {
        copyStatus.textContent = (await copyText(link)) ? "Copied." : "The browser forbids copying.";
      });
      deviceLink.hidden = false;
      deviceLink.scrollIntoView({ block: "nearest" });
    });
  }
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
