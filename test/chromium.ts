import { type Browser, chromium } from "playwright-core";
import { reasonAgainst } from "./tools.ts";

/** The path of Chromium. A variable may override it. */
const PROGRAM = process.env.TODO_TEST_CHROMIUM ?? Bun.which("chromium") ?? undefined;

/** The reason why no test can use a browser, or undefined. */
export const whyNoBrowser: string | undefined =
  PROGRAM === undefined
    ? reasonAgainst("chromium", "is not installed, and TODO_TEST_CHROMIUM is not set")
    : undefined;

/** Starts Chromium with a new profile. Every host name resolves to this machine, so a page may come from any site. */
export function launchBrowser(): Promise<Browser> {
  if (PROGRAM === undefined) throw new Error(whyNoBrowser);
  return chromium.launch({
    executablePath: PROGRAM,
    headless: true,
    timeout: 30_000,
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
      // This browser feature would block the requests of other sites to loopback. The test is about the server's own checks.
      "--disable-features=LocalNetworkAccessChecks",
    ],
  });
}

/** Starts a web server that sends an empty page for every path and host name. */
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
    /** Returns the server's origin under a host name. */
    at: (host: string): string => `http://${host}:${server.port}`,
    [Symbol.asyncDispose]: () => server.stop(true),
  };
}
