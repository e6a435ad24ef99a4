import { join } from "node:path";
import { run } from "./command.ts";
import { temporaryFolder } from "./temporary.ts";

export type InstalledPackages =
  | { readonly folder: string; readonly whyMissing?: undefined }
  | { readonly folder?: undefined; readonly whyMissing: string };

/** Variables that npm needs where a proxy or a private registry stands between it and the network. */
const NAMES =
  /^(npm_config_registry|NODE_EXTRA_CA_CERTS|SSL_CERT_FILE|SSL_CERT_DIR|HTTPS?_PROXY|NO_PROXY|https?_proxy|no_proxy)$/;
export const REGISTRY_VARIABLES: Readonly<Record<string, string>> = Object.fromEntries(
  Object.entries(process.env).flatMap(([name, value = ""]) => (NAMES.test(name) ? [[name, value]] : [])),
);
const TIME_LIMIT_MS = 300_000;

export const whyNoRegistry =
  process.env.TODO_TEST_PACKAGE === undefined
    ? "TODO_TEST_PACKAGE is not set; npm would ask the registry for packages"
    : undefined;

/** Installs packages, such as `express@5.3.0`, into a new folder, which is removed after the tests of the file. */
export async function installPackages(...packages: readonly string[]): Promise<InstalledPackages> {
  if (whyNoRegistry !== undefined) return { whyMissing: whyNoRegistry };
  const folder = temporaryFolder();
  await Bun.write(join(folder, "package.json"), '{"private":true,"type":"module"}');
  const flags = ["--silent", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline"];
  const limits = ["--fetch-retries=1", "--fetch-timeout=30000", "--prefix", folder];
  await using npm = run(["npm", "install", ...flags, ...limits, ...packages], REGISTRY_VARIABLES);
  const timer = setTimeout(() => npm.kill("SIGKILL"), TIME_LIMIT_MS);
  const code = await npm.exited;
  clearTimeout(timer);
  if (code === 0) return { folder };
  const reason = code === undefined ? `no result within ${TIME_LIMIT_MS / 1000} s` : `exit code ${code}`;
  return { whyMissing: `npm cannot install ${packages.join(" ")}: ${reason}` };
}
