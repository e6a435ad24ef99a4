/** The documentation site: every Markdown file of the project at its own path, and site/index.md as the home page. */
import { existsSync, readFileSync, statSync } from "node:fs";
import { dirname, join, normalize, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { type DefaultTheme, defineConfig, type MarkdownOptions } from "vitepress";
import { slugOf } from "../../docs/slug.ts";
import main from "../../package.json" with { type: "json" };
import { sidebar } from "./sidebar.ts";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
const PAGES = join(ROOT, "site/pages");
const { homepage, repository, version } = main;
const SOURCE = repository.url.replace(/^git\+|\.git$/g, "");
/** The path of the site on its host, with a slash at its end. */
const BASE = new URL(homepage).pathname.replace(/\/?$/, "/");

type MarkdownIt = Parameters<NonNullable<MarkdownOptions["config"]>>[0];

/** Returns the size of a picture, so that the text below it keeps its place while it loads. */
function sizeOf(path: string): readonly [width: number, height: number] {
  const header = readFileSync(path).subarray(0, 100);
  const [, width, height] = /viewBox="0 0 (\d+) (\d+)"/.exec(header.toString("latin1")) ?? [];
  if (path.endsWith(".svg")) return [Number(width), Number(height)];
  return path.endsWith(".gif")
    ? [header.readUInt16LE(6), header.readUInt16LE(8)]
    : [header.readUInt32BE(16), header.readUInt32BE(20)];
}

/** Makes links to files that are not pages lead to the repository, and draws Mermaid diagrams. */
function configureMarkdown(markdown: MarkdownIt): void {
  const { link_open: openLink, fence, image } = markdown.renderer.rules;
  markdown.renderer.rules.link_open = (tokens, index, options, env, self) => {
    const token = tokens[index];
    const href = token?.attrGet("href") ?? "";
    const [path = ""] = href.split("#");
    if (path !== "" && !path.endsWith(".md") && !/^(?:\w+:|\/)/.test(path)) {
      const target = normalize(join(dirname(relative(PAGES, env.realPath ?? env.path)), path));
      if (!existsSync(join(ROOT, target))) throw new Error(`${env.path}: ${href} does not exist`);
      const kind = statSync(join(ROOT, target)).isDirectory() ? "tree" : "blob";
      token?.attrSet("href", `${SOURCE}/${kind}/main/${target}`);
    }
    return openLink?.(tokens, index, options, env, self) ?? self.renderToken(tokens, index, options);
  };
  markdown.renderer.rules.image = (tokens, index, options, env, self) => {
    const token = tokens[index];
    const [width, height] = sizeOf(join(dirname(env.realPath ?? env.path), token?.attrGet("src") ?? ""));
    token?.attrSet("width", String(width));
    token?.attrSet("height", String(height));
    return image?.(tokens, index, options, env, self) ?? "";
  };
  markdown.renderer.rules.fence = (tokens, index, options, env, self) => {
    const { info = "", content = "" } = tokens[index] ?? {};
    if (info.trim() === "mermaid") return `<Mermaid source="${encodeURIComponent(content)}" />`;
    return fence?.(tokens, index, options, env, self) ?? "";
  };
}

const nav: DefaultTheme.NavItem[] = [
  { text: "Learn", link: "/docs/tutorials/first-steps" },
  { text: "API", link: "/openapi/api" },
  { text: version, link: "/CHANGELOG" },
];

export default defineConfig({
  title: "todo-service",
  description: "A to-do backend in one command: an HTTP API, live events and a web page.",
  lang: "en",
  base: BASE,
  srcDir: "pages",
  outDir: "dist",
  cacheDir: "node_modules/.cache",
  cleanUrls: true,
  head: [["link", { rel: "icon", type: "image/svg+xml", href: `${BASE}icon.svg` }]],
  markdown: {
    anchor: { slugify: slugOf },
    config: configureMarkdown,
    image: { lazyLoading: true },
    theme: { light: "github-light-high-contrast", dark: "github-dark" },
  },
  ignoreDeadLinks: "localhostLinks",
  sitemap: { hostname: homepage },
  themeConfig: {
    nav,
    sidebar,
    outline: [2, 3],
    search: { provider: "local" },
    socialLinks: [{ icon: "github", link: SOURCE, ariaLabel: "Source" }],
    editLink: { pattern: `${SOURCE}/edit/main/:path`, text: "Edit this page" },
  },
});
