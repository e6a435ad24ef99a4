/** The requests for which two checkouts of this project are compared. */
import {
  getFirstPage,
  getList,
  getMissing,
  getOne,
  getOneFromBrowser,
  getPage,
  getUnchangedList,
  patch,
  post,
  postBlankTitle,
  type RequestSpec,
  signIn,
  whoami,
} from "./requests.ts";
import { fromCheckout, onNewFile, product, type Server, withAccessLog, withMetrics } from "./servers.ts";
import { DEFAULT_CONNECTIONS, MANY_CONNECTIONS, type Workload } from "./workloads.ts";

const TODOS = 1_000;

/** Returns workloads that each compare this checkout with the one in `folder`. */
export function againstCheckout(folder: string): readonly Workload[] {
  const workload = (
    name: string,
    request: RequestSpec,
    server: Server = product,
    connections = DEFAULT_CONNECTIONS,
  ): Workload => ({
    name,
    todos: TODOS,
    connections,
    competitors: [
      { label: "this checkout", server, request },
      { label: folder, server: fromCheckout(server, folder), request },
    ],
  });
  return [
    workload("GET one", getOne),
    workload("GET one, browser's headers", getOneFromBrowser),
    workload("GET one, access log", getOne, withAccessLog),
    workload("GET one, metrics", getOne, withMetrics),
    workload("GET one, 404", getMissing),
    workload("GET list of 1,000", getList),
    workload("GET list of 1,000, 304", getUnchangedList),
    workload("GET page of 100", getFirstPage),
    workload("POST", post),
    workload("POST, 256 connections", post, product, MANY_CONNECTIONS),
    workload("POST, 422", postBlankTitle),
    workload("PATCH", patch),
    workload("whoami", whoami),
    workload("admin", signIn),
    workload("page", getPage),
    workload("GET one on SQLite", getOne, onNewFile),
    workload("POST on SQLite", post, onNewFile),
    workload("POST on SQLite, 256 connections", post, onNewFile, MANY_CONNECTIONS),
    workload("PATCH on SQLite", patch, onNewFile),
  ];
}
