/** What happens, as it happens, for a part of a page: all parts share one stream. */
import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef } from "react";
import { Stream, type Happening } from "./stream";

const stream = new Stream((url) => new EventSource(url));

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
    return stream.listen({
      topics: named.split(","),
      call: (happening) => latest.current(happening),
      ended: () => {
        // who may not hear any more is signed out, or out of the workspace: the next answer says which
        void queries.invalidateQueries({ queryKey: ["session"] });
        void queries.invalidateQueries({ queryKey: ["workspaces"] });
      },
    });
  }, [named, queries]);
}
