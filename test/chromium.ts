import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Browser, chromium, errors } from "playwright-core";
import { reasonAgainst } from "./tools.ts";

const PROGRAM = process.env.TODO_TEST_CHROMIUM ?? Bun.which("chromium") ?? undefined;

export const whyNoBrowser: string | undefined =
  PROGRAM === undefined
    ? reasonAgainst("chromium", "is not installed, and TODO_TEST_CHROMIUM is not set")
    : undefined;

/** Long enough for a busy machine, and short enough for two attempts within the time limit of a test. */
const LAUNCH_WITHIN_MS = 50_000;

/** Starts Chromium with a new profile. Every host name resolves to this machine, so a page may come from any site. */
export async function launchBrowser(program = PROGRAM): Promise<Browser> {
  if (program === undefined) throw new Error(whyNoBrowser);
  try {
    return await launch(program);
  } catch (error) {
    if (!(error instanceof errors.TimeoutError)) throw error;
    // On a busy machine, Chromium sometimes starts and never answers.
    process.stderr.write(`Chromium did not start, trying again: ${error.message}\n`);
    return launch(program);
  }
}

/** Opens a page in a Chromium that blocks all cookies, and with them all storage. */
export async function openWithoutCookies(url: string) {
  await using profile = new AsyncDisposableStack();
  const directory = await mkdtemp(join(tmpdir(), "todo-blocked-"));
  profile.defer(() => rm(directory, { recursive: true, force: true }));
  const preferences = { profile: { default_content_setting_values: { cookies: 2 } } };
  await Bun.write(join(directory, "Default/Preferences"), JSON.stringify(preferences));
  const context = await chromium.launchPersistentContext(directory, options(PROGRAM ?? ""));
  profile.defer(() => context.close());
  const page = await context.newPage();
  await page.goto(url);
  const resources = profile.move();
  return { page, [Symbol.asyncDispose]: () => resources.disposeAsync() };
}

const launch = (executablePath: string): Promise<Browser> => chromium.launch(options(executablePath));

function options(executablePath: string) {
  return {
    executablePath,
    headless: true,
    timeout: LAUNCH_WITHIN_MS,
    args: [
      // The gate runs as root, and Chromium has no sandbox for root. All pages are the test's own.
      "--no-sandbox",
      "--disable-gpu",
      "--disable-quic",
      "--no-first-run",
      "--disable-background-networking",
      "--disable-component-update",
      "--disable-sync",
      "--host-resolver-rules=MAP * 127.0.0.1",
      // Service workers need HTTPS, except on loopback, where the one of the list obeys other rules.
      "--unsafely-treat-insecure-origin-as-secure=*.secure.example",
      // This browser feature would block the requests of other sites to loopback. The test is about the server's own checks.
      "--disable-features=LocalNetworkAccessChecks",
    ],
  };
}

/** Starts a web server that is not the service. */
export function startWeb(fetch: (request: Request) => Response | Promise<Response>, port = 0) {
  const server = Bun.serve({ hostname: "127.0.0.1", port, fetch, idleTimeout: 0, development: false });
  return { port: server.port, url: server.url.href, [Symbol.asyncDispose]: () => server.stop(true) };
}

/** Starts a web server that sends an empty page for every path and host name. */
export function startSite() {
  const headers = { "Content-Type": "text/html; charset=utf-8" };
  const web = startWeb(() => new Response("<!doctype html><title>a page</title>", { headers }));
  return { ...web, at: (host: string): string => `http://${host}:${web.port}` };
}

/** Serves the files of a folder. */
export const serveFolder = (folder: string) =>
  startWeb(async (request) => {
    const { pathname } = new URL(request.url);
    const file = Bun.file(join(folder, pathname === "/" ? "index.html" : pathname));
    return (await file.exists()) ? new Response(file) : new Response(null, { status: 404 });
  });
