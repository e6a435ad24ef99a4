/** Returns the manual page todo(1), in roff, that has the text of the command reference, which is Markdown. */
export function toManualPage(markdown: string, version: string): string {
  const lines = [`.TH TODO 1 "" "todo-service ${version}"`, ".SH NAME", "todo \\- to\\-do list over HTTP"];
  let isCode = false;
  for (const line of markdown.split("\n").slice(1)) {
    // An item of a list: a flag or an argument, its variables and default, and its meaning.
    const [, tag, more = "", meaning = ""] = /^- (`[^`]*`)( \(.*?\))?: (.*)/.exec(line) ?? [];
    if (line.startsWith("```")) {
      isCode = !isCode;
      lines.push(isCode ? ".PP\n.nf" : ".fi");
    } else if (isCode) lines.push(escapeRoff(line));
    else if (line.startsWith("### ")) lines.push(`.SS "${inline(line.slice(4))}"`);
    else if (line.startsWith("## ")) lines.push(`.SH "${inline(line.slice(3)).toUpperCase()}"`);
    else if (tag !== undefined) lines.push(".TP", inline(tag), inline(meaning + more));
    else if (line === "") lines.push(".PP");
    else if (!line.startsWith("<!--")) lines.push(inline(line.replace(/^- /, "")));
  }
  return `${lines.join("\n")}\n`;
}

/** Returns a line with bold code and without the addresses of links. */
const inline = (text: string): string =>
  escapeRoff(text.replace(/\[([^\]]+)\]\([^)]*\)/g, "$1")).replace(/`([^`]*)`/g, "\\fB$1\\fP");

/** A line that begins with a period or an apostrophe would be a request. */
const escapeRoff = (text: string): string =>
  text
    .replaceAll("\\", "\\e")
    .replaceAll("-", "\\-")
    .replace(/^(?=[.'])/, "\\&");
