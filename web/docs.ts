import { copyText } from "./view/clipboard.ts";
import { createElement } from "./view/dom.ts";

/** Puts the address of this server into each command, and a button beside it that copies the command. */
for (const command of document.querySelectorAll(".language-sh")) {
  const text = command.textContent.replace("http://127.0.0.1:3000", location.origin);
  command.textContent = text;
  const copy = createElement("button", { type: "button", className: "copy", textContent: "Copy" });
  copy.addEventListener("click", async () => {
    copy.textContent = (await copyText(text.trimEnd())) ? "Copied" : "Select the text to copy it";
  });
  command.parentElement?.after(copy);
}
