import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, renameSync } from "node:fs";
import { join } from "node:path";
import lock from "../package-lock.json" with { type: "json" };
import { output } from "./command.ts";

/** A platform that executables are built for. */
export interface Target {
  /** The part of the file's name that tells the platform. */
  readonly name: string;
  /** The value of Bun's `--target`. */
  readonly bun: string;
  /** The npm package that contains the runtime. */
  readonly package: keyof typeof lock.packages & `node_modules/@oven/${string}`;
  readonly suffix: "" | ".exe";
}

/** The platforms with 64 bits on which users run servers; Bun has a runtime for each. */
export const TARGETS: readonly Target[] = [
  { name: "linux-x64", bun: "bun-linux-x64", package: "node_modules/@oven/bun-linux-x64", suffix: "" },
  {
    name: "linux-arm64",
    bun: "bun-linux-arm64",
    package: "node_modules/@oven/bun-linux-aarch64",
    suffix: "",
  },
  { name: "macos-x64", bun: "bun-darwin-x64", package: "node_modules/@oven/bun-darwin-x64", suffix: "" },
  {
    name: "macos-arm64",
    bun: "bun-darwin-arm64",
    package: "node_modules/@oven/bun-darwin-aarch64",
    suffix: "",
  },
  {
    name: "windows-x64",
    bun: "bun-windows-x64",
    package: "node_modules/@oven/bun-windows-x64",
    suffix: ".exe",
  },
  {
    name: "windows-arm64",
    bun: "bun-windows-arm64",
    package: "node_modules/@oven/bun-windows-aarch64",
    suffix: ".exe",
  },
];

/**
 * Returns the path of a platform's runtime. Downloads its npm package once, and compares it with `package-lock.json` each
 * time. Throws an Error if the registry does not have the package, or if the contents differ.
 * @param folder keeps the downloads
 */
export function fetchRuntime(target: Target, folder: string): string {
  const { version, integrity } = lock.packages[target.package];
  const name = target.package.replace("node_modules/", "");
  const home = join(folder, `${name.replace("@oven/", "")}-${version}`);
  const tarball = join(home, "package.tgz");
  mkdirSync(home, { recursive: true });
  if (!existsSync(tarball)) {
    const packed = output(home, "npm", "pack", "--loglevel=error", `${name}@${version}`).trim();
    renameSync(join(home, packed), tarball);
  }
  const digest = `sha512-${createHash("sha512").update(readFileSync(tarball)).digest("base64")}`;
  if (digest !== integrity)
    throw new Error(`${tarball} is not the package of package-lock.json: delete the file and try again`);
  output(home, "tar", "-xzf", tarball);
  return join(home, "package/bin", `bun${target.suffix}`);
}
