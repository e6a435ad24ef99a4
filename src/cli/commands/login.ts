import { existsSync, rmSync } from "node:fs";
import type { Command } from "commander";
import { bearerToken, serviceUrl } from "../../config/setting-values.ts";
import { loginFile, storeLogin } from "../../config/stored-login.ts";
import { asUsageError, UsageError } from "../../config/usage-error.ts";
import { escapeControls } from "../../escape-controls.ts";
import { isLoopbackOrigin } from "../../http/policy/address.ts";
import { runOnService } from "../client-command.ts";
import type { CommandProcess } from "../terminal/output.ts";
import { readToken } from "../terminal/prompt.ts";

/** Adds `todo login` and `todo logout`. */
export function addLoginCommands(program: Command, process: CommandProcess): void {
  program
    .command("login")
    .description(
      "Store the URL and a token of a service for later commands. Prompts for the token, or reads it from standard input.",
    )
    .argument("<url>")
    .addHelpText("after", "\n--url, TODO_URL and TODO_TOKEN override what is stored.")
    .action((url: string) => login(process, url));
  program
    .command("logout")
    .description("Remove the stored URL and token.")
    .action(() => logout(process));
}

async function login(process: CommandProcess, argument: string): Promise<void> {
  const url = asUsageError("the URL", () => serviceUrl(argument));
  const { protocol, origin } = new URL(url);
  if (protocol === "http:" && !isLoopbackOrigin(origin))
    throw new UsageError(
      `${url} would receive the token over plain HTTP, where others can read it: use https`,
    );
  const text = await readToken(process);
  const token = asUsageError("the token", () => bearerToken(text.trim()));
  const service = { url, urlSource: "the URL", token, tokenSource: "the token" };
  await runOnService(
    process,
    {},
    async ({ api, signal }) => {
      const name = await api.whoami({ signal });
      await storeLogin(process.env, service);
      process.stdout.write(`logged in to ${url} as ${escapeControls(name)}\n`);
    },
    service,
  );
}

function logout(process: CommandProcess): void {
  const file = loginFile(process.env);
  if (!existsSync(file)) throw new UsageError("no login is stored");
  asUsageError("the stored login", () => rmSync(file));
  process.stdout.write(`removed ${file}; the token stays valid until its API key is revoked\n`);
}
