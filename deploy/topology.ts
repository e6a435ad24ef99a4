/**
 * Runs the topology of compose.yaml with plain processes on loopback: PostgreSQL, three replicas, and nginx if it is
 * installed. `npm run topology` runs it until Ctrl-C. With TODO_STORE, it uses that database instead of a temporary one.
 */
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Command, run, runTodo } from "../test/command.ts";
import { freePort } from "../test/free-port.ts";
import { startPostgres } from "../test/postgres.ts";

const REPLICAS = 3;
/** The ports of the replicas and of the balancer in nginx.conf. */
const REPLICA_PORTS = ["3001", "3002", "3003"];
const BALANCER_PORT = "8080";
const READY_WITHIN_MS = 60_000;

export interface Topology extends AsyncDisposable {
  /** The URL of the balancer; `undefined` if nginx is not installed. */
  readonly balancer: string | undefined;
  readonly replicas: readonly string[];
}

/**
 * Starts the replicas and the balancer.
 * @param store a PostgreSQL URL. By default, a temporary PostgreSQL is started and ends with the rest.
 */
export async function startTopology(store?: string): Promise<Topology> {
  await using stack = new AsyncDisposableStack();
  const url = store ?? (await stack.use(await startPostgres()).newDatabase());
  const variables = { TODO_STORE: url };
  const processes = Array.from({ length: REPLICAS }, () =>
    stack.use(runTodo(["serve", "--port", "0"], variables)),
  );
  const replicas = await Promise.all(processes.map((replica) => replica.url));
  const balancer = Bun.which("nginx") === null ? undefined : await startBalancer(stack, replicas);
  const rest = stack.move();
  return { balancer, replicas, [Symbol.asyncDispose]: () => rest.disposeAsync() };
}

export interface BalancerOptions {
  /** The certificate with which nginx terminates TLS. Default: plain HTTP. */
  readonly certificate?: { readonly cert: string; readonly key: string };
  /** Changes the configuration for a test. */
  readonly changed?: (site: string) => string;
}

/**
 * Starts nginx with nginx.conf, of which only the ports are changed, and returns its URL.
 * @param replicas three URLs
 */
export async function startBalancer(
  stack: AsyncDisposableStack,
  replicas: readonly string[],
  { certificate, changed = (site) => site }: BalancerOptions = {},
): Promise<string> {
  const site = await readConfiguration("nginx.conf", replicas);
  return startNginx(stack, certificate === undefined ? "http" : "https", async (port, folder) => {
    let listen = `listen 127.0.0.1:${port}`;
    if (certificate !== undefined) {
      const [cert, key] = [join(folder, "cert.pem"), join(folder, "key.pem")];
      await Promise.all([writeFile(cert, certificate.cert), writeFile(key, certificate.key)]);
      listen += ` ssl; ssl_certificate ${cert}; ssl_certificate_key ${key}`;
    }
    return changed(site.replace(`listen ${BALANCER_PORT}`, listen));
  });
}

/** Starts nginx with a `server` block on a free port of loopback, and returns its URL. */
export async function startNginx(
  stack: AsyncDisposableStack,
  scheme: "http" | "https",
  siteAt: (port: string, folder: string) => string | Promise<string>,
): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "todo-topology-"));
  stack.defer(() => rm(folder, { recursive: true }));
  const port = String(await freePort());
  const site = await siteAt(port, folder);
  await writeFile(join(folder, "site.conf"), site);
  const temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
  await writeFile(
    join(folder, "nginx.conf"),
    [
      "daemon off;",
      // One process, so that ending it leaves no worker behind.
      "master_process off;",
      `pid ${folder}/pid;`,
      ...(process.getuid?.() === 0 ? ["user root;"] : []),
      "events {}",
      "http {",
      "access_log off;",
      ...temporary.map((name) => `${name}_temp_path ${folder}/${name};`),
      `include ${folder}/site.conf;`,
      "}",
    ].join("\n"),
  );
  const nginx = stack.use(run(["nginx", "-c", `${folder}/nginx.conf`, "-e", "stderr"]));
  const url = `${scheme}://127.0.0.1:${port}`;
  await answering(`${url}/livez`, nginx);
  return url;
}

/**
 * Starts Caddy with Caddyfile, of which only the ports are changed, and returns its URL.
 * @param replicas three URLs
 */
export async function startCaddy(stack: AsyncDisposableStack, replicas: readonly string[]): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "todo-topology-"));
  stack.defer(() => rm(folder, { recursive: true }));
  const port = await freePort();
  const site = await readConfiguration("Caddyfile", replicas);
  const config = join(folder, "Caddyfile");
  const address = `:${port} {\n\tbind 127.0.0.1`;
  await writeFile(config, `{\n\tadmin off\n}\n${site.replace(`:${BALANCER_PORT} {`, address)}`);
  const folders = { XDG_CONFIG_HOME: folder, XDG_DATA_HOME: folder };
  const caddy = stack.use(run(["caddy", "run", "--adapter", "caddyfile", "--config", config], folders));
  const url = `http://127.0.0.1:${port}`;
  await answering(`${url}/livez`, caddy);
  return url;
}

/**
 * Starts haproxy with haproxy.cfg, of which only the ports are changed, and returns its URL.
 * @param replicas three URLs
 */
export async function startHaproxy(
  stack: AsyncDisposableStack,
  replicas: readonly string[],
): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "todo-topology-"));
  stack.defer(() => rm(folder, { recursive: true }));
  const port = await freePort();
  const site = await readConfiguration("haproxy.cfg", replicas);
  const config = join(folder, "haproxy.cfg");
  await writeFile(config, site.replace(`bind :${BALANCER_PORT}`, `bind 127.0.0.1:${port}`));
  const haproxy = stack.use(run(["haproxy", "-db", "-f", config]));
  const url = `http://127.0.0.1:${port}`;
  await answering(`${url}/livez`, haproxy);
  return url;
}

/** Returns a configuration of this folder with these replicas instead of its own. */
async function readConfiguration(name: string, replicas: readonly string[]): Promise<string> {
  let configuration = await readFile(new URL(name, import.meta.url), "utf8");
  for (const [index, replica] of replicas.entries()) {
    configuration = configuration.replace(`127.0.0.1:${REPLICA_PORTS[index]}`, new URL(replica).host);
  }
  return configuration;
}

async function answering(url: string, server: Command): Promise<void> {
  const deadline = performance.now() + READY_WITHIN_MS;
  let hasEnded = false;
  server.exited.then(() => {
    hasEnded = true;
  });
  while (!hasEnded && performance.now() < deadline) {
    // A test may use a self-signed certificate.
    const answer = await fetch(url, { tls: { rejectUnauthorized: false } }).catch(() => undefined);
    if (answer?.ok) return;
    await Bun.sleep(20);
  }
  throw new Error(`no answer at ${url}: ${server.stderr()}`);
}

if (import.meta.main) {
  const topology = await startTopology(process.env.TODO_STORE);
  process.stdout.write(`replicas: ${topology.replicas.join(" ")}\n`);
  process.stdout.write(
    topology.balancer === undefined
      ? "no balancer: nginx is not installed\n"
      : `balancer: ${topology.balancer}\n`,
  );
  process.stdout.write("Ctrl-C ends all of it\n");
  for (const signal of ["SIGINT", "SIGTERM"] as const) {
    process.on(signal, async () => {
      await topology[Symbol.asyncDispose]();
      process.exit(0);
    });
  }
}
