/** Code that generators make from openapi.json compiles, and works with the running service. */
import { expect, test } from "bun:test";
import { copyFile } from "node:fs/promises";
import { join } from "node:path";
import { ROOT, runIn, succeed } from "./command.ts";
import { installPackages } from "./npm-install.ts";
import { startService } from "./service.ts";
import { skipFor } from "./skip.ts";

/** The latest versions that run on the Node of the gate. */
const PACKAGES = [
  "openapi-typescript@7.13.0",
  "openapi-fetch@0.17.0",
  "@hey-api/openapi-ts@0.90.0",
  "typescript@5.9.3",
];
const COMPILER_OPTIONS = {
  ...{
    target: "ES2022",
    lib: ["ES2022", "DOM", "DOM.Iterable"],
    types: [],
    strict: true,
    skipLibCheck: true,
  },
  ...{ module: "ESNext", moduleResolution: "Bundler", allowImportingTsExtensions: true, noEmit: true },
};

interface Generator {
  readonly command: readonly string[];
  /** A program that creates a to-do, marks it done, and prints its title and its state. `base` is the service's URL. */
  readonly program: string;
}

const GENERATORS: Readonly<Record<string, Generator>> = {
  "openapi-typescript": {
    command: ["openapi-typescript", "openapi.json", "-o", "openapi-typescript/schema.ts"],
    program: `
      import createClient from "openapi-fetch";
      import type { paths } from "./openapi-typescript/schema.ts";
      const client = createClient<paths>({ baseUrl: base });
      const created = await client.POST("/api/todos", { body: { title: "made" } });
      if (created.data === undefined) throw new Error(JSON.stringify(created.error));
      const params = { path: { id: created.data.id } };
      await client.PATCH("/api/todos/{id}", { params, body: { done: true } });
      const { data, error } = await client.GET("/api/todos/{id}", { params });
      if (data === undefined) throw new Error(error.title);
      print(data.title, data.done);`,
  },
  "hey-api": {
    command: ["openapi-ts", "-i", "openapi.json", "-o", "hey-api", "-c", "@hey-api/client-fetch"],
    program: `
      import { client } from "./hey-api/client.gen.ts";
      import { createTodo, getTodo, updateTodo } from "./hey-api/sdk.gen.ts";
      client.setConfig({ baseUrl: base as "http://localhost:3000" });
      const created = await createTodo({ body: { title: "made" }, throwOnError: true });
      const path = { id: created.data.id };
      await updateTodo({ path, body: { done: true }, throwOnError: true });
      const { data } = await getTodo({ path, throwOnError: true });
      print(data.title, data.done);`,
  },
};

const packages = await installPackages(...PACKAGES);
const folder = packages.folder ?? "";
if (packages.folder !== undefined) {
  await copyFile(join(ROOT, "openapi.json"), join(folder, "openapi.json"));
}

const output = (...commandLine: readonly string[]): Promise<string> =>
  succeed(runIn(folder, commandLine, { DO_NOT_TRACK: "1" }));

test.skipIf(skipFor(packages.whyMissing)).each(Object.entries(GENERATORS))(
  "%s generates code that compiles and works",
  async (name, { command: [binary = "", ...args], program }) => {
    await output(join(folder, "node_modules/.bin", binary), ...args);
    const declarations = `
      declare const process: { argv: string[]; stdout: { write(text: string): void } };
      const base = process.argv[2] ?? "";
      const print = (title: string, done: boolean): void => process.stdout.write(title + " " + done);
      export {};`;
    const imports = program.match(/^ *import .*$/gm) ?? [];
    const rest = program.replaceAll(/^ *import .*$/gm, "");
    await Bun.write(join(folder, `${name}.ts`), [...imports, declarations, rest].join("\n"));
    const include = [`${name}.ts`, name];
    const project = `tsconfig.${name}.json`;
    await Bun.write(join(folder, project), JSON.stringify({ compilerOptions: COMPILER_OPTIONS, include }));
    await output(join(folder, "node_modules/.bin/tsc"), "-p", project);
    await using service = startService();
    expect(await output(process.execPath, `${name}.ts`, service.url)).toBe("made true");
  },
  300_000,
);
