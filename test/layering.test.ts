import { expect, test } from "bun:test";
import { existsSync, globSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { dependencies, devDependencies } from "../package.json" with { type: "json" };

const ROOT = fileURLToPath(new URL("..", import.meta.url));

/** Source text by path from the project's root. */
type Files = Readonly<Record<string, string>>;

/** Every room, and the rooms that it may import from; "." is the data beside package.json. */
const ARROWS: Readonly<Record<string, readonly string[]>> = {
  src: ["src"],
  "src/credential": ["src", "src/credential"],
  "src/storage": ["src", "src/credential", "src/storage"],
  "src/http": ["src", "src/credential", "src/http", "web/built", "."],
  "src/cli": ["src", "src/credential", "src/storage", "src/http", "src/cli", "."],
  conformance: ["conformance"],
  web: ["web", "src"],
};

/** The typed client, which others run without the rest: for the command line and the page, and alone. */
const SDK = "src/sdk.ts";
/** Of src/, the pages know only what every client of the service may. */
const OF_WEB = /^(?:web\/|src\/sdk\.ts$)/;

/** The files that may depend on Bun; the others run anywhere. */
const USE_BUN =
  /^(?:src\/(?:http\/(?:listen|accept-queue)|storage\/(?:sqlite|postgres)\/.*|credential\/password(?:-thread)?|cli\/.*)|web\/build)\.ts$/;
const USE_DATABASES = /^src\/storage\//;
const DATABASE = /^(?:bun:sqlite|node:sqlite|.*(?:sqlite3?|postgres|mysql2?|redis|mongodb)|pg)$/;
/** `Bun.SQL`, `Bun.sql`, or one of them from the module. */
const BUN_SQL = /\bBun\.sql\b|\bsql\b[^;]*\bfrom "bun"/i;

/** Tests import what they like; a store's contract is one that only is run from elsewhere. */
const isTest = (path: string): boolean => /\.test\.ts$/.test(path) || path === "src/storage/contract.ts";

/** All that breaks a rule: a line each, that starts with the file. Empty when the house stands. */
function complaints(files: Files): string[] {
  return [...Object.entries(files).flatMap(([path, source]) => ofFile(path, source)), ...cycles(files)];
}

function ofFile(path: string, source: string): string[] {
  const room = roomOf(path);
  const arrows = ARROWS[room];
  if (arrows === undefined) return [`${path}: ${room} is no room`];
  const found = importsOf(path, source);
  if (path === SDK && found.length > 0) return [`${path}: may not import anything`];
  const wrong = found.flatMap((target) => {
    if (target.startsWith("node:") && !DATABASE.test(target)) return [];
    if (!target.startsWith("./")) return ofPackage(path, target);
    if (isTest(path) && room !== "conformance") return [];
    if (target === `./${SDK}` && room !== "src/cli" && room !== "web")
      return [`${path}: may not import ${SDK}`];
    const targetRoom = roomOf(target.slice(2));
    const allowed = arrows.includes(targetRoom) && (room !== "web" || OF_WEB.test(target.slice(2)));
    return allowed && !isTest(target.slice(2)) ? [] : [`${path}: may not import ${target.slice(2)}`];
  });
  if (room === "conformance" || isTest(path)) return wrong;
  // Without comments, which may well name it.
  const code = new Bun.Transpiler({ loader: "ts" }).transformSync(source);
  if (!USE_BUN.test(path) && /\bBun\b/.test(code)) wrong.push(`${path}: may not use Bun`);
  if (!USE_DATABASES.test(path) && BUN_SQL.test(code)) wrong.push(`${path}: may not use a database`);
  return wrong;
}

function ofPackage(path: string, target: string): string[] {
  if (isTest(path)) return [];
  if (DATABASE.test(target) && !USE_DATABASES.test(path)) return [`${path}: may not use a database`];
  if (/^bun(?::|$)/.test(target)) {
    return USE_BUN.test(path) && target !== "bun:test" ? [] : [`${path}: may not import ${target}`];
  }
  const name = /^(?:@[^/]+\/)?[^/]+/.exec(target)?.[0] ?? target;
  if (name in dependencies) return [];
  return [`${path}: ${name} is ${name in devDependencies ? "only for development" : "no dependency"}`];
}

/** Folder below src/ or web/, one of those itself, or the folder at the top. */
function roomOf(path: string): string {
  const [top = "", next = "", ...rest] = path.split("/");
  if (next === "") return ".";
  return (top === "src" || top === "web") && rest.length > 0 ? `${top}/${next}` : top;
}

const IMPORT = /^(?:import|export)\b[^;"']*?\bfrom\s*"([^"]+)"|^import\s*"([^"]+)"|\bimport\(\s*"([^"]+)"/gm;

/** What a file imports, types included: packages by name, files as `./` and their path from the root. */
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
      found.push(`${path}: imports itself by ${[...above.slice(above.indexOf(path) + 1), path].join(", ")}`);
    }
    if (done.has(path)) return;
    done.add(path);
    for (const target of importsOf(path, files[path] ?? "")) {
      if (target.startsWith("./")) visit(target.slice(2), [...above, path]);
    }
  };
  for (const path of Object.keys(files)) if (path.startsWith("src/")) visit(path, []);
  return found;
}

test("layering holds in every file", () => {
  const folders = ["src", "conformance", "web"].filter((folder) => existsSync(join(ROOT, folder)));
  const paths = folders.flatMap((folder) => globSync(`${folder}/**/*.ts`, { cwd: ROOT }));
  const files = Object.fromEntries(paths.map((path) => [path, readFileSync(join(ROOT, path), "utf8")]));
  expect(paths.length).toBeGreaterThan(30);
  expect(complaints(files)).toEqual([]);
});

test.each<[what: string, path: string, source: string, complaint: string]>([
  ["a store in http", "src/http/a.ts", 'import "../storage/open.ts";', "may not import src/storage/open.ts"],
  [
    "a type",
    "src/storage/a.ts",
    'import type { Log } from "../http/log.ts";',
    "may not import src/http/log.ts",
  ],
  [
    "what goes on",
    "src/credential/a.ts",
    'export * from "../http/log.ts";',
    "may not import src/http/log.ts",
  ],
  ["a late import", "src/a.ts", 'const b = await import("./http/log.ts");', "may not import src/http/log.ts"],
  [
    "many lines",
    "src/http/a.ts",
    'import {\n  A,\n  B,\n} from "../cli/b.ts";',
    "may not import src/cli/b.ts",
  ],
  ["data in the root", "src/a.ts", 'import { name } from "../package.json";', "may not import package.json"],
  ["src in the kit", "conformance/cases/a.ts", 'import "../../src/todo.ts";', "may not import src/todo.ts"],
  [
    "src in the kit's tests",
    "conformance/a.test.ts",
    'import "../src/todo.ts";',
    "may not import src/todo.ts",
  ],
  ["more than the client in a page", "web/a.ts", 'import "../src/todo.ts";', "may not import src/todo.ts"],
  ["a page's source", "src/http/a.ts", 'import "../../web/todos.ts";', "may not import web/todos.ts"],
  ["a test", "src/http/a.ts", 'import "./b.test.ts";', "may not import src/http/b.test.ts"],
  ["a test's helper", "src/http/a.ts", 'import "../../test/log.ts";', "may not import test/log.ts"],
  ["the contract", "src/storage/a.ts", 'import "./contract.ts";', "may not import src/storage/contract.ts"],
  ["Bun", "src/http/a.ts", "const { serve } = Bun;", "may not use Bun"],
  ["Bun's module", "src/http/a.ts", 'import { serve } from "bun";', "may not import bun"],
  ["Bun's tests", "src/cli/a.ts", 'import { test } from "bun:test";', "may not import bun:test"],
  ["SQLite", "src/cli/a.ts", 'import { Database } from "bun:sqlite";', "may not use a database"],
  ["Node's SQLite", "src/http/a.ts", 'import { DatabaseSync } from "node:sqlite";', "may not use a database"],
  ["Bun's SQL", "src/cli/a.ts", "new Bun.SQL(url);", "may not use a database"],
  ["a package for development", "src/http/a.ts", 'import "ajv/dist/2020.js";', "ajv is only for development"],
  ["a package of nobody", "src/http/a.ts", 'import "@scope/it/deep.js";', "@scope/it is no dependency"],
  ["the client in http", "src/http/a.ts", 'import "../sdk.ts";', "may not import src/sdk.ts"],
  [
    "anything in the client",
    "src/sdk.ts",
    'import type { Todo } from "./todo.ts";',
    "may not import anything",
  ],
  ["utils", "src/utils/a.ts", "", "src/utils is no room"],
  ["services", "src/services/a.ts", "", "src/services is no room"],
])("layering refuses %s", (_what, path, source, complaint) => {
  expect(complaints({ [path]: source })).toEqual([`${path}: ${complaint}`]);
});

test("layering refuses a cycle", () => {
  const files = {
    "src/a.ts": 'import "./b.ts";',
    "src/b.ts": 'import type { C } from "./c.ts";',
    "src/c.ts": 'import "./b.ts";',
  };
  expect(complaints(files)).toEqual(["src/b.ts: imports itself by src/c.ts, src/b.ts"]);
});

test.each<[what: string, path: string, source: string]>([
  [
    "what is right",
    "src/cli/a.ts",
    'import "node:fs";\nimport "pino";\nimport "../storage/b.ts";\nimport "../sdk.ts";\nBun.serve({});',
  ],
  ["Bun in a comment", "src/http/a.ts", "/** As `Bun.serve` takes it. */\n// import Bun"],
  [
    "a test's own",
    "src/http/a.test.ts",
    'import "bun:test";\nimport "fast-check";\nimport "../storage/b.ts";',
  ],
])("layering allows %s", (_what, path, source) => {
  expect(complaints({ [path]: source })).toEqual([]);
});
