/** Who is signed in here, what the console is, in which workspaces they are. */
import { useMutation, useQuery, useQueryClient, type QueryClient } from "@tanstack/react-query";
import { ApiError, api, take, type Schemas } from "./client";

export type Self = Schemas["SelfView"];
export type Workspace = Schemas["WorkspaceView"];

/** Who is signed in; `null`: nobody. */
export function useSession() {
  return useQuery({
    queryKey: ["session"],
    queryFn: async (): Promise<Self | null> => {
      try {
        return await take(api.GET("/api/v1/session"));
      } catch (error) {
        if (error instanceof ApiError && error.problem.status === 401) return null;
        throw error;
      }
    },
    staleTime: 60_000,
  });
}

/** Who is signed in, where somebody is: below the sign-in page. */
export function useSelf(): Self {
  const { data } = useSession();
  if (!data) throw new Error("nobody is signed in");
  return data;
}

export function useAbout() {
  return useQuery({ queryKey: ["about"], queryFn: () => take(api.GET("/api/v1")), staleTime: Infinity });
}

/** All of them: somebody is in few. */
export function useWorkspaces() {
  return useQuery({
    queryKey: ["workspaces"],
    queryFn: async () => (await take(api.GET("/api/v1/workspaces", { params: { query: { limit: 200 } } }))).items,
    staleTime: 30_000,
  });
}

const RANKS = ["member", "admin", "owner"];

/** Whether a role may what another one may. */
export function atLeast(role: string | undefined, needed: "member" | "admin" | "owner"): boolean {
  return role !== undefined && RANKS.indexOf(role) >= RANKS.indexOf(needed);
}

/** Somebody else from now on: what the one before saw is forgotten. */
function become(client: QueryClient, self: Self | null): void {
  client.removeQueries({ predicate: (query) => query.queryKey[0] !== "session" && query.queryKey[0] !== "about" });
  client.setQueryData(["session"], self);
}

/** Signs in; what was kept of whoever was here before is gone. */
export function useSignIn() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: (body: Schemas["Credentials"]) => take(api.POST("/api/v1/session", { body })),
    onSuccess: (self) => become(client, self),
  });
}

export function useClaim() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: (body: Schemas["FirstOwner"]) => take(api.POST("/api/v1/owner", { body })),
    onSuccess: (self) => become(client, self),
  });
}

/** Signs out, here or on every device. */
export function useSignOut(where: "here" | "everywhere") {
  const client = useQueryClient();
  return useMutation({
    mutationFn: async () => {
      await (where === "here" ? api.DELETE("/api/v1/session") : api.DELETE("/api/v1/sessions"));
    },
    onSuccess: () => become(client, null),
  });
}
