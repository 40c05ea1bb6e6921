/**
 * What happens, as it happens: one stream for the page, of the topics that it names. The browser comes back by itself
 * with the number of the last event; where events were missed, everything is asked for again.
 */
import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef } from "react";

export interface Happening {
  kind: string;
  topic: string;
  at: number;
  data: unknown;
}

/** Kinds that the console tells. An event of another kind says nothing to a page. */
const KINDS = ["run", "job", "state", "output", "flows", "steps"];

/** Calls back for each event of the topics; with `reset` when some were missed. */
export function useEvents(topics: string[], call: (happening: Happening) => void): void {
  const latest = useRef(call);
  const queries = useQueryClient();
  const named = topics.join(",");
  useEffect(() => {
    latest.current = call;
  });
  useEffect(() => {
    if (named === "") return undefined;
    const source = new EventSource(`/api/v1/events?topics=${encodeURIComponent(named)}`);
    const told = (event: MessageEvent<string>) => {
      const said = JSON.parse(event.data) as Omit<Happening, "kind">;
      latest.current({ ...said, kind: event.type });
    };
    for (const kind of KINDS) source.addEventListener(kind, told);
    source.addEventListener("reset", () => latest.current({ kind: "reset", topic: "", at: Date.now(), data: null }));
    source.addEventListener("end", () => {
      // who may not hear any more is signed out, or out of the workspace: the next answer says which
      source.close();
      void queries.invalidateQueries({ queryKey: ["session"] });
      void queries.invalidateQueries({ queryKey: ["workspaces"] });
    });
    return () => source.close();
  }, [named, queries]);
}
