import { type Browser, chromium } from "playwright-core";
import { reasonAgainst } from "./tools.ts";

/** Where Chromium is, unless it is said to be elsewhere. */
const PROGRAM = process.env.TODO_TEST_CHROMIUM ?? Bun.which("chromium") ?? undefined;

/** Why no test can have a browser; undefined where one can. */
export const whyNoBrowser: string | undefined =
  PROGRAM === undefined
    ? reasonAgainst("chromium", "is not installed, and TODO_TEST_CHROMIUM is not set")
    : undefined;

/** A real browser with a new profile, for which every name is this machine's: a page may come from any site. */
export function launchBrowser(): Promise<Browser> {
  if (PROGRAM === undefined) throw new Error(whyNoBrowser);
  return chromium.launch({
    executablePath: PROGRAM,
    headless: true,
    timeout: 30_000,
    args: [
      // The gate runs as root, where Chromium has no sandbox; all pages are the test's own.
      "--no-sandbox",
      "--disable-gpu",
      "--disable-quic",
      "--no-first-run",
      "--disable-background-networking",
      "--disable-component-update",
      "--disable-sync",
      "--host-resolver-rules=MAP * 127.0.0.1",
      // It would keep a page off the loopback that came from elsewhere: what is left is the server's own guard.
      "--disable-features=LocalNetworkAccessChecks",
    ],
  });
}

/** A web server whose every page is an empty one, at whatever name it is asked for. */
export function startSite() {
  const headers = { "Content-Type": "text/html; charset=utf-8" };
  const server = Bun.serve({
    hostname: "127.0.0.1",
    port: 0,
    development: false,
    fetch: () => new Response("<!doctype html><title>a page</title>", { headers }),
  });
  return {
    port: server.port,
    /** Its origin under a name. */
    at: (host: string): string => `http://${host}:${server.port}`,
    [Symbol.asyncDispose]: () => server.stop(true),
  };
}
