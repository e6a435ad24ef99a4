import type { SignInLink } from "../../src/sdk/client.ts";
import { copyText } from "./clipboard.ts";
import { createElement } from "./dom.ts";

/** Returns a text with a button that copies it, and with other buttons. Calls `onCopied` each time it was copied. */
export function createCopyable(text: string, onCopied = () => {}, ...others: readonly Node[]): HTMLElement {
  const code = createElement("code", {}, text);
  code.addEventListener("copy", onCopied);
  const status = createElement("p", { className: "hint", role: "status" });
  const button = createElement("button", { type: "button", className: "primary" }, "Copy");
  button.onclick = async () => {
    const isCopied = await copyText(text);
    if (isCopied) onCopied();
    status.textContent = isCopied ? "Copied." : "The browser forbids copying. Select the text and copy it.";
  };
  const row = createElement("div", { className: "copyable" }, code, button, ...others);
  return createElement("div", {}, row, status);
}

/** Returns a link with its QR code, and with buttons that copy and share it. */
export function createLinkView({ link, qrCode: { size, path } }: SignInLink): HTMLElement {
  const box = `0 0 ${size} ${size}`;
  const image = createSvg("svg", {
    viewBox: box,
    class: "qr-code",
    role: "img",
    "aria-label": "QR code of the link",
  });
  image.append(createSvg("path", { d: path }));
  const copyable = createCopyable(link, undefined, ...createShareButton(link));
  return createElement("div", { className: "link-view" }, image, copyable);
}

function createShareButton(url: string): HTMLElement[] {
  // Desktop browsers and pages without HTTPS may have no share sheet.
  if (!("share" in navigator)) return [];
  const button = createElement("button", { type: "button", className: "secondary" }, "Share");
  button.onclick = () =>
    navigator.share({ url }).catch((error) => {
      // The person closed the share sheet.
      if (error.name !== "AbortError") throw error;
    });
  return [button];
}

function createSvg(tag: string, attributes: Readonly<Record<string, string>>): Element {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}
