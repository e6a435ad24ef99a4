import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { devDependencies } from "../package.json" with { type: "json" };

const ROOT = fileURLToPath(new URL("..", import.meta.url));

/** Ends the process with one line if a package that only the development needs is missing, as after `npm ci --omit=dev`. */
export function requireDevelopmentPackages(): void {
  if (Object.keys(devDependencies).every((name) => existsSync(`${ROOT}node_modules/${name}`))) return;
  process.stderr.write(`The packages for development are not installed: run npm ci in ${ROOT}\n`);
  process.exit(1);
}

if (import.meta.main) requireDevelopmentPackages();
