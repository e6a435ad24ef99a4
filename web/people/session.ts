import type { TodoApiError } from "../../src/sdk/client.ts";
import { onSettingChange, readSetting, writeSetting } from "../settings.ts";
import { requireElement } from "../view/dom.ts";
import { showToast } from "../view/toasts.ts";
import { LINK, OWNER, readSession, type Session } from "./requests.ts";
import type { DevicesDialog, SignInForm } from "./sign-in.ts";

/** The path of the built sign-in.ts. Only private mode needs it, so it is loaded later. */
declare const BUILT_SIGN_IN: string;

export interface SessionOptions {
  /** Deletes the list that the browser keeps. */
  readonly forgetList: () => Promise<void>;
  /** Sends what waits, while the connection works. Resolves to the number of changes that are left. */
  readonly sendChanges: () => Promise<number>;
  /** Deletes the changes that were not sent. */
  readonly forgetChanges: () => void;
  /** The service is private, and this browser is signed in. */
  readonly onSignedIn: (session: Session, owner: string) => void;
}

const app = requireElement("#app", HTMLElement);
const signInSection = requireElement("#sign-in", HTMLElement);
const signInNotice = requireElement("#sign-in-notice", HTMLElement);
const forms = requireElement("#sign-in-forms", HTMLElement);
const dialog = requireElement("#devices", HTMLDialogElement);
const devicesButton = requireElement("#show-devices", HTMLButtonElement);

/** Signs in and out where the service is private. In open mode, it shows nothing. */
export class SessionView {
  readonly #options: SessionOptions;
  /** The code of the link that opened this page. Nothing is done with it before a person agrees. */
  #code = takeCode();
  /** The service is private, as a response has shown, or this browser was signed in. */
  #isPrivate = readSetting(OWNER) !== undefined;
  /** This window no longer shows the list, because the browser was signed out. */
  #isEnded = false;
  /** Who is signed in, once it is known. */
  #owner: string | undefined;
  /** The setting while this owner is signed in; `undefined` in a browser that blocks storage. */
  #setting: string | undefined;
  #form: SignInForm | undefined;
  #devices: DevicesDialog | undefined;

  constructor(options: SessionOptions) {
    this.#options = options;
    devicesButton.addEventListener("click", () => this.#showDevices());
    onSettingChange((name) => {
      if (name !== OWNER) return;
      // Another window has signed in.
      if (this.#isEnded && this.#form?.isAsking !== true && readSetting(OWNER) !== undefined)
        location.replace("/");
      else this.isOwnerSignedIn();
    });
    // Another link, opened while this page is shown.
    addEventListener("hashchange", () => {
      if (LINK.test(location.hash)) location.reload();
    });
  }

  /** Notes whether the service is private: no cache may keep its to-dos then. */
  onResponse({ url, headers }: Response): void {
    if (url.includes("/api/todos") && headers.get("cache-control")?.includes("no-store") === true)
      this.#isPrivate = true;
  }

  /** The list can be read. Finds out who is signed in if the service is private. Rejects with a TodoApiError without an answer. */
  async identify(): Promise<void> {
    if (!this.#isPrivate) return;
    const session = await readSession();
    if (typeof session === "string" || this.#isEnded) return;
    const owner = `${session.kind} ${session.name}`;
    if (this.#owner !== undefined) {
      if (this.#owner !== owner) await this.#leave();
      return;
    }
    this.#options.onSignedIn(session, owner);
    writeSetting(OWNER, owner);
    this.#setting = readSetting(OWNER);
    this.#owner = owner;
    // Only users can open or need these pages.
    if (session.kind === "client")
      for (const link of document.querySelectorAll('[href="/admin/keys"], [href="/docs"]')) link.remove();
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

  /** Returns whether the browser is still signed in as the owner of this window. Otherwise the window loads again. */
  isOwnerSignedIn(): boolean {
    if (this.#isEnded) return false;
    if (this.#owner === undefined || readSetting(OWNER) === this.#setting) return true;
    this.#leave();
    return false;
  }

  /** The browser was signed out, or someone else has signed in: shows and keeps nothing of the owner of this window. */
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
    document.title = "To-dos";
  }

  /** The service has rejected this browser: deletes the list, keeps unsent changes for the same user, and shows the form. */
  async onRejected({ code, detail }: TodoApiError): Promise<void> {
    if (this.#isEnded) return;
    const wasSignedIn = this.#owner !== undefined;
    this.#end();
    if (code !== "https_required") await this.#options.forgetList();
    const loaded = code === "https_required" ? undefined : await loadSignIn();
    signInSection.hidden = false;
    if (loaded === undefined) {
      forms.hidden = true;
      const reason = code === "https_required" ? (detail ?? "It needs HTTPS.") : NOT_LOADED;
      signInNotice.textContent = `This list is private. ${reason}`;
      return;
    }
    this.#form = new loaded.SignInForm();
    if (this.#code !== undefined) await this.#form.showLink(this.#code);
    else this.#form.showForm(wasSignedIn ? "This browser was signed out." : "This list is private.");
  }

  async #showDevices(): Promise<void> {
    const loaded = await loadSignIn();
    if (loaded === undefined) return showToast(NOT_LOADED);
    this.#devices ??= new loaded.DevicesDialog(this.#options.sendChanges, () => this.#onSignedOut());
    await this.#devices.show();
  }

  /** This browser was signed out by its user, who also gave up the changes that were not sent. */
  async #onSignedOut(): Promise<void> {
    // First, because the page would announce that the changes were sent.
    this.#end();
    // Other windows react to this, and leave, too.
    writeSetting(OWNER);
    this.#options.forgetChanges();
    await this.#leave();
  }
}

const NOT_LOADED = "This part of the page cannot be loaded. Reload the page.";

/** Returns `undefined` without a connection, or if the service has a newer version. */
const loadSignIn = (): Promise<typeof import("./sign-in.ts") | undefined> =>
  import(BUILT_SIGN_IN).catch(() => undefined);

/** Returns the code in the address, and removes it there. The history of the browser keeps it, because the visit stays in it. */
function takeCode(): string | undefined {
  const code = LINK.exec(location.hash)?.[1];
  if (code !== undefined) history.replaceState(undefined, "", location.pathname + location.search);
  return code;
}
