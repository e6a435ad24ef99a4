/**
 * Builds web/built/ from web/: the pages, and what they name, minified and under names that change with their
 * content. What comes out is in git, so that nothing needs to be built to start; web/build.test.ts holds it fresh.
 */
import { createHash } from "node:crypto";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { brotliCompressSync, constants } from "node:zlib";

const WEB = fileURLToPath(new URL(".", import.meta.url));
const BUILT = `${WEB}built/`;
const SWAGGER_UI = fileURLToPath(new URL("../node_modules/swagger-ui-dist/", import.meta.url));

/** What the pages are made of: the name by which their HTML asks for it, its type, and where it comes from. */
const PARTS = [
  { name: "icon.svg", type: "image/svg+xml" },
  { name: "page.css", type: "text/css; charset=utf-8" },
  { name: "docs.css", type: "text/css; charset=utf-8" },
  { name: "todos.ts", type: "text/javascript; charset=utf-8" },
  { name: "keys.ts", type: "text/javascript; charset=utf-8" },
  { name: "docs.ts", type: "text/javascript; charset=utf-8" },
] as const;

/** What is taken as it comes, and kept compressed. */
const RENDERER = [
  { name: "swagger-ui.js", from: "swagger-ui-bundle.js", type: "text/javascript; charset=utf-8" },
  { name: "swagger-ui.css", from: "swagger-ui.css", type: "text/css; charset=utf-8" },
] as const;

const PAGES = ["todos", "keys", "docs"] as const;

/** The files of web/built/ as they should be, by name. */
export async function build(): Promise<ReadonlyMap<string, Uint8Array>> {
  const files = new Map<string, Uint8Array>();
  const assets: Record<string, { type: string; text?: string; file?: string }> = {};
  const served = new Map<string, string>();

  for (const { name, type } of PARTS) {
    const text = await partOf(name);
    const path = hashedName(name, text);
    served.set(name, path);
    assets[path] = { type, text };
  }
  for (const { name, from, type } of RENDERER) {
    const bytes = await readFile(SWAGGER_UI + from);
    const path = hashedName(name, bytes);
    served.set(name, path);
    assets[path] = { type, file: name };
    files.set(`${name}.br`, compressed(bytes));
  }
  const pages: Record<string, string> = {};
  for (const page of PAGES) pages[page] = await pageOf(`${page}.html`, served);

  files.set("pages.json", Buffer.from(`${JSON.stringify({ pages, assets }, undefined, 2)}\n`));
  const licence = await Promise.all(["LICENSE", "NOTICE"].map((name) => readFile(SWAGGER_UI + name, "utf8")));
  files.set("swagger-ui.LICENSE.txt", Buffer.from(licence.join("\n")));
  return files;
}

/** Bundles and minifies scripts and style sheets; takes an icon as it is. */
async function partOf(name: string): Promise<string> {
  if (name.endsWith(".svg")) return (await readFile(WEB + name, "utf8")).trim();
  const { outputs } = await Bun.build({ entrypoints: [WEB + name], target: "browser", minify: true });
  const [output] = outputs;
  if (output === undefined) throw new Error(`${name} came to nothing`);
  return (await output.text()).trim();
}

/** A page without the blanks between its lines, naming its parts as they are served. */
async function pageOf(name: string, served: ReadonlyMap<string, string>): Promise<string> {
  const html = await readFile(WEB + name, "utf8");
  return html
    .replace(/\n\s*/g, "\n")
    .replace(/(href|src)="([\w-]+\.(?:svg|css|ts|js))"/g, (_, attribute, part) => {
      const path = served.get(part);
      if (path === undefined) throw new Error(`${name} asks for ${part}, which is no part`);
      return `${attribute}="/assets/${path}"`;
    });
}

function hashedName(name: string, content: string | Uint8Array): string {
  const hash = createHash("sha256").update(content).digest("hex").slice(0, 12);
  return name.replace(/\.(\w+)$/, (_, extension) => `-${hash}.${extension === "ts" ? "js" : extension}`);
}

function compressed(bytes: Uint8Array): Uint8Array {
  return brotliCompressSync(bytes, {
    params: { [constants.BROTLI_PARAM_SIZE_HINT]: bytes.length, [constants.BROTLI_PARAM_LGWIN]: 22 },
  });
}

if (import.meta.main) {
  await mkdir(BUILT, { recursive: true });
  for (const [name, bytes] of await build()) await writeFile(BUILT + name, bytes);
}
