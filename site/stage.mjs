/**
 * Copies the project's Markdown and its pictures to pages/, because VitePress finds its modules from there only. Also writes a page
 * at each address in moved-pages.json, which leads to the new one.
 */
import { execFileSync } from "node:child_process";
import { cpSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("..", import.meta.url));
const pages = join(root, "site/pages");
const files = execFileSync(
  "git",
  ["ls-files", "-co", "--exclude-standard", "*.md", "docs/pictures/*", "docs/*.gif"],
  { cwd: root },
);

rmSync(pages, { recursive: true, force: true });
for (const file of files.toString().trimEnd().split("\n")) {
  // The README of the client's package has links that only its readers need.
  if (file.startsWith("client/") || file.startsWith("site/")) continue;
  cpSync(join(root, file), join(pages, file));
}
// The bundler needs half a minute for Mermaid, so browsers load its own bundle.
const mermaid = join(root, "site/node_modules/mermaid/dist");
for (const part of ["mermaid.esm.min.mjs", "chunks/mermaid.esm.min"])
  cpSync(join(mermaid, part), join(pages, "public/mermaid", part), {
    recursive: true,
    filter: (path) => !path.endsWith(".map"),
  });
cpSync(join(root, "site/index.md"), join(pages, "index.md"));
cpSync(join(root, "docs/pictures/phone.png"), join(pages, "public/phone.png"));
cpSync(join(root, "web/icon.svg"), join(pages, "public/icon.svg"));
cpSync(join(root, "site/openapi"), join(pages, "openapi"), { recursive: true });

const moved = JSON.parse(readFileSync(join(root, "site/moved-pages.json"), "utf8"));
for (const [from, to] of Object.entries(moved)) {
  const file = join(pages, "public", `${from}.html`);
  const target = relative(dirname(from), to);
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(
    file,
    `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>This page has moved</title>
<link rel="canonical" href="${target}">
<meta http-equiv="refresh" content="0; url=${target}">
<p><a href="${target}">This page has moved.</a></p>
</html>
`,
  );
}
