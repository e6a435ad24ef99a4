import { deviceLabel } from "../../src/device-name.ts";
import type { SignInLink } from "../../src/sdk/client.ts";
import { TodoApiError } from "../../src/sdk/client.ts";
import { readDeletion } from "../../src/sdk/exchange.ts";
import { isUnauthorized } from "../../src/sdk/retry.ts";
import { createLinkView } from "../view/copyable.ts";
import { createButton, createElement, onSubmit, requireElement, showFieldError } from "../view/dom.ts";
import { errorMessage, formatCount, formatTime } from "../view/messages.ts";
import { type Device, readSession, request, requestJson } from "./requests.ts";

const dialog = requireElement("#devices", HTMLDialogElement);
const deviceList = requireElement("#device-list", HTMLElement);
const deviceLink = requireElement("#device-link", HTMLElement);
const deviceLinkEnd = requireElement("#device-link-end", HTMLElement);
const errorElement = requireElement("#devices-error", HTMLElement);

const CHECK_MS = 5000;

/** Shows the browsers of the owner, renames them and signs them out, and makes links for others. */
export class DevicesDialog {
  readonly #sendChanges: () => Promise<number>;
  readonly #onSignedOut: () => Promise<void>;
  /** The session that the dialog shows, as JSON. */
  #shown = "";
  /** Asks about unsent changes. */
  readonly #question = createElement("p", { className: "field-error", role: "alert" });

  /** @param sendChanges sends what waits, while the connection works. Resolves to the number of changes that are left */
  constructor(sendChanges: () => Promise<number>, onSignedOut: () => Promise<void>) {
    this.#sendChanges = sendChanges;
    this.#onSignedOut = onSignedOut;
    errorElement.after(this.#question);
    requireElement("#add-device", HTMLButtonElement).onclick = () => this.#addDevice();
    addEventListener("focus", () => {
      if (dialog.open) this.#loadDevices();
    });
    // Another device may use the link while this window keeps the focus.
    setInterval(() => {
      if (dialog.open && deviceLink.hasChildNodes()) this.#loadDevices();
    }, CHECK_MS);
  }

  async show(): Promise<void> {
    this.#hideLink("");
    this.#question.textContent = "";
    if (!dialog.open) dialog.showModal();
    this.#shown = "";
    await this.#loadDevices();
  }

  async #loadDevices(): Promise<void> {
    await attempt(async () => {
      const session = await readSession();
      // An unchanged list keeps the focus of its buttons, and a new name that someone types stays.
      if (typeof session === "string" || JSON.stringify(session) === this.#shown) return;
      if (this.#shown !== "" && deviceList.querySelector("form") !== null) return;
      this.#shown = JSON.stringify(session);
      if (deviceLink.hasChildNodes() && session.devices.length > deviceList.children.length)
        this.#hideLink("The link was used.");
      const as = createElement("strong", { dir: "auto" }, session.name);
      const scope = session.scope === "read" ? ", who can read the list only." : ".";
      requireElement("#signed-in-as", HTMLElement).replaceChildren("Signed in as ", as, scope);
      deviceList.replaceChildren(
        ...session.devices.map((device) => this.#createItem(device, deviceLabel(session.name, device.name))),
      );
    });
  }

  #hideLink(reason: string): void {
    deviceLink.replaceChildren();
    deviceLinkEnd.textContent = reason;
  }

  /** @param name without the owner, who is the same for all */
  #createItem({ id, isCurrent, lastUsedAt }: Device, name: string): HTMLElement {
    const used = lastUsedAt === undefined ? "" : `Last used ${formatTime(new Date(lastUsedAt))}`;
    const details = createElement("small", {}, isCurrent ? "This browser" : used);
    const text = createElement("span", { dir: "auto" }, name, createElement("br"), details);
    const signOut = async (): Promise<void> => {
      if (isCurrent) return this.#signOut();
      await attempt(async () => {
        await deleteSession(`/api/session/devices/${id}`);
        await this.show();
      });
    };
    const item = createElement("li");
    const rename = (): void => this.#rename(item, id, name);
    const buttons = [
      createButton("Rename", rename, { className: "secondary", ariaLabel: `Rename ${name}` }),
      createButton("Sign out", signOut, {
        className: "secondary",
        ariaLabel: isCurrent ? "Sign out this browser" : `Sign out ${name}`,
      }),
    ];
    item.append(text, createElement("span", { className: "dialog-buttons" }, ...buttons));
    return item;
  }

  /** Shows a form in place of a device. */
  #rename(item: HTMLElement, id: string, name: string): void {
    const input = createElement("input", {
      id: "device-name",
      value: name,
      dir: "auto",
      ariaLabel: "Name of the device",
    });
    const error = createElement("p", { id: "device-name-error", className: "field-error", role: "alert" });
    const close = async (): Promise<void> => {
      item.replaceChildren();
      this.#shown = "";
      await this.#loadDevices();
    };
    const save = createElement("button", { type: "submit", className: "primary" }, "Save");
    const cancel = createButton("Cancel", close, { className: "secondary" });
    const buttons = createElement("span", { className: "dialog-buttons" }, cancel, save);
    const form = createElement("form", { noValidate: true }, input, error, buttons);
    onSubmit(form, () =>
      attempt(async () => {
        try {
          await requestJson("PATCH", `/api/session/devices/${id}`, { name: input.value.trim() });
          await close();
        } catch (cause) {
          const [violation] = cause instanceof TodoApiError ? cause.fields : [];
          if (violation === undefined) throw cause;
          showFieldError(input, `The name ${violation.message}.`);
        }
      }),
    );
    item.replaceChildren(form);
    input.select();
  }

  async #addDevice(): Promise<void> {
    await attempt(async () => {
      const created = await requestJson<SignInLink>("POST", "/api/session/links");
      const owner = requireElement("#signed-in-as strong", HTMLElement).cloneNode(true);
      const text =
        ". Scan or open it within ten minutes. It works once. Another person needs a key of their own.";
      const advice = createElement("p", {}, "This link signs in as ", owner, text);
      const view = createLinkView(created);
      deviceLink.replaceChildren(advice, view);
      deviceLinkEnd.textContent = "";
      view.scrollIntoView({ block: "nearest" });
    });
  }

  async #signOut(): Promise<void> {
    // The person closes the dialog, also to open it again, or the service has signed out the browser.
    const closed = new Promise<undefined>((resolve) => {
      dialog.addEventListener("close", () => resolve(undefined), { once: true });
    });
    const count = await Promise.race([this.#sendChanges(), closed]);
    if (count === undefined) return;
    if (count === 0) return this.#endSession();
    const [subject, object] =
      count === 1 ? ["1 change is", "it"] : [`${formatCount(count)} changes are`, "them"];
    const answer = createButton(`Sign out and delete ${object}`, () => this.#endSession(), {
      className: "secondary",
    });
    this.#question.replaceChildren(`${subject} not sent. `, answer);
  }

  async #endSession(): Promise<void> {
    await attempt(async () => {
      await deleteSession("/api/session").catch((error) => {
        if (!isUnauthorized(error)) throw error;
      });
      await this.#onSignedOut();
    });
  }
}

const deleteSession = (path: string): Promise<void> => request({ method: "DELETE", path }, {}, readDeletion);

/** Runs an action of the dialog. Shows an error there. */
async function attempt(action: () => Promise<void>): Promise<void> {
  errorElement.textContent = "";
  try {
    await action();
  } catch (error) {
    errorElement.textContent = errorMessage(error);
  }
}
