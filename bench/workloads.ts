/** What the product is compared with: workloads as data. */
import {
  getList,
  getOne,
  getOneFromBrowser,
  getOneWithToken,
  post,
  type RequestSpec,
  whoami,
} from "./requests.ts";
import {
  bareBlobHandler,
  bareHandler,
  elysia,
  elysiaResponses,
  equalElysia,
  equalGo,
  express,
  fastify,
  fastifyPlainList,
  inPrivateMode,
  nginx,
  onNewFile,
  product,
  type Server,
  withAccessLog,
} from "./servers.ts";

/** One row of a workload's table. */
export interface Competitor {
  readonly label: string;
  readonly server: Server;
  readonly request: RequestSpec;
}

/** The first competitor is compared with each of the others. */
export interface Workload {
  readonly name: string;
  /** How many to-dos each server has at the start. */
  readonly todos: number;
  readonly connections: number;
  readonly competitors: readonly [Competitor, ...Competitor[]];
}

export const DEFAULT_CONNECTIONS = 64;
export const MANY_CONNECTIONS = 256;

/** Returns a workload in which every server gets the same request. */
const workload = (
  name: string,
  request: RequestSpec,
  servers: readonly [Server, ...Server[]],
  { todos = 1, connections = DEFAULT_CONNECTIONS } = {},
): Workload => {
  const [first, ...others] = servers;
  return {
    name,
    todos,
    connections,
    competitors: [competitor(first, request), ...others.map((server) => competitor(server, request))],
  };
};
const competitor = (server: Server, request: RequestSpec, label = server.name): Competitor => ({
  label,
  server,
  request,
});

const equals = [equalElysia, equalGo];
const peers = [elysiaResponses, elysia, fastify, express];

export const workloads: readonly Workload[] = [
  workload("GET one", getOne, [product, ...[bareHandler, ...equals, nginx, ...peers], withAccessLog]),
  workload("GET one, browser's headers", getOneFromBrowser, [product, bareHandler, ...equals]),
  {
    name: "whoami",
    todos: 1,
    connections: DEFAULT_CONNECTIONS,
    competitors: [
      competitor(product, whoami),
      competitor(product, getOne, "todo-service, GET one"),
      ...[...equals, ...peers].map((server) => competitor(server, whoami)),
    ],
  },
  {
    name: "GET one in private mode",
    todos: 1,
    connections: DEFAULT_CONNECTIONS,
    competitors: [
      competitor(inPrivateMode, getOneWithToken),
      competitor(product, whoami, "todo-service, whoami"),
    ],
  },
  workload("POST", post, [product, bareHandler, ...equals, ...peers]),
  workload(
    "GET list of 1,000",
    getList,
    [product, bareHandler, bareBlobHandler, ...equals, elysia, fastify, express, fastifyPlainList],
    { todos: 1_000 },
  ),
  workload("GET one on SQLite", getOne, [onNewFile, bareHandler, product]),
  workload("GET list of 1,000 on SQLite", getList, [onNewFile, bareHandler, product], { todos: 1_000 }),
  workload("POST on SQLite", post, [onNewFile, product]),
  workload("POST on SQLite, 256 connections", post, [onNewFile, product], { connections: MANY_CONNECTIONS }),
];
