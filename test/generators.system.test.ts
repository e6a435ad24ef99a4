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
  "orval@7.13.0",
  "@kubb/cli@4.39.3",
  "@kubb/core@4.39.3",
  "@kubb/plugin-oas@4.39.3",
  "@kubb/plugin-ts@4.39.3",
  "@kubb/plugin-client@4.39.3",
  "openapi-typescript@7.13.0",
  "openapi-fetch@0.17.0",
  "@hey-api/openapi-ts@0.90.0",
  "swagger-typescript-api@13.13.0",
  "typescript@5.9.3",
];
const KUBB_CONFIG = `
import { defineConfig } from "@kubb/core";
import { pluginClient } from "@kubb/plugin-client";
import { pluginOas } from "@kubb/plugin-oas";
import { pluginTs } from "@kubb/plugin-ts";
const plugins = [pluginOas({ generators: [] }), pluginTs(), pluginClient({ client: "fetch", bundle: true })];
const output = { path: "./kubb", extension: { ".ts": ".ts" }, format: false };
export default defineConfig({ root: ".", input: { path: "./openapi.json" }, output, plugins });
`;
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
  /** The command that generates the code. */
  readonly command: readonly string[];
  /** A program that creates a to-do, marks it done, and prints its title and its state. `base` is the service's URL. */
  readonly program: string;
}

const GENERATORS: Readonly<Record<string, Generator>> = {
  orval: {
    command: ["orval", "--input", "openapi.json", "--output", "orval/client.ts", "--client", "fetch"],
    program: `
      import { createTodo, getTodo, updateTodo } from "./orval/client.ts";
      const { fetch } = globalThis;
      // The generated code requests paths of the page's own origin.
      globalThis.fetch = Object.assign((path: unknown, init?: RequestInit) => fetch(base + path, init), fetch);
      const created = await createTodo({ title: "made" }, { headers: { "Content-Type": "application/json" } });
      if (created.status !== 201) throw new Error(JSON.stringify(created.data));
      const { id } = created.data;
      await updateTodo(id, { done: true });
      const { status, data } = await getTodo(id);
      if (status !== 200) throw new Error(JSON.stringify(data));
      print(data.title, data.done);`,
  },
  kubb: {
    command: ["kubb", "generate", "--config", "kubb.config.mjs"],
    program: `
      import { setConfig } from "./kubb/.kubb/fetch.ts";
      import { createTodo } from "./kubb/clients/createTodo.ts";
      import { getTodo } from "./kubb/clients/getTodo.ts";
      import { updateTodo } from "./kubb/clients/updateTodo.ts";
      setConfig({ baseURL: base, headers: { "Content-Type": "application/json" } });
      const { id } = await createTodo({ title: "made" });
      await updateTodo(id, { done: true });
      const { title, done } = await getTodo(id);
      print(title, done);`,
  },
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
  "swagger-typescript-api": {
    command: [
      ...["swagger-typescript-api", "generate", "-p", "openapi.json"],
      ...["-o", "swagger-typescript-api", "-n", "api.ts"],
    ],
    program: `
      import { Api } from "./swagger-typescript-api/api.ts";
      const { api } = new Api({ baseUrl: base });
      const created = await api.createTodo({ title: "made" });
      const { id } = await created.json();
      await api.updateTodo(id, { done: true });
      const { title, done } = await (await api.getTodo(id)).json();
      print(title, done);`,
  },
};

const packages = await installPackages(...PACKAGES);
const folder = packages.folder ?? "";
if (packages.folder !== undefined) {
  await copyFile(join(ROOT, "openapi.json"), join(folder, "openapi.json"));
  await Bun.write(join(folder, "kubb.config.mjs"), KUBB_CONFIG);
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
    const include = [`${name}.ts`, name, `${name}/.kubb`];
    const project = `tsconfig.${name}.json`;
    await Bun.write(join(folder, project), JSON.stringify({ compilerOptions: COMPILER_OPTIONS, include }));
    await output(join(folder, "node_modules/.bin/tsc"), "-p", project);
    await using service = startService();
    expect(await output(process.execPath, `${name}.ts`, service.url)).toBe("made true");
  },
  300_000,
);
