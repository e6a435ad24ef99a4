/** Builds the Debian package from an executable, the unit and the files in deploy/debian. */
import { chmodSync, cpSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { version } from "../package.json" with { type: "json" };
import { output, ROOT } from "./command.ts";
import { toManualPage } from "./manual-page.ts";

export interface DebianPackage {
  readonly executable: string;
  readonly architecture: "amd64" | "arm64";
  /** Where to write the package. The folder must exist. */
  readonly file: string;
  /** By default, the version of the project. */
  readonly version?: string;
}

const UNIT = "lib/systemd/system/todo-service.service";
const SCRIPTS = ["postinst", "prerm", "postrm"];

/** Builds a package. Throws an Error if `dpkg-deb` is missing or fails. */
export function buildDebianPackage({ executable, architecture, file, ...given }: DebianPackage): void {
  const folder = `${file}.root`;
  const add = (path: string, text: string, mode = 0o644): void => {
    mkdirSync(dirname(join(folder, path)), { recursive: true, mode: 0o755 });
    writeFileSync(join(folder, path), text);
    chmodSync(join(folder, path), mode);
  };
  const source = (path: string): string => readFileSync(join(ROOT, "deploy", path), "utf8");
  try {
    add("usr/bin/todo", source("debian/todo"), 0o755);
    add("usr/lib/todo-service/todo", "", 0o755);
    cpSync(executable, join(folder, "usr/lib/todo-service/todo"));
    chmodSync(join(folder, "usr/lib/todo-service/todo"), 0o755);
    add(UNIT, toPackagedUnit(source("todo-service.service")));
    add("etc/todo-service/environment", source("debian/environment"), 0o640);
    add("usr/share/doc/todo-service/copyright", readFileSync(join(ROOT, "LICENSE"), "utf8"));
    for (const name of ["alertmanager.yml", "alerts.yml", "prometheus.yml"])
      add(`usr/share/doc/todo-service/${name}`, source(name));
    add(
      "usr/share/man/man1/todo.1",
      toManualPage(readFileSync(join(ROOT, "docs/reference/command-line.md"), "utf8"), version),
    );
    const kibibytes = Math.ceil(statSync(executable).size / 1024);
    add("DEBIAN/control", control(given.version ?? version, architecture, kibibytes));
    add("DEBIAN/conffiles", "/etc/todo-service/environment\n");
    for (const name of SCRIPTS) add(`DEBIAN/${name}`, source(`debian/${name}`), 0o755);
    const date = `SOURCE_DATE_EPOCH=${output(ROOT, "git", "log", "-1", "--format=%ct").trim()}`;
    // xz saves 6 MB of 48, and takes six times as long.
    output(ROOT, "env", date, "dpkg-deb", "--root-owner-group", "-Zgzip", "--build", folder, file);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Returns the unit with the program, the settings and the user of the package. */
function toPackagedUnit(unit: string): string {
  return unit
    .replace(/^# The executable is .*\n/m, "")
    .replace("/usr/local/bin/todo", "/usr/lib/todo-service/todo")
    .replace(/^Environment=TODO_STORE=.*$/m, "EnvironmentFile=/etc/todo-service/environment")
    .replace("DynamicUser=yes", "User=todo-service");
}

const control = (version: string, architecture: string, kibibytes: number): string => `Package: todo-service
Version: ${version}
Architecture: ${architecture}
Maintainer: The todo-service maintainers <todo-service@localhost>
Installed-Size: ${kibibytes}
Depends: libc6 (>= 2.31), passwd, util-linux
Section: web
Priority: optional
Description: to-do list over HTTP with a live web page
 A JSON to-do service with a web page, events, API keys and a command line.
 It stores its to-dos in a SQLite file.
`;
