import type { BasicUser } from "../../credential/user.ts";
import { respond, text } from "../response.ts";
import type { GuardedHandler } from "../route.ts";

/** `GET /admin/`: greets the user. */
export const greet: GuardedHandler<BasicUser> = (_request, user) => text(`Hello, ${user.name}!`);

/** `GET /admin`: redirects to `/admin/`. */
export const redirectToAdmin: GuardedHandler<BasicUser> = () => respond(308, { Location: "/admin/" });
