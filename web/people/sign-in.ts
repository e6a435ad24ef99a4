import { readDeletion } from "../../src/sdk/exchange.ts";
import { isUnauthorized } from "../../src/sdk/retry.ts";
import { writeSetting } from "../settings.ts";
import { onSubmit, requireElement, showFieldError } from "../view/dom.ts";
import { errorMessage } from "../view/messages.ts";
import { LINK, OWNER, readSession, request, requestJson, type Session } from "./requests.ts";

export { DevicesDialog } from "./devices.ts";

const signInNotice = requireElement("#sign-in-notice", HTMLElement);
const forms = requireElement("#sign-in-forms", HTMLElement);
const secretInput = requireElement("#secret", HTMLInputElement);
const userInput = requireElement("#user", HTMLInputElement);
const passwordInput = requireElement("#password", HTMLInputElement);
const linkQuestion = requireElement("#link-question", HTMLFormElement);
const linkButton = requireElement("#link-submit", HTMLButtonElement);

/** Signs in with a link, a token, or a user and a password. The page loads again after a sign-in. */
export class SignInForm {
  /** The code of a link, about which the form asks. */
  #code: string | undefined;

  constructor() {
    onSubmit(requireElement("#secret-form", HTMLFormElement), () => this.#submitSecret());
    onSubmit(requireElement("#password-form", HTMLFormElement), () => this.#submitPassword());
    onSubmit(linkQuestion, () => this.#signIn({ code: this.#code }, secretInput));
    requireElement("#link-cancel", HTMLButtonElement).onclick = () => this.#cancelLink();
  }

  /** Whether the form asks about a link. */
  get isAsking(): boolean {
    return this.#code !== undefined;
  }

  showForm(notice: string): void {
    this.#code = undefined;
    signInNotice.textContent = notice;
    linkQuestion.hidden = true;
    forms.hidden = false;
    secretInput.focus();
  }

  /** Asks whether to sign in with a link. Another person may have sent it, so the service says whose it is. */
  async showLink(code: string): Promise<void> {
    try {
      const { name } = await requestJson<Session>("POST", "/api/session/link", { code });
      this.#code = code;
      requireElement("#link-owner", HTMLElement).textContent = name;
      linkButton.textContent = `Sign in as ${name}`;
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
    this.showForm("");
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
    else if (code !== undefined) await this.showLink(code);
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
      if ((await readSession()) === "nobody") return this.#showError(input, NO_SESSION);
      location.reload();
      // The button stays disabled until the page has gone.
      await new Promise(() => {});
    } catch (error) {
      const message = isUnauthorized(error) ? unauthorized : undefined;
      this.#showError(input, message ?? errorMessage(error));
    }
  }

  #showError(input: HTMLInputElement, message: string): void {
    this.showForm("");
    input.focus();
    showFieldError(input, message);
  }
}

const NO_SESSION =
  "This browser does not send the cookie of a sign-in. Allow cookies, or use HTTPS. If a proxy in front of the service has a login of its own, it must remove its Authorization header from the requests that it passes on.";
