/** Returns the navigation from docs/README.md: its headings are groups, and its lists are links. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { DefaultTheme } from "vitepress";

const text = readFileSync(new URL("../../docs/README.md", import.meta.url), "utf8");

const linksIn = (part: string): DefaultTheme.SidebarItem[] =>
  [...part.matchAll(/\[([^\]]+)\]\(([^)]+)\.md\)/g)].map(([, name = "", path = ""]) => ({
    text: name,
    link: join("/docs", path),
  }));

export const sidebar: DefaultTheme.SidebarItem[] = text
  .split(/^## /m)
  .slice(1)
  .map((part) => {
    const [heading = ""] = part.split("\n");
    return {
      text: heading,
      collapsed: !["Tutorials", "How-to guides"].includes(heading),
      items: linksIn(part),
    };
  });
