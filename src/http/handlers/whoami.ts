import type { Client } from "../../credential/client.ts";
import { text } from "../response.ts";
import type { GuardedHandler } from "../route.ts";

/** `GET /api/whoami`: returns the client's name. */
export const whoami: GuardedHandler<Client> = (_request, client) => text(client.name);
