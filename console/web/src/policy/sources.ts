/** Policies in git, as the gateway has them in force. */
import { useQuery } from "@tanstack/react-query";
import { api, take, type Schemas } from "../api/client";

export type Source = Schemas["PolicySourceView"];

export function useSources(workspace: string) {
  return useQuery({
    queryKey: ["policy-sources", workspace],
    queryFn: () => take(api.GET("/api/v1/workspaces/{workspace}/policies/sources", { params: { path: { workspace } } })),
    staleTime: 10_000,
  });
}

/** The text of one as it is in force. */
export function inForce(workspace: string, source: string, policy: string) {
  return {
    queryKey: ["policy-in-force", workspace, source, policy],
    queryFn: () => take(api.GET("/api/v1/workspaces/{workspace}/policies/in-force", { params: { path: { workspace }, query: { source, policy } } })),
    staleTime: 5_000,
    retry: false,
  };
}

/** A file that may be changed by a proposal, as a choice names it. */
export interface Choice {
  source: string;
  policy: string;
  file: string;
}

/** The files that take proposals. */
export function choices(sources: Source[]): Choice[] {
  return sources.filter((source) => source.proposals).flatMap((source) => source.policies.map(({ policy, file }) => ({ source: source.name, policy, file })));
}
