import { type Choice, type Filter, isSearching } from "../model/selection.ts";
import { readSetting, writeSetting } from "../settings.ts";

export const parseFilter = (show: string | null | undefined): Filter =>
  show === "open" || show === "done" ? show : "all";

/** What the user chose to see. The address has the filter and the search, and the browser remembers the rest. */
export class UserChoice implements Choice {
  /** The address follows it with a delay. */
  query = readQuery();
  isFolded = readSetting("completed") !== "shown";
  isOldestFirst = readSetting("order") === "oldest";

  get filter(): Filter {
    return parseFilter(new URLSearchParams(location.search).get("show"));
  }

  toggleFold(): void {
    this.isFolded = !this.isFolded;
    writeSetting("completed", this.isFolded ? undefined : "shown");
  }

  toggleOrder(): void {
    this.isOldestFirst = !this.isOldestFirst;
    writeSetting("order", this.isOldestFirst ? "oldest" : undefined);
  }

  readAddress(): void {
    this.query = readQuery();
  }

  /** Returns the address of a filter, with the search. */
  toUrl(filter = this.filter): string {
    const search = new URLSearchParams();
    if (filter !== "all") search.set("show", filter);
    if (isSearching(this)) search.set("q", this.query);
    return search.size === 0 ? "/" : `/?${search}`;
  }
}

const readQuery = (): string => new URLSearchParams(location.search).get("q") ?? "";
