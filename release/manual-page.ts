/** Returns the manual page todo(1), in roff, that has the text of the command reference, which is Markdown. */
export function toManualPage(markdown: string, version: string): string {
  const lines = [`.TH TODO 1 "" "todo-service ${version}"`, ".SH NAME", "todo \\- to\\-do list over HTTP"];
  let isCode = false;
  let isTable = false;
  for (const line of markdown.split("\n").slice(1)) {
    const isRow = !isCode && line.startsWith("|");
    if (line.startsWith("```")) {
      isCode = !isCode;
      lines.push(isCode ? ".PP\n.nf" : ".fi");
    } else if (isCode) lines.push(escapeRoff(line));
    else if (line.startsWith("### ")) lines.push(`.SS "${inline(line.slice(4))}"`);
    else if (line.startsWith("## ")) lines.push(`.SH "${inline(line.slice(3)).toUpperCase()}"`);
    // The first two rows of a table are its head.
    else if (isRow && isTable && !/^\| ---/.test(line)) lines.push(...toEntry(line));
    else if (line === "") lines.push(".PP");
    else if (!isRow && !line.startsWith("<!--")) lines.push(inline(line));
    isTable = isRow;
  }
  return `${lines.join("\n")}\n`;
}

/** Returns the row of a table as a paragraph with a tag: the first cell, and the last one with the others behind it. */
function toEntry(row: string): string[] {
  const [first = "", ...rest] = row
    .split(/(?<!\\)\|/)
    .slice(1, -1)
    .map((cell) => cell.trim().replaceAll("\\|", "|"));
  const others = rest.slice(0, -1).filter((cell) => cell !== "none");
  const more = others.length > 0 ? ` (${others.join("; ")})` : "";
  return [".TP", inline(first), inline(`${rest.at(-1) ?? ""}${more}`)];
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
