import { expect } from "bun:test";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Rule, rules } from "../conformance/rules.ts";
import { rulesFor } from "../conformance/runner.ts";
import { hashToken, mintToken, randomBase62 } from "../src/credential/token.ts";
import { type Command, run } from "./command.ts";

/** The rules that no client can check, with the reasons. */
export const unobserved = rules.flatMap(({ id, notObservable }: Rule) =>
  notObservable === undefined ? [] : [{ id, notObservable }],
);

/** The variables that the kit's process gets. */
export interface KitRuntime {
  readonly flags: readonly string[];
  readonly variables: Readonly<Record<string, string>>;
}

/** Runs the conformance kit against `todo serve` with these arguments and variables, on a new store. */
export async function expectToConform(
  todo: (args: readonly string[], variables: Readonly<Record<string, string>>) => Command,
  store: string,
  { flags, variables }: KitRuntime = { flags: [], variables: {} },
): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), "todo-kit-"));
  try {
    const [token, password, clients] = [mintToken(), randomBase62(24), join(folder, "clients")];
    await Bun.write(clients, `alice:${hashToken(token).toString("hex")}\n`);
    await using server = todo(["serve", "--port", "0", "--clients-file", clients, "--store", store], {
      TODO_ADMIN_USER: "admin",
      TODO_ADMIN_PASSWORD: password,
    });
    await expectKitToPass(await server.url, rules, ["--client-name", "alice"], {
      flags,
      variables: { CONFORMANCE_TOKEN: token, CONFORMANCE_USER: `admin:${password}`, ...variables },
    });
  } finally {
    await rm(folder, { recursive: true });
  }
}

/** Runs the conformance kit with `--private` against `todo serve --private` with a user and API keys of both scopes. */
export async function expectToConformInPrivateMode(
  todo: (args: readonly string[], variables: Readonly<Record<string, string>>) => Command,
): Promise<void> {
  const user = `admin:${randomBase62(24)}`;
  const [name = "", password = ""] = user.split(":");
  await using server = todo(["serve", "--port", "0", "--private", "--store", "memory:"], {
    TODO_ADMIN_USER: name,
    TODO_ADMIN_PASSWORD: password,
  });
  const url = await server.url;
  const createKey = async (name: string, scope: string): Promise<string> => {
    const response = await fetch(`${url}/admin/keys`, {
      method: "POST",
      headers: { Authorization: `Basic ${btoa(user)}`, "Content-Type": "application/json" },
      body: JSON.stringify({ name, scope }),
    });
    expect(response.status).toBe(201);
    return /"token":"([^"]+)"/.exec(await response.text())?.[1] ?? "";
  };
  const [token, readToken] = [await createKey("phone", "write"), await createKey("screen", "read")];
  const kitArgs = ["--private", "--client-name", "phone", "--cors-origin", "http://localhost:5173"];
  await expectKitToPass(url, rulesFor({ privateMode: {} }), kitArgs, {
    flags: [],
    variables: { CONFORMANCE_TOKEN: token, CONFORMANCE_READ_TOKEN: readToken, CONFORMANCE_USER: user },
  });
}

/** Runs the conformance kit against a new server, and expects it to pass by these rules. */
async function expectKitToPass(
  url: string,
  rules: readonly Rule[],
  kitArgs: readonly string[],
  { flags, variables }: KitRuntime,
): Promise<void> {
  const commandLine = [process.execPath, "--no-env-file", ...flags, "conformance/run.ts", url, "--fresh"];
  await using kit = run([...commandLine, ...kitArgs], variables);
  const code = await kit.exited;
  expect(
    kit
      .stdout()
      .split("\n")
      .filter((line) => /^ +✗/.test(line)),
  ).toEqual([]);
  expect(kit.stdout().trimEnd().split("\n").at(-1)).toBe(
    `${url}: PASSED: ${rules.length - unobserved.length} passed, 0 failed, 0 not judged, 0 skipped, ${unobserved.length} not observable`,
  );
  expect([code, kit.stderr()]).toEqual([0, ""]);
}
