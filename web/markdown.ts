import { createElement } from "./dom.ts";

/**
 * Renders the Markdown that the OpenAPI document uses: headings of level 2, paragraphs, lists with `-`, **strong** text,
 * `code` and links. Headings become level 3, because the page has its own headings.
 */
export function renderMarkdown(text: string): readonly HTMLElement[] {
  return text
    .split(/\n{2,}/)
    .map((block) => block.trim())
    .filter((block) => block !== "")
    .map(renderBlock);
}

function renderBlock(block: string): HTMLElement {
  if (block.startsWith("## ")) return createElement("h3", {}, ...renderInline(block.slice(3)));
  if (!block.startsWith("- ")) return createElement("p", {}, ...renderInline(block));
  const items = block.slice(2).split("\n- ");
  return createElement("ul", {}, ...items.map((item) => createElement("li", {}, ...renderInline(item))));
}

const INLINE = /\*\*(.+?)\*\*|`([^`]+)`|\[([^\]]+)\]\(([^)\s]+)\)/s;

function renderInline(text: string): (string | Node)[] {
  const found = INLINE.exec(text);
  if (found === null) return [text];
  const [match, strong, code, label, href] = found;
  const before = text.slice(0, found.index);
  const after = renderInline(text.slice(found.index + match.length));
  if (strong !== undefined) return [before, createElement("strong", {}, ...renderInline(strong)), ...after];
  if (code !== undefined) return [before, createElement("code", {}, code), ...after];
  return [before, createElement("a", { href: href ?? "" }, label ?? ""), ...after];
}
