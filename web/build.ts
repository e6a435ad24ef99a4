/**
 * Builds web/built/ from web/: the pages and their assets in pages.json, minified, with a hash of the content in each asset's name,
 * and the pages of errors in error-pages.json.
 * The output is in git, so that the service starts without a build. With --check, writes nothing, and fails if it is out of date.
 */
import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import { basename } from "node:path";
import { fileURLToPath } from "node:url";
import { type OpenApiDocument, renderOpenApi } from "../docs/openapi.ts";

const WEB = fileURLToPath(new URL(".", import.meta.url));
const BUILT = `${WEB}built/`;

const ASSETS = [
  "icon.svg",
  "page.css",
  "keys.css",
  "docs.css",
  "error.css",
  "people/sign-in.ts",
  "todos.ts",
  "docs.ts",
  "people/keys.ts",
] as const;

/** Icons of the installed list, drawn from icon.svg. The maskable icon keeps its mark inside the safe zone. */
const ICONS = ["icon-192.png", "icon-512.png", "icon-maskable-512.png", "apple-touch-icon.png"] as const;

/** Returns the text of each file in web/built. */
async function build(): Promise<Readonly<Record<string, string>>> {
  const assets: Record<string, object> = {};
  const pathByName = new Map<string, string>();
  const add = (name: string, content: string | Uint8Array, stored: object): void => {
    const path = hashedName(basename(name), content);
    pathByName.set(basename(name), path);
    // The service sends its other media types with this space, too.
    assets[path] = { type: Bun.file(path).type.replace(";", "; "), ...stored };
  };

  for (const name of ASSETS) {
    const define = { BUILT_SIGN_IN: JSON.stringify(`/assets/${pathByName.get("sign-in.ts")}`) };
    const isImage = name.endsWith(".svg");
    const text = isImage ? (await readFile(WEB + name, "utf8")).trim() : await buildScript(name, define);
    add(name, text, { text });
  }
  for (const name of ICONS) {
    const bytes = await readFile(`${WEB}icons/${name}`);
    add(name, bytes, { base64: bytes.toString("base64") });
  }
  const page = (name: string): Promise<string> => buildPage(name, pathByName);
  const manifest = await page("manifest.webmanifest");
  add("manifest.webmanifest", manifest, { text: manifest });
  // icon.svg, drawn at 32 by 32 pixels.
  const favicon = (await readFile(`${WEB}favicon.ico`)).toString("base64");
  const [todos, docs, keys] = [await page("todos.html"), await page("docs.html"), await page("keys.html")];
  const reference = await renderReference();
  const pages = { todos, docs: docs.replace("</main>", () => `${reference}</main>`), keys };
  const errorPages = {
    notFound: await page("not-found.html"),
    unauthorized: await page("unauthorized.html"),
    httpsRequired: await page("https-required.html"),
    misdirected: await page("misdirected.html"),
  };
  const serviceWorker = await buildScript("sync/service-worker.ts", {
    BUILT_ASSETS: JSON.stringify([...new Set(todos.match(/\/assets\/[\w-]+\.(?:svg|css|js)/g))]),
    BUILT_VERSION: JSON.stringify(getHash(todos)),
  });
  const encode = (value: object): string => `${JSON.stringify(value, undefined, 2)}\n`;
  return {
    "pages.json": encode({ pages, assets, serviceWorker, favicon }),
    "error-pages.json": encode(errorPages),
  };
}

/** Bundles and minifies a script or style sheet. @param define expressions that replace names */
async function buildScript(name: string, define: Record<string, string> = {}): Promise<string> {
  const { outputs } = await Bun.build({
    ...{ entrypoints: [WEB + name], target: "browser", format: "esm", minify: true, define },
    external: ["/assets/*"],
  });
  const [output] = outputs;
  if (output === undefined) throw new Error(`the build of ${name} has no output`);
  return (await output.text()).trim();
}

/** Builds a page or the manifest: with its header, without comments and indentation, and with the paths of assets. */
async function buildPage(name: string, pathByName: ReadonlyMap<string, string>): Promise<string> {
  const html = await readFile(WEB + name, "utf8");
  const header = await readFile(`${WEB}header.html`, "utf8");
  return html
    .replace(/<!-- header ?(\S*) -->/, (_, current) =>
      header.replace(`<a href="${current}">`, `<a href="${current}" aria-current="page">`),
    )
    .replace(/<!--.*?-->/gs, "")
    .replace(/\n\s*/g, "\n")
    .replace(
      /(href|src"?)(=|: )"([\w-]+\.(?:svg|css|ts|js|png|webmanifest))"/g,
      (_, attribute, separator, asset) => {
        const path = pathByName.get(asset);
        if (path === undefined) throw new Error(`${name} refers to the unknown asset ${asset}`);
        return `${attribute}${separator}"/assets/${path}"`;
      },
    );
}

/** Returns openapi.json as HTML. Its headings have the ids that the Markdown names. */
async function renderReference(): Promise<string> {
  const openapi: OpenApiDocument = JSON.parse(await readFile(`${WEB}../openapi.json`, "utf8"));
  return Bun.markdown.html(renderOpenApi(openapi)).replace(/<(h\d)>(.*) \{#(\w+)\}/g, '<$1 id="$3">$2');
}

function hashedName(name: string, content: string | Uint8Array): string {
  const hash = getHash(content);
  return name.replace(/\.(\w+)$/, (_, extension) => `-${hash}.${extension === "ts" ? "js" : extension}`);
}

const getHash = (content: string | Uint8Array): string =>
  createHash("sha256").update(content).digest("hex").slice(0, 12);

const built = await build();
for (const [name, text] of Object.entries(built))
  if (!process.argv.includes("--check")) await Bun.write(BUILT + name, text);
  else if ((await readFile(BUILT + name, "utf8").catch(() => "")) !== text) {
    process.stderr.write("web/built is out of date: run npm run build:web\n");
    process.exitCode = 1;
  }
