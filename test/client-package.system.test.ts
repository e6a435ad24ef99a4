/** The package todo-service-client, installed from its tarball into fresh projects, works with the running service. */
import { beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { realpathSync } from "node:fs";
import { mkdir, mkdtemp, readdir, readFile, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { gzipSync } from "node:zlib";
import { version } from "../package.json" with { type: "json" };
import { launchBrowser, serveFolder, whyNoBrowser } from "./chromium.ts";
import { remote, testClient } from "./client-suite.ts";
import { ROOT, runIn, succeed } from "./command.ts";
import { type InstalledPackages, installPackages } from "./npm-install.ts";
import { startService } from "./service.ts";
import { skipFor } from "./skip.ts";
import { temporaryFolder } from "./temporary.ts";

const NAME = "todo-service-client";
/** What an import of the client may add to a bundle, compressed with gzip at its default level. */
const MAX_GZIP_BYTES = 6.25 * 1024;
/** How much less a program carries that uses only `TodoApiCore`. */
const MIN_SAVED_GZIP_BYTES = 1000;
const LIMIT_MS = 300_000;
setDefaultTimeout(LIMIT_MS);

/** The kernel and processor, as packages with programs name them. */
const PLATFORM = `${process.platform}-${process.arch}`;
const NODE_22 = `node-${PLATFORM}@22.23.3`;
const NODE_26 = `node-${PLATFORM}@26.10.0`;
const DENO = `@deno/${PLATFORM}${process.platform === "linux" ? "-glibc" : ""}@2.9.6`;
const VITE = "vite@8.3.8";
const TYPESCRIPT_5_0 = "typescript@5.0.4";
const JEST = ["jest@30.5.2", "@babel/preset-env@7.29.14"] as const;
const ARE_THE_TYPES_WRONG = "@arethetypeswrong/cli@0.18.5";

const [node22, node26, deno, vite, typescript50, jest, attw] = await Promise.all([
  installPackages(NODE_22),
  installPackages(NODE_26),
  installPackages(DENO),
  installPackages(VITE),
  installPackages(TYPESCRIPT_5_0),
  installPackages(...JEST),
  installPackages(ARE_THE_TYPES_WRONG),
]);

const folder = realpathSync(temporaryFolder());
const tarball = join(folder, `${NAME}-${version}.tgz`);

beforeAll(async () => {
  await output(ROOT, process.execPath, "client/build.ts", join(folder, "built"));
  await output(join(folder, "built"), "npm", "pack", "--silent", "--pack-destination", folder);
}, LIMIT_MS);

const inPackages = ({ folder: installed }: InstalledPackages, path: string): string =>
  join(installed ?? "", "node_modules", path);

const output = (where: string, ...commandLine: readonly string[]): Promise<string> =>
  succeed(
    runIn(where, commandLine, {
      DO_NOT_TRACK: "1",
      DENO_NO_UPDATE_CHECK: "1",
      DENO_DIR: join(folder, "deno"),
    }),
  );

/** Makes a new project with these files, and installs the tarball. The package has no dependencies: no registry is asked. */
async function newProject(files: Readonly<Record<string, string>>): Promise<string> {
  const project = await mkdtemp(join(folder, "project-"));
  await writeFile(join(project, "package.json"), '{ "private": true, "type": "module" }');
  await output(project, "npm", "install", "--offline", "--no-audit", "--no-fund", tarball);
  for (const [name, text] of Object.entries(files)) {
    await mkdir(dirname(join(project, name)), { recursive: true });
    await writeFile(join(project, name), text);
  }
  return project;
}

/** A program that adds and lists a to-do. It prints `ADDED` for the service at the URL in its first argument. */
const PROGRAM = `
import { TodoApi, TodoApiError } from "${NAME}";
const api = new TodoApi({ baseUrl: process.argv[2] });
const added = await api.create("buy milk");
const listed = [];
for await (const { id, title, done } of api.todos()) listed.push(id === added.id, title, done);
const code = await api.get(BigInt(added.id) + 1n).catch((error) => error instanceof TodoApiError && error.code);
console.log(typeof added.id, ...listed, code);
`;
const ADDED = "string true buy milk false todo_not_found\n";

describe("the package", () => {
  test("contains only the client and its types", async () => {
    const files = (await output(folder, "tar", "-tzf", tarball)).trimEnd().split("\n");
    const types = files.filter((path) => /^package\/types\/.*\.d\.ts$/.test(path));
    expect(types).toContain("package/types/sdk/client.d.ts");
    expect(files.filter((path) => !types.includes(path)).toSorted()).toEqual(
      ["LICENSE", "README.md", "client.js", "package.json"].map((path) => `package/${path}`),
    );
  });

  test("has the version of the main package, no dependencies and no side effects", async () => {
    const project = await newProject({});
    const manifest: unknown = JSON.parse(
      await readFile(join(project, "node_modules", NAME, "package.json"), "utf8"),
    );
    expect(manifest).toMatchObject({
      name: NAME,
      version,
      license: "MIT",
      type: "module",
      sideEffects: false,
    });
    for (const member of ["dependencies", "peerDependencies", "optionalDependencies", "scripts", "private"])
      expect(manifest).not.toHaveProperty(member);
    expect((await readdir(join(project, "node_modules"))).toSorted()).toEqual([".package-lock.json", NAME]);
  });

  test("publint finds no problem", async () => {
    expect(await output(ROOT, "node_modules/.bin/publint", "--strict", tarball)).toContain("All good!");
  });

  test.skipIf(skipFor(attw.whyMissing))("has correct types for every resolution of ES modules", async () => {
    await output(folder, inPackages(attw, ".bin/attw"), "--profile", "esm-only", tarball);
  });

  test("its examples and its README import it by its package name", async () => {
    const project = await newProject({});
    const installed = join(project, "node_modules", NAME);
    const names = [...new Bun.Glob("**/*.{md,ts}").scanSync(installed)];
    const texts = await Promise.all(names.map((name) => readFile(join(installed, name), "utf8")));
    const imported = texts.flatMap((text) => [...text.matchAll(/import \{.*\} from "(todo-service.*)"/g)]);
    expect(new Set(imported.map(([, name]) => name))).toEqual(new Set([NAME]));
  });
});

describe("the installed package adds and lists a to-do", () => {
  const NODE = `node-${PLATFORM}/bin/node`;
  async function expectAdded(files: Readonly<Record<string, string>>, ...commandLine: readonly string[]) {
    const project = await newProject(files);
    await using service = startService();
    expect(await output(project, ...commandLine, service.url)).toBe(ADDED);
  }

  for (const [name, program, whyNot] of [
    ["the installed Node", "node", undefined],
    ["Bun", process.execPath, undefined],
    ["Node 22", inPackages(node22, NODE), node22.whyMissing],
    ["Node 26", inPackages(node26, NODE), node26.whyMissing],
  ] as const)
    test.skipIf(skipFor(whyNot))(`on ${name}`, () =>
      expectAdded({ "program.js": PROGRAM }, program, "program.js"),
    );

  test("on React Native, whose responses have no body property and which has no crypto", async () => {
    const program = `Reflect.deleteProperty(Response.prototype, "body");
      Reflect.deleteProperty(globalThis, "crypto");
      ${PROGRAM.replace(/import (.*) from (.*);/, "const $1 = await import($2);")}`;
    await expectAdded({ "program.js": program }, "node", "program.js");
  });

  test.skipIf(skipFor(typescript50.whyMissing ?? node22.whyMissing))(
    "in CommonJS, compiled by TypeScript 5.0 with the resolution node10",
    async () => {
      const imports = /import .*;/.exec(PROGRAM)?.[0] ?? "";
      const project = await newProject({
        "package.json": '{ "private": true }',
        // The compiler also checks all types of the package.
        "program.ts": `${imports}
        declare const process: { argv: string[] };
        async function main() { ${PROGRAM.replace(imports, "").replace("listed = []", "listed: unknown[] = []")} }
        // @ts-expect-error: the type is not any
        export const id = (): Promise<number> => new TodoApi().create("").then((todo) => todo.id);
        // @ts-expect-error: there is no such scope
        export const key = () => new TodoApi().keys.create("ci", { scope: "admin" });
        main();`,
      });
      const flags = ["--strict", "--target", "es2022", "--lib", "es2022,dom"];
      const how = ["--module", "commonjs", "--moduleResolution", "node10", "program.ts"];
      await output(project, inPackages(typescript50, ".bin/tsc"), ...flags, ...how);
      await using service = startService();
      expect(await output(project, inPackages(node22, NODE), "program.js", service.url)).toBe(ADDED);
    },
  );

  test.skipIf(skipFor(deno.whyMissing))("on Deno, which checks the types", async () => {
    const program = inPackages(deno, `${DENO.replace(/@[\d.]+$/, "")}/deno`);
    const files = { "program.ts": PROGRAM.replace("process.argv[2]", "Deno.args[0]") };
    const flags = ["--check", "--no-lock", "--cached-only", "--allow-net=127.0.0.1"];
    await expectAdded(files, program, "run", ...flags, "program.ts");
  });

  test.skipIf(skipFor(vite.whyMissing ?? whyNoBrowser))("in Chromium, bundled by Vite", async () => {
    const project = await newProject({ "index.html": PAGE, "main.js": PAGE_PROGRAM });
    await buildWithVite(project);
    await using service = startService({ network: { onLoopback: true } });
    await using site = serveFolder(join(project, "dist"));
    await using browser = await launchBrowser();
    const page = await browser.newPage();
    page.setDefaultTimeout(120_000);
    await page.goto(`${site.url}?${new URLSearchParams({ service: service.url })}`);
    const result = await page.waitForSelector("output", { state: "attached" });
    expect(await result.textContent()).toBe(ADDED);
  });
});

describe.skipIf(skipFor(node22.whyMissing))("the installed package", () => {
  const inNode = remote(async (call, args) => {
    const project = await newProject({
      "program.js": `import * as sdk from "${NAME}";
      import { ${call} } from "./sdk-suite.js";
      console.log(JSON.stringify(await ${call}(sdk, ...${JSON.stringify(args)})));`,
    });
    await Bun.build({ entrypoints: [join(ROOT, "test/sdk-suite.ts")], outdir: project, target: "browser" });
    return output(project, inPackages(node22, `node-${PLATFORM}/bin/node`), "program.js");
  });
  testClient("Node 22", inNode);
});

describe.skipIf(skipFor(jest.whyMissing))("Jest runs a test that imports the package", () => {
  const TEST = `import { TodoApi } from "${NAME}";
test("imports", () => expect(typeof new TodoApi().list).toBe("function"));`;
  const runJest = (project: string, ...settings: readonly string[]): Promise<string> =>
    output(project, "env", ...settings, "node", inPackages(jest, "jest/bin/jest.js"), "--no-cache");

  test("as an ES module", async () => {
    const config = { testMatch: ["**/*.test.mjs"], transform: {} };
    const project = await newProject({
      "main.test.mjs": TEST,
      "jest.config.json": JSON.stringify(config),
    });
    await runJest(project, "NODE_OPTIONS=--experimental-vm-modules");
  });

  test("that Babel compiles to CommonJS", async () => {
    const preset = [inPackages(jest, "@babel/preset-env"), { targets: { node: "current" } }];
    const project = await newProject({
      "package.json": '{ "private": true }',
      "main.test.js": TEST,
      "babel.config.json": JSON.stringify({ presets: [preset] }),
      "jest.config.json": JSON.stringify({ transformIgnorePatterns: [`/node_modules/(?!${NAME}/)`] }),
    });
    await runJest(project);
  });
});

const PAGE = '<!doctype html><meta charset="utf-8"><script type="module" src="/main.js"></script>';
const PAGE_PROGRAM = PROGRAM.replace("process.argv[2]", 'new URLSearchParams(location.search).get("service")')
  .replace("console.log(", "show(")
  .concat(`
function show(...values) {
  const output = document.createElement("output");
  output.textContent = values.join(" ") + "\\n";
  document.body.append(output);
}`);

async function buildWithVite(project: string): Promise<void> {
  await output(project, "node", inPackages(vite, "vite/bin/vite.js"), "build", "--logLevel", "error");
}

describe.skipIf(skipFor(vite.whyMissing))("a bundle by Vite", () => {
  async function bundled(program: string): Promise<string> {
    const project = await newProject({ "index.html": PAGE, "main.js": program });
    await buildWithVite(project);
    const names = [...new Bun.Glob("dist/**/*.js").scanSync(project)];
    expect(names).toHaveLength(1);
    return readFile(join(project, names.join()), "utf8");
  }

  test("grows by at most 6.25 KB compressed if the program uses the client, and by less if it uses only the core or nothing", async () => {
    const without = await bundled('console.log("x");');
    const unused = await bundled(`import { TodoApi } from "${NAME}"; console.log("x");`);
    const used = await bundled(`import { TodoApi } from "${NAME}"; console.log("x", new TodoApi());`);
    const core = await bundled(`import { TodoApiCore } from "${NAME}"; console.log("x", new TodoApiCore());`);
    expect(unused).toBe(without);
    const added = gzipSync(used).length - gzipSync(without).length;
    const saved = gzipSync(used).length - gzipSync(core).length;
    process.stderr.write(`the client adds ${added} bytes, the core ${saved} less, compressed with gzip\n`);
    expect(saved).toBeGreaterThan(MIN_SAVED_GZIP_BYTES);
    expect(added).toBeWithin(1000, MAX_GZIP_BYTES + 1);
  });
});
