import { afterAll, expect, test } from "bun:test";
import { globSync, readFileSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import packageJson from "../package.json" with { type: "json" };
import { createKeyLookup } from "../src/credential/key.ts";
import { createFixedUserCheck } from "../src/credential/user.ts";
import { TodoApi, TodoApiCore } from "../src/sdk/client.ts";
import { openMemory } from "../src/storage/memory/store.ts";
import { ROOT, run } from "./command.ts";
import { type Page, readPage, readPages } from "./docs.ts";
import { startService } from "./service.ts";

// Below the project's root, so that the compiler finds its types.
const folder = await mkdtemp(join(ROOT, "node_modules/.examples-"));
afterAll(() => rm(folder, { recursive: true }));

interface Example {
  readonly file: string;
  readonly code: string;
}

/** Returns the code of every `@example` in the comments of src/. */
function examples(): readonly Example[] {
  return globSync("src/**/*.ts", { cwd: ROOT }).flatMap((file) =>
    [...readFileSync(join(ROOT, file), "utf8").matchAll(/@example\n[ *]*```ts\n(.*?)```/gs)].map(
      ([, block = ""]) => ({ file, code: block.replace(/^ *\* ?/gm, "") }),
    ),
  );
}

const CLIENT_PAGES = ["client/README.md", "docs/reference/client.md"];
const CLIENT_PACKAGE = "todo-service-client";
const CLIENT_SOURCE = join(ROOT, "src/sdk/client.ts");

const clientExamples = (): readonly Example[] => typescriptOf(CLIENT_PAGES.map(readPage));

const pageExamples = (): readonly Example[] =>
  // test/web-app.system.test.ts checks those that import packages from the registry.
  typescriptOf(readPages().filter(({ path }) => !CLIENT_PAGES.includes(path))).filter(
    ({ code }) => !/ from "vite/.test(code),
  );

const typescriptOf = (pages: readonly Page[]): readonly Example[] =>
  pages.flatMap(({ path, blocks }) =>
    blocks.flatMap(({ language, text }) => (language === "ts" ? [{ file: path, code: text }] : [])),
  );

function sources(): Readonly<Record<string, readonly string[]>> {
  return Object.fromEntries(
    Object.entries(packageJson.exports).map(([path, targets]) => [
      path.replace(".", packageJson.name),
      [join(ROOT, targets.bun)],
    ]),
  );
}

test("every @example and the TypeScript of all pages compile", async () => {
  const found = [...examples(), ...clientExamples(), ...pageExamples()];
  expect(found.length).toBeGreaterThan(3);
  for (const [index, { file, code }] of found.entries()) {
    await writeFile(join(folder, `compiled-${index}.ts`), `// ${file}\n${code}\nexport {};\n`);
  }
  const paths = { ...sources(), [CLIENT_PACKAGE]: [CLIENT_SOURCE] };
  const compilerOptions = { paths, noUnusedLocals: false };
  const include = ["compiled-*.ts", join(ROOT, "src/**/*.d.ts")];
  const tsconfig = { extends: join(ROOT, "tsconfig.json"), compilerOptions, include, exclude: [] };
  await writeFile(join(folder, "tsconfig.json"), JSON.stringify(tsconfig));
  await using tsc = run(["node_modules/.bin/tsc", "--noEmit", "-p", folder]);
  await tsc.exited;
  expect(tsc.stdout() + tsc.stderr()).toBe("");
});

test("the examples of the client run, and print what their comments show", async () => {
  const store = openMemory();
  await using service = startService({
    store,
    credentials: {
      keys: store.keys,
      lookupClient: createKeyLookup(store.keys, Date.now),
      checkUser: createFixedUserCheck("admin", "correct horse"),
    },
    network: { onLoopback: true },
  });
  const found = clientExamples();
  expect(found.length).toBeGreaterThan(6);
  for (const [index, { file, code }] of found.entries()) {
    const program = join(folder, `run-${index}.ts`);
    const addressed = code
      .replaceAll(`"${CLIENT_PACKAGE}"`, JSON.stringify(CLIENT_SOURCE))
      .replaceAll("http://127.0.0.1:3000", service.url)
      .replaceAll("new TodoApi()", "new TodoApi({})")
      .replaceAll("new TodoApi({", `new TodoApi({ baseUrl: "${service.url}", `);
    await writeFile(program, addressed);
    await using command = run([process.execPath, "--no-env-file", program]);
    expect([file, await command.exited, command.stderr()]).toEqual([file, 0, ""]);
    const shown = [...code.matchAll(/console\.log\(.*\/\/ (.*)$/gm)].map(([, text = ""]) => text);
    const withoutIds = (text: string): string => text.replace(/"id":"\d+"/g, '"id":"…"');
    for (const text of shown) expect(withoutIds(command.stdout())).toContain(withoutIds(text));
  }
});

test("the client's reference lists every method of the client", () => {
  const reference = readFileSync(join(ROOT, "docs/reference/client.md"), "utf8");
  const listed = [...reference.matchAll(/^\| `([\w.]+)\(.*?\)` \|/gm)].map(([, name]) => name);
  const keys = Object.keys(new TodoApi().keys).map((name) => `keys.${name}`);
  const methods = [TodoApi, TodoApiCore].flatMap(({ prototype }) => Object.getOwnPropertyNames(prototype));
  const names = [...methods.filter((name) => name !== "constructor"), ...keys];
  expect(listed.toSorted()).toEqual(names.toSorted());
});
