/** Which workspace the page is in, and which one was used last in this browser. */
import { useParams } from "@tanstack/react-router";
import { useWorkspaces, type Workspace } from "../api/session";

const KEPT = "sallyport-workspace";

/** The workspace that the address names. */
export function useWorkspaceId(): string {
  const { workspace } = useParams({ strict: false });
  if (workspace === undefined) throw new Error("this page is in no workspace");
  return workspace;
}

/** What somebody is in the workspace of this page; nothing while that is not known. */
export function useRole(): string | undefined {
  const id = useWorkspaceId();
  return useWorkspaces().data?.find((workspace) => workspace.id === id)?.role;
}

/** The one that was used last, if they are still in it. */
export function usualWorkspace(list: Workspace[]): string | undefined {
  const kept = localStorage.getItem(KEPT);
  return (list.find((workspace) => workspace.id === kept) ?? list[0])?.id;
}

export function rememberWorkspace(id: string): void {
  localStorage.setItem(KEPT, id);
}
