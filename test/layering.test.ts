import { expect, test } from "bun:test";
import { existsSync, globSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { dependencies, devDependencies } from "../package.json" with { type: "json" };
import { ROOT } from "./command.ts";

/** Source text by path from the project's root. */
type Files = Readonly<Record<string, string>>;

const BELOW_SERVE = ["src", "src/credential", "src/storage", "src/http", "src/mcp", "src/config"];
/** Each layer, and the layers that it may import from; "." is the data beside package.json. */
const ALLOWED: Readonly<Record<string, readonly string[]>> = {
  src: ["src"],
  "src/sdk": ["src/sdk"],
  "src/credential": ["src", "src/credential"],
  "src/storage": ["src", "src/credential", "src/storage"],
  "src/http": ["src", "src/credential", "src/http", "web/built", "."],
  "src/mcp": ["src", "src/sdk", "src/mcp"],
  "src/config": ["src", "src/http", "src/storage", "src/config"],
  "src/serve": [...BELOW_SERVE, "src/serve", "."],
  "src/cli": [...BELOW_SERVE, "src/sdk", "src/serve", "src/cli", "."],
  conformance: ["conformance"],
  bench: ["bench", "test", "."],
  web: ["web", "web/model", "web/sync", "web/view", "web/people", "src", "src/sdk"],
  "web/model": ["web", "web/model", "src", "src/sdk"],
  "web/sync": ["web", "web/model", "web/sync", "src/sdk"],
  "web/view": ["web", "web/model", "web/sync", "web/view", "src", "src/sdk"],
  "web/people": ["web", "web/view", "web/people", "src", "src/sdk"],
};

/** The parts of src/http, outermost first. Each may import from its own part and from the parts after it. */
const HTTP_PARTS: readonly RegExp[] = [
  /^src\/http\/listener\//,
  /^src\/http\/service\.ts$/,
  /^src\/http\/(?:(?:context|middleware|route-table)\.ts$|handlers\/|auth\/)/,
  /^src\/http\/observability\//,
  /^src\/http\/policy\//,
  /^src\/http\/[\w-]+\.ts$/,
];

/** The one file outside its folder that the typed client may import: types only, so that its bundle stays small. */
const SHARED_WITH_SDK = "src/error.ts";
const TYPE_OF_SHARED = /^import type [^;]* from "\.\.\/error\.ts"/m;
/** The only files outside web/ that the pages may import: the typed client, the search, and the names of devices. */
const OF_WEB = /^(?:web\/|src\/(?:search|device-name|text)\.ts$|src\/sdk\/)/;
/** The program that builds the pages. It runs on Bun and renders openapi.json. */
const BUILDS_WEB = /^web\/build\.ts$/;

/** The files that may depend on Bun; the others run anywhere. */
const USE_BUN =
  /^(?:src\/(?:http\/listener\/listen|storage\/(?:sqlite|postgres)\/.*|credential\/password(?:\.worker)?|(?:cli|config|serve)\/.*)|web\/build)\.ts$/;
const USE_DATABASES = /^src\/storage\//;
const DATABASE = /^(?:bun:sqlite|node:sqlite|.*(?:sqlite3?|postgres|mysql2?|redis|mongodb)|pg)$/;
/** `Bun.SQL`, `Bun.sql`, or one of them from the module. */
const BUN_SQL = /\bBun\.sql\b|\bsql\b[^;]*\bfrom "bun"/i;

/** Tests may import anything. */
const isTest = (path: string): boolean => /\.test\.ts$/.test(path);

function violations(files: Files): string[] {
  return [...Object.entries(files).flatMap(([path, source]) => ofFile(path, source)), ...cycles(files)];
}

function ofFile(path: string, source: string): string[] {
  const layer = layerOf(path);
  const allowedLayers = ALLOWED[layer];
  if (allowedLayers === undefined) return [`${path}: ${layer} is not a layer`];
  const found = importsOf(path, source);
  const wrong = found.flatMap((target) => {
    if (target.startsWith("node:") && !DATABASE.test(target)) return [];
    if (!target.startsWith("./")) return ofPackage(path, target);
    if (isTest(path) && layer !== "conformance") return [];
    const targetLayer = layerOf(target.slice(2));
    if (layer === "src/sdk" && target === `./${SHARED_WITH_SDK}` && TYPE_OF_SHARED.test(source)) return [];
    if (BUILDS_WEB.test(path) && target === "./docs/openapi.ts") return [];
    const allowed =
      allowedLayers.includes(targetLayer) && (!layer.startsWith("web") || OF_WEB.test(target.slice(2)));
    const isOutward = path.startsWith("src/http/") && partOf(target.slice(2)) < partOf(path);
    return allowed && !isOutward && !isTest(target.slice(2))
      ? []
      : [`${path}: may not import ${target.slice(2)}`];
  });
  if (["conformance", "bench"].includes(layer) || isTest(path)) return wrong;
  // Comments may name Bun.
  const code = new Bun.Transpiler({ loader: "ts" }).transformSync(source);
  if (!USE_BUN.test(path) && /\bBun\b/.test(code)) wrong.push(`${path}: may not use Bun`);
  if (!USE_DATABASES.test(path) && BUN_SQL.test(code)) wrong.push(`${path}: may not use a database`);
  return wrong;
}

function ofPackage(path: string, target: string): string[] {
  // bench/ is a package of its own.
  if (isTest(path) || path.startsWith("bench/")) return [];
  if (DATABASE.test(target) && !USE_DATABASES.test(path)) return [`${path}: may not use a database`];
  if (/^bun(?::|$)/.test(target)) {
    return USE_BUN.test(path) && target !== "bun:test" ? [] : [`${path}: may not import ${target}`];
  }
  const name = /^(?:@[^/]+\/)?[^/]+/.exec(target)?.[0] ?? target;
  if (name in dependencies) return [];
  return [`${path}: ${name} is ${name in devDependencies ? "only for development" : "not a dependency"}`];
}

function partOf(path: string): number {
  const part = HTTP_PARTS.findIndex((pattern) => pattern.test(path));
  return part < 0 ? HTTP_PARTS.length : part;
}

/** Returns the folder below src/ or web/, one of those two, or another top folder. */
function layerOf(path: string): string {
  const [top = "", next = "", ...rest] = path.split("/");
  if (next === "") return ".";
  return (top === "src" || top === "web") && rest.length > 0 ? `${top}/${next}` : top;
}

const IMPORT = /^(?:import|export)\b[^;"']*?\bfrom\s*"([^"]+)"|^import\s*"([^"]+)"|\bimport\(\s*"([^"]+)"/gm;

/** Returns the imports of a file, types included: packages by name, files as `./` and their path from the root. */
function importsOf(path: string, source: string): string[] {
  return [...source.matchAll(IMPORT)].map(([, from, bare, dynamic]) => {
    const target = from ?? bare ?? dynamic ?? "";
    return target.startsWith(".") ? `./${join(dirname(path), target)}` : target;
  });
}

function cycles(files: Files): string[] {
  const done = new Set<string>();
  const found: string[] = [];
  const visit = (path: string, above: readonly string[]): void => {
    if (above.includes(path)) {
      found.push(
        `${path}: imports itself through ${[...above.slice(above.indexOf(path) + 1), path].join(", ")}`,
      );
    }
    if (done.has(path)) return;
    done.add(path);
    for (const target of importsOf(path, files[path] ?? "")) {
      if (target.startsWith("./")) visit(target.slice(2), [...above, path]);
    }
  };
  for (const path of Object.keys(files)) if (!isTest(path)) visit(path, []);
  return found;
}

test("every file imports only modules that its layer may import", () => {
  const folders = ["src", "conformance", "web", "bench"].filter((folder) => existsSync(join(ROOT, folder)));
  const paths = folders.flatMap((folder) => globSync(`${folder}/**/*.ts`, { cwd: ROOT }));
  const files = Object.fromEntries(paths.map((path) => [path, readFileSync(join(ROOT, path), "utf8")]));
  expect(paths.length).toBeGreaterThan(30);
  expect(violations(files)).toEqual([]);
});

/** A file, what it contains, and the complaint about it. */
const REJECTED = String.raw`
src/http/a.ts | import "../storage/open.ts"; | may not import src/storage/open.ts
src/credential/a.ts | export * from "../http/log.ts"; | may not import src/http/log.ts
src/a.ts | const b = await import("./http/log.ts"); | may not import src/http/log.ts
src/http/a.ts | import {\n  A,\n  B,\n} from "../cli/b.ts"; | may not import src/cli/b.ts
conformance/cases/a.ts | import "../../src/todo.ts"; | may not import src/todo.ts
conformance/a.test.ts | import "../src/todo.ts"; | may not import src/todo.ts
web/a.ts | import "../src/todo.ts"; | may not import src/todo.ts
src/http/policy/a.ts | import "../handlers/b.ts"; | may not import src/http/handlers/b.ts
src/http/service.ts | import "./listener/b.ts"; | may not import src/http/listener/b.ts
src/http/a.ts | import "./b.test.ts"; | may not import src/http/b.test.ts
src/http/a.ts | const { serve } = Bun; | may not use Bun
src/http/a.ts | import { serve } from "bun"; | may not import bun
src/cli/a.ts | import { test } from "bun:test"; | may not import bun:test
src/cli/a.ts | import { Database } from "bun:sqlite"; | may not use a database
src/http/a.ts | import { DatabaseSync } from "node:sqlite"; | may not use a database
src/cli/a.ts | new Bun.SQL(url); | may not use a database
src/http/a.ts | import "ajv/dist/2020.js"; | ajv is only for development
src/http/a.ts | import "@scope/it/deep.js"; | @scope/it is not a dependency
src/sdk/a.ts | import type { Todo } from "../todo.ts"; | may not import src/todo.ts
src/sdk/a.ts | import { ERRORS } from "../error.ts"; | may not import src/error.ts
src/utils/a.ts |  | src/utils is not a layer
`;
const ALLOWED_FILES = String.raw`
src/cli/a.ts | import "node:fs";\nimport "commander";\nimport "../storage/b.ts";\nimport "../sdk/client.ts";\nBun.serve({});
src/http/a.ts | /** As Bun.serve takes it. */\n// import Bun
src/http/a.test.ts | import "bun:test";\nimport "fast-check";\nimport "../storage/b.ts";
`;

const rows = (table: string): string[][] =>
  table
    .trim()
    .split("\n")
    .map((row) => row.split(" | ").map((cell) => cell.trim().replaceAll("\\n", "\n")));

test.each(rows(REJECTED))("layering rejects in %s: %s", (path = "", source = "", complaint = "") => {
  expect(violations({ [path]: source })).toEqual([`${path}: ${complaint}`]);
});

test.each(rows(ALLOWED_FILES))("layering allows in %s: %s", (path = "", source = "") => {
  expect(violations({ [path]: source })).toEqual([]);
});

test("layering rejects a cycle", () => {
  const files = {
    "src/a.ts": 'import "./b.ts";',
    "src/b.ts": 'import type { C } from "./c.ts";',
    "src/c.ts": 'import "./b.ts";',
  };
  expect(violations(files)).toEqual(["src/b.ts: imports itself through src/c.ts, src/b.ts"]);
});
