/** The addresses that reach this machine itself, in the syntax of NO_PROXY, for Bun and for Node. */
const LOOPBACK = "localhost,127.0.0.1,127.0.0.0/8,[::1],0.0.0.0,[::]";

/**
 * Lets this process reach loopback addresses directly, whatever HTTP_PROXY, HTTPS_PROXY and ALL_PROXY say. Docker sets these
 * in each container, where the proxy would get the token and could not reach the server.
 * @param env the variables of the process, which `fetch` reads
 */
export function bypassProxiesOnLoopback(env: Record<string, string | undefined>): void {
  const own = env.no_proxy || env.NO_PROXY;
  if (own?.endsWith(LOOPBACK)) return;
  // Bun prefers the lower case, and an empty variable counts as unset.
  env.no_proxy = own ? `${own},${LOOPBACK}` : LOOPBACK;
  env.NO_PROXY = env.no_proxy;
}
